"""A printed sum is never reset between epochs.

## What it means
The loss or the count that is printed each epoch continues from the epoch before. It grows with every epoch, however
well the model learns, and hides whether it does.

## Why it happens
`running_loss = 0.0` is before the loop over epochs, not inside. Or a metric object is updated and never reset.

## How to recognize it
- The printed loss grows in a straight line while the loss of single batches falls.
- Divided by the number of the epoch, the printed number is reasonable.
- `stayfinite doctor train.py` compares what is printed with the losses that went into backward.

## How to fix it
`running_loss = 0.0` as the first line of each epoch; `metric.reset()` for metric objects. Divide by the batches of this
epoch only.

## When it is a false alarm
A sum over the whole training is a fine number if it is meant and labeled so.
"""

import math
from itertools import pairwise
from statistics import median

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, STRONG, Clue, Clues, Rule

FEWEST = 6
"""Fewest epochs to judge steady growth."""


def judge(facts: Facts) -> Clues:
    """Clues: a printed number that is a sum since the start."""
    summed = facts.symptoms.contradicted("running sum")
    if summed is not None:
        yield Clue(summed.text, STRONG + FAIR, facts.symptoms.at("start"))
        return
    kept = facts.mentioned(r"\bmetrics\.\w+\(")
    looped = facts.mentioned(r"\.result\(\)") and facts.mentioned(r"^\s*for epoch\b")
    if kept is not None and looped and facts.mentioned(r"\breset_states?\b") is None:
        yield Clue(f"a metric that is made once and never reset: {kept.text.strip()[:80]}", STRONG + FAIR, kept.where)
    for run in facts.runs:
        rows = [(loss, line) for _, loss, line in run.column("loss") if math.isfinite(loss)]
        epochs = {point.epoch for point in run.points if point.epoch is not None and point.loss is not None}
        if len(epochs) >= FEWEST and (gain := _even_gain([loss for loss, _ in rows])) is not None:
            text = f"the loss grows by about {gain:.3g} at each of {len(rows)} epochs, from {rows[0][0]:.3g}"
            yield Clue(f"{text}: a sum does", STRONG, run.where(rows[-1][1]))
            return


def _even_gain(losses: list[float]) -> float | None:
    """The gain per line if every line adds about the same, including the first; None otherwise."""
    if len(losses) < FEWEST:
        return None
    gains = [later - earlier for earlier, later in pairwise([0.0, *losses])]
    usual = median(gains)
    return usual if usual > 0 and all(0.4 * usual <= gain <= 2.5 * usual for gain in gains) else None


RULE = Rule(
    code="SF830",
    severity="warning",
    fix="reset the sum to 0 at the start of each epoch",
    proofs={
        # The printed number that sums up since the start, in words.
        "metric.sum_since_start": "{}",
    },
    beats=("loss-diverging", "lr-too-high"),
)
