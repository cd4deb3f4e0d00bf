"""Causes of similar labeled cases: a linear model over a run's features, stored as data.

`benchmarks/failures/learning.py` trains `weights.json` on the known cases and reports its accuracy on held-out sets.
Single words are weak evidence: the rules' clues, which give reasons, come first. What no labeled case had is still
described on a rule's page, so the words that a text shares with the pages count as well.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from stayfinite.rules.experience.features import features
from stayfinite.rules.experience.pages import likeness, shared
from stayfinite.rules.facts import Facts

SAME = {
    "fp16-overflow": "half",
    "fp16-overflow-model-family": "half",
    "environment": "versions",
    "upstream-bug": "versions",
}
"""Causes that cases cannot separate: their shares are added, and the likelier one is named."""

PAGES_COUNT, IN_WORDS = 15.0, 30.0
"""The log-odds between a page with the same words and one without any of them; the second where a text has no numbers
and no error, so that its words are all there is."""

NAMED = 3
"""Features named as the reason."""

UNTOLD = "precision unknown"
"""Counts, but is no reason to a reader."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The linear model."""

    bias: Mapping[str, float]
    """By cause."""
    by_feature: Mapping[str, Mapping[str, float]]
    """By feature, then by cause; missing entries are 0."""


@dataclass(frozen=True, slots=True)
class Likely:
    """A cause of similar runs."""

    cause: str
    share: float
    """Share of such runs, 0 to 1."""
    because: tuple[str, ...]
    """The features with the most weight."""
    described: tuple[str, ...] = ()
    """The rarest words that its page shares with the text."""


def likely_causes(facts: Facts) -> list[Likely]:
    """The causes of similar runs, most common first."""
    return judged(features(facts), weights(), pages_count(facts))


def pages_count(facts: Facts) -> float:
    """What the pages count for this text."""
    return PAGES_COUNT if facts.symptoms.points or facts.symptoms.crash is not None else IN_WORDS


def prior(found: Collection[str], counts: float = PAGES_COUNT) -> dict[str, float]:
    """By cause: the log-odds from the words that a text shares with its page, or with that of a cause like it."""
    alike = likeness(found)
    best: dict[str, float] = {}
    for cause, each in alike.items():
        best[SAME.get(cause, cause)] = max(each, best.get(SAME.get(cause, cause), 0.0))
    return {cause: counts * best[SAME.get(cause, cause)] for cause in alike}


def judged(found: Collection[str], model: Weights, counts: float = PAGES_COUNT) -> list[Likely]:
    """Apply a model to these features."""
    known = [(feature, model.by_feature[feature]) for feature in sorted(found) if feature in model.by_feature]
    described = prior(found, counts)
    sums = {
        cause: bias + described[cause] + sum(row.get(cause, 0.0) for _, row in known)
        for cause, bias in model.bias.items()
    }
    highest = max(sums.values())
    powers = {cause: math.exp(value - highest) for cause, value in sums.items()}
    total = sum(powers.values())
    groups: dict[str, list[str]] = {}
    for cause in sorted(powers, key=lambda cause: -powers[cause]):
        groups.setdefault(SAME.get(cause, cause), []).append(cause)
    said = []
    for causes in groups.values():
        speaking = sorted(known, key=lambda each: -each[1].get(causes[0], 0.0))[:NAMED]
        because = tuple(name for name, row in speaking if row.get(causes[0], 0.0) > 0 and name != UNTOLD)
        share = sum(powers[cause] for cause in causes) / total
        said.append(Likely(causes[0], share, because, tuple(shared(found, causes[0])[:NAMED])))
    return sorted(said, key=lambda each: -each.share)


@cache
def weights() -> Weights:
    """The shipped model."""
    text = files("stayfinite.rules.experience").joinpath("weights.json").read_text(encoding="utf-8")
    return from_json(json.loads(text))


def from_json(kept: Mapping[str, Any]) -> Weights:
    """Read the output of `to_json`: a feature's row alternates cause number and weight."""
    bias: Mapping[str, float] = kept["bias"]
    causes = list(bias)
    rows: Mapping[str, list[float]] = kept["features"]
    return Weights(
        bias,
        {
            name: {causes[int(at)]: weight for at, weight in zip(row[::2], row[1::2], strict=True)}
            for name, row in rows.items()
        },
    )
