"""Causes of similar labeled cases: a linear model over a run's features, stored as data.

`benchmarks/failures/learning.py` trains `weights.txt` on the known cases, on posts that describe each cause and on the
rules' pages. Single words are weak evidence: the rules' clues, which give reasons, come first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from stayfinite.rules.experience.features import features
from stayfinite.rules.facts import Facts

SAME = {
    "fp16-overflow": "half",
    "fp16-overflow-model-family": "half",
    "environment": "versions",
    "upstream-bug": "versions",
}
"""Causes that cases cannot separate: their shares are added, and the likelier one is named."""

UNIT = 0.01
"""Weights are kept as whole numbers of it."""

NAMED = 3
"""Features named as the reason."""

CAUSE = "cause: "
"""Before the name of a cause, in the lines that are kept."""

UNTOLD = "precision unknown"
"""Counts, but is no reason to a reader."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The linear model."""

    bias: Mapping[str, float]
    """By cause."""
    rows: Mapping[str, str]
    """By feature: the number of a cause among those of `bias`, its weight in `UNIT`, the next cause, its weight."""

    def row(self, feature: str, causes: Sequence[str]) -> Iterator[tuple[str, float]]:
        """Each cause that a feature speaks for or against, with its weight."""
        kept = [int(number) for number in self.rows[feature].split()]
        return ((causes[at], UNIT * weight) for at, weight in zip(kept[::2], kept[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class Likely:
    """A cause of similar runs."""

    cause: str
    share: float
    """Share of such runs, 0 to 1."""
    because: tuple[str, ...]
    """The features with the most weight."""


def likely_causes(facts: Facts) -> list[Likely]:
    """The causes of similar runs, most common first."""
    return judged(features(facts), weights())


def judged(found: Collection[str], model: Weights) -> list[Likely]:
    """Apply a model to these features."""
    causes = list(model.bias)
    known = [(feature, dict(model.row(feature, causes))) for feature in sorted(found) if feature in model.rows]
    sums = dict(model.bias)
    for _, row in known:
        for cause, weight in row.items():
            sums[cause] += weight
    highest = max(sums.values())
    powers = {cause: math.exp(value - highest) for cause, value in sums.items()}
    total = sum(powers.values())
    groups: dict[str, list[str]] = {}
    for cause in sorted(powers, key=lambda cause: -powers[cause]):
        groups.setdefault(SAME.get(cause, cause), []).append(cause)
    said = []
    for likeliest, *others in groups.values():
        speaking = sorted(known, key=lambda each: -each[1].get(likeliest, 0.0))
        because = [name for name, row in speaking[:NAMED] if row.get(likeliest, 0.0) > 0 and name != UNTOLD]
        share = sum(powers[cause] for cause in (likeliest, *others)) / total
        said.append(Likely(likeliest, share, tuple(because)))
    return sorted(said, key=lambda each: -each.share)


@cache
def weights() -> Weights:
    """The shipped model."""
    return from_lines(files("stayfinite.rules.experience").joinpath("weights.txt").read_text("utf-8").splitlines())


def from_lines(lines: Iterable[str]) -> Weights:
    """Read what `to_lines` writes. Numbers are left as text: a run has few of the features."""
    parts = [line.partition("\t") for line in lines]
    bias = {name.removeprefix(CAUSE): float(rest) for name, _, rest in parts if name.startswith(CAUSE)}
    return Weights(bias, {name: rest for name, _, rest in parts if not name.startswith(CAUSE)})


def to_lines(model: Weights) -> Iterator[str]:
    """A line for each cause, with its bias, and for each feature, with its row."""
    yield from (f"{CAUSE}{cause}\t{bias}" for cause, bias in model.bias.items())
    yield from (f"{name}\t{row}" for name, row in model.rows.items())
