"""Merge an adapter into its base."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from stayfinite.errors import UsageError
from stayfinite.recipes.exporting.finding import ADAPTER, Found


def base_named(found: Found) -> str:
    """The base of an adapter: a hub name, a directory, or a copy in the run.

    Raises:
        UsageError: the adapter does not name it.
    """
    if found.recipe in ("sft", "grpo"):
        from stayfinite.recipes.chat.adapters import read_record
        from stayfinite.recipes.chat.using import base_named as of_chat

        return of_chat(read_record(found.model), str(found.model))
    if found.recipe == "compare":
        kept = found.run / "base"
        return str(kept) if kept.is_dir() else str(found.settings["model"])
    from stayfinite.recipes.seq2seq.adapters import base_of

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
    if found.recipe in ("sft", "grpo"):
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
    from stayfinite.recipes.seq2seq.adapters import load_adapters

    try:
        return load_adapters(model, directory)
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(
            f"{directory / ADAPTER} does not fit its base: {str(error).splitlines()[0]}",
            fix="name the run it came from",
        ) from error


def _one(model: Any) -> Any:
    """Merge the adapter and check that all weights are finite."""
    model.config.use_cache = True
    whole = model.merge_and_unload()
    bad = [name for name, tensor in whole.state_dict().items() if not bool(torch.isfinite(tensor).all())]
    if bad:
        raise UsageError(f"the merged weights hold NaN or inf in {bad[0]}", fix="run `stayfinite scan` on the run")
    return whole
