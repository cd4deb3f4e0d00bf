"""Counts of trainable parameters, as printed by peft, transformers, fairseq and others.

::

    trainable params: 0 || all params: 1,066,493,952 || trainable%: 0.0
    Number of trainable parameters = 4,194,304
    num. model params: 225086464 (num. trained: 225086464)

Gives the metrics `trainable_params` and `all_params`; the line is also kept as a message.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.reading import Reading

_COUNT = r"(\d[\d,_]*)(?![\d.]|\s?[KMB]\b)"
_TRAINED = re.compile(rf"(?<!non-)\b(?:trainable param(?:eter)?s|num\. trained)\s*[:=]\s*{_COUNT}", re.IGNORECASE)
_ALL = re.compile(rf"\b(?:all params|all parameters|num\. model params|total params)\s*[:=]\s*{_COUNT}", re.IGNORECASE)


class Parameters(Format):
    """One line near the start."""

    marks = ("param", "num. trained")

    def read(self, line: str, start: int) -> Reading | None:
        trained, everything = _TRAINED.search(line, start), _ALL.search(line, start)
        if trained is None:
            return None
        reading = Reading("", fields=[("trainable_params", *trained.span(1))], is_point=False, is_message=True)
        if everything:
            reading.fields.append(("all_params", *everything.span(1)))
        return reading
