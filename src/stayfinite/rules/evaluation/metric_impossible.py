"""A metric has an impossible value.

## What it means
An accuracy above 1, or above 100 %, counts something else than it says. Whatever is decided by it, the best
checkpoint or an early stop, is decided wrongly.

## Why it happens
- Predictions of shape `[n, 1]` are compared with labels of shape `[n]`: the result is a square, and its sum counts n
  times n pairs.
- The sum of correct rows is divided by the number of batches, or by another set's length.
- A counter is never reset between epochs.

## How to recognize it
- A printed accuracy above 1, a cosine or an R2 above 1, an area under a curve between 1 and 30 or below 0.35.
- `(prediction == y).shape` has two dimensions where it should have one.
- `stayfinite doctor train.py` sees the comparison, and names its line.

## How to fix it
`prediction.squeeze(1) == y`, or `prediction.argmax(1) == y`; divide by the number of rows that were compared; reset
counters each epoch.

## When it is a false alarm
Comparing each row with every other on purpose, as retrieval does, makes a square by design.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, Clue, Clues, Rule

_SHARE = lazy_regex(
    r"^(?!.*loss).*?(?:^|[_/ ])(?:acc|accuracy|top[-_]?[15]|f1|dice|iou|miou|recall|auc|auroc)(?:$|[_/@ ])",
    re.IGNORECASE,
)
HIGHEST = 100.0
"""In percent. An integer above it may be a count of rows."""
ROUNDING = 1e-4
"""How far 32-bit floats may miss the ends: `100.00000762939453`."""


def judge(facts: Facts) -> Clues:
    """Clues: a metric above its maximum."""
    seen = facts.symptoms
    above = seen.contradicted("overlap above 1") or seen.contradicted("beyond bounds")
    if above is not None:
        yield Clue(above.text, PROOF)
    for run in facts.runs:
        for name, track in run.metrics.items():
            if not _SHARE.search(name):
                continue
            beyond = next(
                (
                    (value, line)
                    for value, line in zip(track.values, track.lines, strict=True)
                    if math.isfinite(value)
                    and (value < -ROUNDING or value > HIGHEST + ROUNDING)
                    and value != int(value)
                ),
                None,
            )
            if beyond:
                yield Clue(f"{name} is {beyond[0]:g}; expected 0 to 100 %", PROOF, run.where(beyond[1]))
                return


RULE = Rule(
    code="SF831",
    fix="compare tensors of one shape, divide by the number of compared rows, and reset the counters each epoch",
    proofs={
        # The metric and its value, in words; empty where all are possible.
        "metric.impossible": "{}",
    },
)
