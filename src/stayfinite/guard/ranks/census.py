"""All parameters over all ranks, how many ranks hold each, and which ranks have a loss."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stayfinite.errors import ModelError
from stayfinite.measure.roster import Roster


@dataclass(frozen=True, slots=True)
class Census:
    """The same on every rank, except ``places``."""

    names: tuple[str, ...]
    """Names of all parameters, without duplicates."""
    holding: tuple[int, ...]
    """Number of ranks that hold each parameter or a shard of it."""
    places: tuple[int, ...]
    """Positions of this rank's roster in ``names``."""
    with_loss: tuple[int, ...] | None = None
    """Ranks that have a loss; None for all."""


def of_likes(roster: Roster, world: int) -> Census:
    """Census if all ranks hold the same parameters or shards of them."""
    number = len(roster.names)
    return Census(roster.names, (world,) * number, tuple(range(number)))


@dataclass(frozen=True, slots=True)
class Held:
    """What one rank holds, exchanged once."""

    names: tuple[str, ...]
    stages: tuple[int, ...]
    last: bool


def of_stages(held: Sequence[Held], own: Sequence[str]) -> Census:
    """Census if ranks hold different parameters.

    Arguments:
        own: names in this rank's current roster.

    Raises:
        ModelError: a parameter became trainable after the exchange.
    """
    # A rank may hold two copies of a tied parameter. Not a set: its order differs between ranks.
    counted = Counter(name for each in held for name in dict.fromkeys(each.names))
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
        tuple(rank for rank, each in enumerate(held) if each.last),
    )
