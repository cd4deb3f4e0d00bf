r"""Megatron-LM, Megatron-DeepSpeed, GPT-NeoX: one line per interval, fields separated by bars.

::

     iteration      122/  250000 | consumed samples: 124928 | learning rate: 9.150E-06 | lm loss: 2.504220E+00 | \
loss scale: 1.0 | grad norm: 0.231 | number of skipped iterations:   0 | number of nan iterations:   0 |

The loss is omitted unless it is positive, even while "nan iterations" stays 0. Skipped and NaN iterations are counted
since the last line.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.names import plain
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.pairs import separated_pairs
from stayfinite.readers.logs.reading import NANS_HERE, SKIPS_HERE, TOTAL, Reading

_HEAD = re.compile(rf"\biteration\s+({NUMBER})\s*/\s*({NUMBER})\s*\|")
_EVALUATION = re.compile(r"\bvalidation loss at|\btest loss at|\bvalidation results at")
_AT = re.compile(rf"\bat\s+iteration\s+({NUMBER})")
_QUIET = {"consumed_samples", "consumed_tokens", "global_batch_size", "batch_size"}


class Megatron(Format):
    """Iteration lines and evaluation lines."""

    marks = ("iteration", "loss at")

    def read(self, line: str, start: int) -> Reading | None:
        evaluation = _EVALUATION.search(line, start)
        if evaluation:
            return self._evaluation(line, evaluation.start())
        head = _HEAD.search(line, start)
        if head is None:
            return None
        reading = Reading("megatron", loss_is_expected=True)
        reading.fields = [("step", *head.span(1)), (TOTAL, *head.span(2))]
        pairs: list[tuple[str, int, int]] = []
        for name, begin, end in separated_pairs(line, head.end()):
            known = plain(name)
            if known in {"number_of_skipped_iterations", "skipped_iterations"}:
                reading.fields.append((SKIPS_HERE, begin, end))
            elif known in {"number_of_nan_iterations", "nan_iterations"}:
                reading.fields.append((NANS_HERE, begin, end))
            elif known not in _QUIET:
                pairs.append((name, begin, end))
        reading.take(pairs)
        return reading

    @staticmethod
    def _evaluation(line: str, begin: int) -> Reading | None:
        reading = Reading("megatron", is_point=False)
        at = _AT.search(line, begin)
        if at:
            reading.fields.append(("step", *at.span(1)))
        reading.take(separated_pairs(line, at.end() if at else begin), evaluation=True)
        return reading if len(reading.fields) > bool(at) else None
