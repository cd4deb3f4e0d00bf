"""Notes of loss scalers, and of trainers that leave a step out: apex, fairseq, ESPnet, icefall and the like.

::

    Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 131072.0
    NOTE: overflow detected, setting loss scale to: 0.000244140625
    WARNING: The grad norm is nan. Skipping updating the model.
    Loss is nan, stopping training
    FloatingPointError: Loss became infinite or NaN at iteration=77!
    RuntimeError: grad_scale is too small, exiting: 2.3283064365386963e-10

Each is a point with the new scale or the value that was not finite, and stays a message.
"""

from __future__ import annotations

import math
import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import Reading

_NEW_SCALE = re.compile(
    rf"overflow\b.{{0,120}}?\b(?:loss[ _]?scale|scale|scaler)\b.{{0,60}}?\bto:?\s*({NUMBER})", re.IGNORECASE
)
_TOO_SMALL = re.compile(rf"\b(?:grad_scale|loss[ _]scale)\b.{{0,60}}?\btoo small\b\D{{0,40}}({NUMBER})", re.IGNORECASE)
_WHAT = r"(?P<what>loss|grad(?:ient)?s?(?:[ _]?norm)?)"
_IS_NAN = re.compile(
    rf"\b{_WHAT}\s+(?:is|are|was|were|became|becomes)\s+(?:a\s+)?"
    r"(?P<value>nan|inf\b|infinite or nan|infinite|not finite|non-finite)\b",
    re.IGNORECASE,
)
_NAN_IS = re.compile(
    rf"\b(?P<value>nan|inf|infinite|non-?finite)\s+(?:\w+\s+)?{_WHAT}\b.{{0,40}}?"
    r"\b(?:encountered|detected|found|occurred|at (?:step|iter\w*|batch|epoch))\b",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(r"\?|\b(?:if|when|whether|avoid|prevent|unless|may|might|could|can)\b", re.IGNORECASE)
_STEP = re.compile(r"\b(?:step|iter(?:ation)?|batch)[ :=#]{1,3}(\d+)", re.IGNORECASE)
_SKIPS = re.compile(r"\bskip(?:ping|ped)?\b", re.IGNORECASE)


class LossScalers(Format):
    """One line about one step."""

    marks = ("overflow", "scale", "nan", "inf", "finite")

    def read(self, line: str, start: int) -> Reading | None:
        """See ``Format.read``."""
        scale = _NEW_SCALE.search(line, start)
        if scale:
            fields = [("loss_scale", *scale.span(1))]
            return Reading("loss scaler", fields=fields, skipped=True, is_message=True)
        small = _TOO_SMALL.search(line, start)
        if small:
            return Reading("loss scaler", fields=[("loss_scale", *small.span(1))], is_message=True)
        said = _IS_NAN.search(line, start) or _NAN_IS.search(line, start)
        if said is None or _SUPPOSED.search(line, start):
            return None
        column = "loss" if said["what"].lower() == "loss" else "grad_norm"
        value = math.inf if said["value"].lower() in {"inf", "infinite"} else math.nan
        reading = Reading("loss scaler", constants={column: value}, is_message=True)
        reading.skipped = _SKIPS.search(line, start) is not None
        step = _STEP.search(line, start)
        if step:
            reading.fields.append(("step", *step.span(1)))
        return reading
