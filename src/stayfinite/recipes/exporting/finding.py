"""Find a run's recipe, best model and records; merge an adapter into its base."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stayfinite.errors import UsageError
from stayfinite.recipes.running.records import RESULT, RUN, read_record
from stayfinite.recipes.settings import Refusing

MODELS = ("best", "final", "last")
"""Model directories of a run, best first."""
ADAPTER = "adapter_config.json"
FILES = ("config.json", ADAPTER, "mmdit.json")
RECIPES = ("translate", "mt5", "sft", "grpo", "compare", "mmdit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A run and its model."""

    run: Path
    recipe: str
    model: Path
    launch: dict[str, Any]
    """run.json."""
    result: dict[str, Any]
    """result.json; empty if the run is not finished."""

    @property
    def adapted(self) -> bool:
        """Whether the model is an adapter."""
        return (self.model / ADAPTER).is_file()

    @property
    def chats(self) -> bool:
        """Whether it is a chat model."""
        return self.recipe in ("sft", "grpo")

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.launch.get("config") or {})

    def beside(self, name: str) -> dict[str, Any]:
        """A record next to the model; empty if missing."""
        return _record(self.model / name)


def find(run: str) -> Found:
    """The run in this directory. Raises UsageError without a model, or for other recipes."""
    place = Path(run)
    if not place.is_dir():
        raise UsageError(f"{run}: no such directory", fix="name the --output-dir of a run")
    if place.name in MODELS and not (place / RUN).is_file() and (place.parent / RUN).is_file():
        place = place.parent
    launch = _record(place / RUN)
    recipe = str(launch.get("recipe") or "")
    if not launch and (place / "config.json").is_file():
        raise UsageError(
            f"{run} is a model without its run: {RUN} is missing",
            fix="transformers loads it as it is; name the --output-dir of its run for a model card",
        )
    if not launch:
        raise UsageError(f"{run} is not a run directory: {RUN} is missing", fix="name its --output-dir")
    if recipe not in RECIPES:
        raise UsageError(
            f"{run} is a run of {recipe or 'your own program'}; export supports {', '.join(RECIPES)}",
            fix="save your model with its own save_pretrained",
        )
    named = Path(run)
    places = [named] if named != place else [place / name for name in MODELS]
    model = next((each for each in places if any((each / name).is_file() for name in FILES)), None)
    if model is None:
        raise UsageError(
            f"{run} has no model yet: none of {', '.join(MODELS)} exists",
            fix="wait for its first evaluation, or resume it with the same command",
        )
    return Found(run=place, recipe=recipe, model=model, launch=launch, result=_record(place / RESULT))


def _record(path: Path) -> dict[str, Any]:
    return read_record(path, "restore it, or train again") if path.is_file() else {}


def base_named(found: Found) -> str:
    """The base of an adapter: a hub name, a directory, or a copy in the run.

    Raises:
        UsageError: the adapter does not name it.
    """
    if found.chats:
        from stayfinite.recipes.chat.adapters import read_record
        from stayfinite.recipes.chat.using import base_named as of_chat

        return of_chat(read_record(found.model), str(found.model))
    if found.recipe == "compare":
        kept = found.run / "base"
        return str(kept) if kept.is_dir() else str(found.settings["model"])
    from stayfinite.recipes.seq2seq.models import base_of

    return base_of(found.model)


def is_public(base: str) -> bool:
    """Whether others can load this base by name from a hub."""
    return not Path(base).exists() and base.count("/") == 1 and not base.endswith(".gguf")


def merged(found: Found) -> tuple[Any, Any]:
    """The base and adapter merged in float32, and its tokenizer or processor.

    Raises:
        UsageError: they do not match, or cannot be loaded.
    """
    base = base_named(found)
    if found.chats:
        from stayfinite.recipes.chat.adapters import load_adapter
        from stayfinite.recipes.chat.bases import load_base

        loaded = load_base(base)
        return _one(load_adapter(loaded.model, found.model)), loaded.tokenizer
    if found.recipe == "compare":
        from stayfinite.recipes.images.models import load_model, load_processor

        model = load_model(base, base="fp32", device=torch.device("cpu"))
        return _one(_with_adapter(model, found.model)), load_processor(str(found.model))
    from stayfinite.recipes.seq2seq.models import fit_vocabulary, load_trained
    from stayfinite.recipes.seq2seq.tokenizers import TO_USE, load_tokenizer

    model, tokenizer = load_trained(base), load_tokenizer(str(found.model), fix=TO_USE)
    fit_vocabulary(model, tokenizer)
    return _one(_with_adapter(model, found.model)), tokenizer


def _with_adapter(model: Any, directory: Path) -> Any:
    from stayfinite.recipes.seq2seq.models import load_adapters

    raised = (OSError, ValueError, RuntimeError)
    with Refusing(f"{directory / ADAPTER} does not fit its base", "name the run it came from", raised):
        return load_adapters(model, directory)


def _one(model: Any) -> Any:
    """Merge the adapter and check that all weights are finite."""
    model.config.use_cache = True
    whole = model.merge_and_unload()
    bad = [name for name, tensor in whole.state_dict().items() if not bool(torch.isfinite(tensor).all())]
    if bad:
        raise UsageError(f"the merged weights hold NaN or inf in {bad[0]}", fix="run `stayfinite scan` on the run")
    return whole
