"""fairseq, both formats.

::

    | INFO | train_inner | epoch 003:      5 / 356 loss=9.44, lr=0.000175, gnorm=156.036, loss_scale=0
    | epoch 010  2000 / 8223 loss=1.27 (1.50), wps=962, gnorm=2.1427
    | epoch 010 | train loss 1.44 | train ppl 2.72 | lr 0.001000 | clip 100% | gnorm 2.1113
    | epoch 010 | valid on 'valid' subset | valid loss 1.94 | valid ppl 3.83
    | INFO | train | epoch 001 | loss 9.1 | ppl 548 | num_updates 99 | gnorm 2.0
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.pairs import separated_pairs
from stayfinite.readers.logs.reading import BATCH, BATCHES, Reading

_INNER = re.compile(r"\bepoch\s+(\d+):?\s+(\d+)\s*/\s*(\d+)\s+(?=\w+=)")
_SUMMARY = re.compile(r"(?<![^\s|])epoch\s+(\d+)\s*\|")
_CELL = re.compile(rf"\|\s*([A-Za-z_][\w/ ]{{0,40}}?)\s+({NUMBER})\s*%?\s*(?=\||$)")


class Fairseq(Format):
    """Lines within an epoch, and epoch summaries."""

    marks = ("epoch",)

    def read(self, line: str, start: int) -> Reading | None:
        inner = _INNER.search(line, start)
        if inner:
            reading = Reading("fairseq", fields=[("epoch", *inner.span(1))])
            reading.take(separated_pairs(line, inner.end()))
            if not reading.has("step"):
                reading.fields += [(BATCH, *inner.span(2)), (BATCHES, *inner.span(3))]
            return reading if reading.has("loss", "grad_norm") else None
        summary = _SUMMARY.search(line, start)
        if summary is None:
            return None
        evaluation = bool(re.search(r"\|\s*valid\b", line)) or "valid on" in line
        reading = Reading("fairseq", fields=[("epoch", *summary.span(1))], epoch_is_step=True)
        cells = [(match[1], *match.span(2)) for match in _CELL.finditer(line, summary.end() - 1)]
        reading.take(cells, evaluation=evaluation)
        reading.fields = [(_unprefixed(name), begin, end) for name, begin, end in reading.fields]
        reading.is_point = not evaluation and reading.has("loss", "grad_norm")
        return reading if len(reading.fields) > 1 else None


def _unprefixed(name: str) -> str:
    """`eval_valid_loss` -> `valid_loss`."""
    return name.removeprefix("eval_") if name.startswith("eval_valid") else name
