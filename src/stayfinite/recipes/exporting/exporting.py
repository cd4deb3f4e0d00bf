"""Write the best model of a run as a plain directory, atomically."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.recipes.exporting.card import FRAME, card, generation_of, notes_of, use_of
from stayfinite.recipes.exporting.finding import ADAPTER, Found, base_named, find, is_public, merged
from stayfinite.recipes.models import quiet_transformers
from stayfinite.recipes.running.directories import require_room, write_whole

OURS = frozenset({"translate.json", "language.json", "sft.json", "compare.json", "mmdit.json", "README.md"})
"""Files only this package reads; the card covers their contents."""
CARD = "README.md"
MARK = "Trained with `stayfinite train "
TRIED = (
    "How many g is 2 kg?",
    "  two  spaces, ä, a-na šarri, 你好 🐎\n\tand a tab",
    "<extra_id_0> <answer>12.5</answer>",
)
"""Texts that must give the same tokens before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Result of an export."""

    directory: Path
    recipe: str
    kind: str
    """"whole model", "merged model", "adapter" or "weights"."""
    files: Sequence[str]
    use: str


def export(
    run: str, into: str, *, merge: bool = False, force: bool = False, say: Callable[[str], None] = print
) -> Exported:
    """Write the best model of a run in a form that others can load.

    Arguments:
        run: its directory, or that of one of its models.
        into: a new or empty directory.
        merge: merge an adapter into its base.
        force: replace an earlier export.

    Raises:
        UsageError: no model, a base that cannot be loaded, or a directory in use.
    """
    found = find(run)
    place = Path(into).resolve()
    _require_free(place, found, force=force)
    require_room(place, "-o")
    if found.adapted and not merge and not is_public(base := base_named(found)):
        raise UsageError(
            f"{found.model} is an adapter; others cannot load its base {base} by name",
            fix="--merge saves base and adapter as one model",
        )
    kind = "weights" if found.recipe == "mmdit" else "whole model"
    if found.adapted:
        kind = "merged model" if merge else "adapter"
    elif merge:
        say("--merge changes nothing: the run trained the whole model")
    say(f"{found.recipe} run, {kind} from {found.model}")
    joined = found.adapted and merge
    use = use_of(found, place.name, merged=not found.adapted or joined)

    def save(aside: Path) -> None:
        if joined:
            say("loading the base and merging the adapter")
        _write(found, aside, merge=joined)
        notes = notes_of(found, merged=joined)
        (aside / CARD).write_text(card(found, use, notes), encoding="utf-8")

    aside = place.with_name(place.name + ".new")
    try:
        write_whole(place, save)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    files = sorted(file.name for file in place.iterdir())
    return Exported(directory=place, recipe=found.recipe, kind=kind, files=files, use=use)


def _require_free(place: Path, found: Found, *, force: bool) -> None:
    run = found.run.resolve()
    if place == run or place in run.parents or found.model.resolve() in (place, *place.parents):
        raise UsageError(f"-o {place} is the run itself", fix="name another directory")
    if place.is_file():
        raise UsageError(f"-o {place} is a file", fix="name a directory")
    if not place.is_dir() or not any(place.iterdir()):
        return
    if not force:
        raise UsageError(
            f"-o {place} is not empty", fix="name another directory, or --force to replace an export there"
        )
    readme = place / CARD
    if not readme.is_file() or MARK not in readme.read_text(encoding="utf-8", errors="replace"):
        raise UsageError(
            f"-o {place} holds files that are not an export; --force replaces exports only",
            fix="name another directory, or empty that one yourself",
        )


def _write(found: Found, aside: Path, *, merge: bool) -> None:
    """Write the merged model, or copy one that is already in a loadable form, without our own files."""
    tokenizer: Any = None
    if merge:
        model, tokenizer = merged(found)
        with quiet_transformers():
            model.save_pretrained(str(aside))
            tokenizer.save_pretrained(str(aside))
    else:
        for file in sorted(found.model.iterdir()):
            if file.is_file() and file.name not in OURS:
                shutil.copy2(file, aside / file.name)
        if found.recipe == "mmdit":
            shutil.copy2(found.model / "mmdit.json", aside / "config.json")
        elif found.adapted:
            path = aside / ADAPTER
            path.write_text(
                json.dumps(_read(path) | {"base_model_name_or_path": base_named(found)}, indent=2), encoding="utf-8"
            )
    if found.recipe not in ("mmdit", "compare"):
        tokenizer = _tokenizer(found.model) if tokenizer is None else tokenizer
        _frame(tokenizer, aside, found)
        _require_same_tokens(tokenizer, _tokenizer(aside))
        _write_generation(found, aside, tokenizer)


def _tokenizer(directory: Path) -> Any:
    from transformers import AutoTokenizer

    with quiet_transformers():
        return AutoTokenizer.from_pretrained(str(directory))


def _frame(tokenizer: Any, aside: Path, found: Found) -> None:
    """Add the chat template used in training if the tokenizer has none."""
    if found.chats and not getattr(tokenizer, "chat_template", None):
        start = tokenizer.bos_token or ""
        tokenizer.chat_template = ("{{ " + repr(start) + " }}" if start else "") + FRAME
        tokenizer.save_pretrained(str(aside))


def _require_same_tokens(before: Any, after: Any) -> None:
    """Raise UsageError if the tokenizers encode a text differently."""
    for text in TRIED:
        one, two = before(text).input_ids, after(text).input_ids
        if one != two or before.decode(one) != after.decode(two):
            raise UsageError(
                f"the exported tokenizer gives {two[:8]} for {text!r}, the run's {one[:8]}: nothing written",
                fix="use the versions of transformers and tokenizers of the training (see run.json)",
            )


def _write_generation(found: Found, aside: Path, tokenizer: Any) -> None:
    """Write generation_config.json with the recipe's own settings."""
    from transformers import GenerationConfig

    path = aside / "generation_config.json"
    held = _read(path) if path.is_file() else {}
    marks, sampled = {"pad_token_id": tokenizer.pad_token_id}, {"max_length"}
    if found.chats:
        marks |= {"eos_token_id": tokenizer.eos_token_id}
        sampled |= {"temperature", "top_p", "top_k"}
    kept = {name: value for name, value in held.items() if name not in sampled}
    GenerationConfig(**(kept | marks | generation_of(found))).save_pretrained(str(aside))


def _read(path: Path) -> dict[str, Any]:
    held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return held
