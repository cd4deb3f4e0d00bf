"""The two players of a GAN, told by the names of their losses: what one wins the other loses."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RunSeries
from stayfinite.rules.named_numbers import Odd, numbers_in

HELPLESS = 5.0
"""The loss of a player that is always wrong."""
_DISCRIMINATOR = lazy_regex(r"(?:loss_?|err_?)?(?:d|dis\w*|critic)(?:_(?:fake|real))?(?:_?loss)?", re.IGNORECASE)
_GENERATOR = lazy_regex(r"(?:loss_?|err_?)?(?:g|gen|generator)(?:_(?:fake|gan|adv))?(?:_?loss)?", re.IGNORECASE)


def two_players(run: RunSeries) -> bool:
    """Whether a log has the losses of both; their sum says nothing."""
    return all(any(map(each.fullmatch, run.metrics)) for each in (_DISCRIMINATOR, _GENERATOR))


def discriminator_wins(run: RunSeries) -> Odd | None:
    """A discriminator's loss of 0, and a generator that never fools it."""
    return _won(run, "discriminator", "generator", zero=1e-4, least=3)


def generator_wins(run: RunSeries) -> Odd | None:
    """A generator's loss of 0, and a discriminator that everything fools."""
    return _won(run, "generator", "discriminator", zero=1e-3, least=5)


def _won(run: RunSeries, winner: str, loser: str, *, zero: float, least: int) -> Odd | None:
    """A player whose last three losses are 0, while the other one is always wrong."""
    named = {"discriminator": _DISCRIMINATOR, "generator": _GENERATOR}
    won, lost = ([each for each in numbers_in(run) if named[who].fullmatch(each.name)] for who in (winner, loser))
    for first, second in zip(won, lost, strict=False):
        last = first.values[-3:]
        if len(first.values) >= least and min(last) >= 0 and max(last) <= zero and min(second.values[-3:]) >= HELPLESS:
            text = f"the {winner}'s loss is 0 and the {loser}'s {second.values[-1]:.4g}"
            return Odd(text, first.since(lambda value: value <= zero))
    return None
