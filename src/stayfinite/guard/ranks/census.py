"""Which parameters there are on all ranks together, how many ranks hold each, and which ranks have a loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stayfinite.errors import ModelError
from stayfinite.measure.roster import Roster


@dataclass(frozen=True, slots=True)
class Census:
    """The same on every rank but for ``places``."""

    names: tuple[str, ...]
    """Of all parameters of the training, each once."""
    holding: tuple[int, ...]
    """How many ranks hold each, or a part of it."""
    places: tuple[int, ...]
    """Where this rank's roster stands in ``names``."""
    heard: tuple[int, ...] | None = None
    """Ranks that have a loss; None for all."""


def of_likes(roster: Roster, world: int) -> Census:
    """Of ranks that all hold the same parameters, or parts of them."""
    number = len(roster.names)
    return Census(roster.names, (world,) * number, tuple(range(number)))


@dataclass(frozen=True, slots=True)
class Held:
    """What one rank tells the others, once."""

    names: tuple[str, ...]
    stages: tuple[int, ...]
    last: bool


def of_stages(told: Sequence[Held], own: Sequence[str]) -> Census:
    """Of ranks that hold different ones.

    Arguments:
        told: by each rank.
        own: the names of this rank's roster at present.

    Raises:
        ModelError: a parameter is trained now that was not when the ranks told each other.
    """
    # A rank may hold two copies of a tied one. Not a set: its order would differ between ranks.
    counted = Counter(name for each in told for name in dict.fromkeys(each.names))
    at = {name: place for place, name in enumerate(counted)}
    if new := [name for name in own if name not in at]:
        raise ModelError(
            f"{len(new)} parameters became trainable after the guard was built, first {new[0]}",
            fix="unfreeze before building the guard, or close it and build a new one on every rank",
        )
    return Census(
        tuple(counted),
        tuple(counted.values()),
        tuple(at[name] for name in own),
        tuple(rank for rank, each in enumerate(told) if each.last),
    )
