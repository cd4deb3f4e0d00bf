"""Signs in logs of RL and preference training, as clues."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, STRONG, Clue


def seen_in_log(facts: Facts, cause: str, weight: float = STRONG + FAIR) -> Iterator[Clue]:
    """A clue if a log shows this cause, with its numbers and step."""
    seen = facts.post_training.get(cause)
    if seen is not None:
        yield Clue(f"step {seen.sign.step:,}: {seen.sign.text}", weight, seen.where, fix=seen.sign.advice)
