"""Messages of loss scalers and of trainers that skip a step: apex, fairseq, ESPnet, icefall and others.

::

    Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 131072.0
    NOTE: overflow detected, setting loss scale to: 0.000244140625
    WARNING: The grad norm is nan. Skipping updating the model.
    Loss is nan, stopping training
    FloatingPointError: Loss became infinite or NaN at iteration=77!
    RuntimeError: grad_scale is too small, exiting: 2.3283064365386963e-10

Each is a point with the new scale or the non-finite value, and is also kept as a message.
"""

from __future__ import annotations

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import NUMBER
from stayfinite.readers.logs.reading import Reading

_NEW_SCALE = lazy_regex(
    rf"overflow\b.{{0,120}}?\b(?:loss[ _]?scale|scale|scaler)\b.{{0,60}}?\bto:?\s*({NUMBER})", re.IGNORECASE
)
_TOO_SMALL = lazy_regex(rf"\b(?:grad|loss)[ _]scale\b.{{0,60}}?\b(?:too|is) small\b\D{{0,40}}({NUMBER})", re.IGNORECASE)
_WHAT = r"(?P<what>(?:loss(?:es)?|cost)(?:[ _]?(?:tensor|value|function))?|grad(?:ient)?s?(?:[ _]?norm)?)"
_NAN = r"(?P<value>nan|(?:\+/-)?inf|infinite|non-?finite)"
_IS_NAN = lazy_regex(
    rf"\b{_WHAT}\s+(?:(?:has |have )?(?:is|are|was|were|been|bec[ao]mes?|turn(?:s|ed)?|goes|went|gone)\s+)"
    r"(?:(?:a|an|to|into|now|all|already)\s+){0,2}"
    r"(?P<value>(?:nan|inf|infinity)(?:\s*(?:or|/)\s*(?:nan|inf))?|infinite or nan|infinite|not finite|non-?finite)\b",
    re.IGNORECASE,
)
_NAN_IS = lazy_regex(
    rf"\b{_NAN}(?:s|\s+or\s+(?:nan|inf)s?)?\s+(?:(?:value|found|detected|occurred)s?\s+)?(?:(?:in|for)\s+)?"
    rf"(?:the\s+)?(?:\w+\s+)?{_WHAT}\b.{{0,40}}?\b"
    r"(?:encountered|detected|found|occurr?ed|during training|abort\w*|stopp\w*"
    r"|(?:at|in) (?:step|iter\w*|batch|epoch))\b",
    re.IGNORECASE,
)
_RECEIVED = lazy_regex(
    rf"\b(?:received|got|found|detected|encountered|hit)\s+(?:an?\s+)?{_NAN}\s+(?:\w+\s+)?(?P<what>loss|cost)\b",
    re.IGNORECASE,
)
_INVALID = lazy_regex(r"\b(?P<value>invalid) (?P<what>loss), terminating training", re.IGNORECASE)
_DENIED = lazy_regex(r"\b(?:no|not|never|without|zero)\s+(?:an?\s+|any\s+)?$", re.IGNORECASE)
_SUPPOSED = lazy_regex(r"\?|\b(?:if|when|whether|avoid|prevent|unless|may|might|could|can)\b", re.IGNORECASE)
_FORMS = (_IS_NAN, _NAN_IS, _RECEIVED, _INVALID)
_SOURCE = lazy_regex(r"\bf[\"'].{0,200}\{[A-Za-z_]")
"""The line of a script that would say so: its names are not filled in."""
_STEP = lazy_regex(r"\b(?:step|iter(?:ation)?|batch)[ :=#]{1,3}(\d+)", re.IGNORECASE)
_SKIPS = lazy_regex(r"\bskip(?:ping|ped)?\b", re.IGNORECASE)


class LossScalers(Format):
    """One line about one step."""

    marks = ("overflow", "scale", "nan", "inf", "finite", "invalid loss")

    def read(self, line: str, start: int) -> Reading | None:
        scale = _NEW_SCALE.search(line, start)
        if scale:
            fields = [("loss_scale", *scale.span(1))]
            return Reading("loss scaler", fields=fields, skipped=True, is_message=True)
        small = _TOO_SMALL.search(line, start)
        if small:
            return Reading("loss scaler", fields=[("loss_scale", *small.span(1))], is_message=True)
        if _SOURCE.search(line, start):
            return None
        said = next((found for form in _FORMS if (found := form.search(line, start))), None)
        if said is None or _SUPPOSED.search(line, start) or _DENIED.search(line, start, said.start()):
            return None
        column = "loss" if said["what"].lower().startswith(("loss", "cost")) else "grad_norm"
        value = math.inf if said["value"].lower() in {"inf", "+/-inf", "infinity", "infinite"} else math.nan
        reading = Reading("loss scaler", constants={column: value}, is_message=True)
        reading.skipped = _SKIPS.search(line, start) is not None
        step = _STEP.search(line, start)
        if step:
            reading.fields.append(("step", *step.span(1)))
        return reading
