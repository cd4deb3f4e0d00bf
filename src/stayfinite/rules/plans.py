"""Clues from a plan, before anything has run: remarks of the file checks of `stayfinite check`."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, Clue

Remark = tuple[str, str] | tuple[str, str, str]
"""Text, location and optionally a more specific fix: ``("fp16: True and bf16: True", "train.yaml:3")``."""

REMARKS = "what the settings say of it, each remark with its place"
"""For a rule's `observes`."""


def planned(facts: Facts, name: str, weight: float = PROOF, *, mild: bool = False) -> Iterator[Clue]:
    """A clue for each remark of this name. Settings are risks: nothing has happened yet."""
    seen = facts.seen(name)
    for text, where, *fix in [] if seen is None else seen.value:
        yield Clue(text, weight, where, risk=True, fix=fix[0] if fix else "", mild=mild)
