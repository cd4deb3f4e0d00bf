"""Names of settings: the field, its aliases, and former names, which continue to work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_type_hints

FORMER = {
    "steps": "max_steps", "save_steps": "checkpoint_steps", "save_total_limit": "keep_checkpoints",
    "mixed_precision": "precision", "clip_grad_norm": "max_grad_norm",
}  # fmt: skip
"""Former names, each with the name that all recipes share."""


def names_of(kind: type[Any]) -> dict[str, str]:
    """Every present name of a setting, aliases included, with its field."""
    hints = get_type_hints(kind, include_extras=True)
    found = {field.name: field.name for field in fields(kind)}
    for name in list(found):
        for note in getattr(hints[name], "__metadata__", ()):
            for alias in getattr(note, "aliases", None) or ():
                found[alias.lstrip("-").replace("-", "_")] = name
    return found


def renamed(name: str, names: Mapping[str, str]) -> str | None:
    """The present name of a setting given by a former one; None if the name is present or unknown."""
    now = FORMER.get(name)
    return now if now in names and name not in names else None


def with_present_names(kind: type[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded settings by their present names."""
    names = names_of(kind)
    return {renamed(name, names) or name: value for name, value in settings.items()}
