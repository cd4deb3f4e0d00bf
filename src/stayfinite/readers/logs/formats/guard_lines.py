"""Lines that the guard itself prints about a step.

::

    stayfinite: step 41 refused (loss-not-finite): the loss is NaN; all 4 gradients are NaN or inf. Weights unchanged.
    stayfinite: rank 1: step 57 refused, rolled back from step 57 to step 1: ...
    stayfinite: step 93 bounded (unusual-gradient): grad norm 620.5 (median of the last 92 steps 1.2), loss 193.5; ...
    stayfinite: step 102: rolled back to step 51. Loss 0.04 -> 3722 since step 93 (8 steps); ...
    stayfinite: step 508: new phase. Loss 1.31 -> 2.9 since step 501 (8 steps); ...

A refused step never changed the weights, so its line is neither a measurement nor an error message. For other steps the
loop logs its own numbers.
"""

from __future__ import annotations

from stayfinite.readers.logs.formats.format import Format, Head


class GuardLines(Format):
    """Refused steps and other guard decisions."""

    marks = ("stayfinite: ",)
    heads = (
        Head(
            r"\bstayfinite: (?:rank \d+: )?step (?P<step>\d+)(?: refused[, ]| bounded[, ]|: rolled back |: new phase)",
            pairs=False,
            is_point=False,
            has_shape=False,
        ),
    )
