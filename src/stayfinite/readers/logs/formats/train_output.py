"""Final output of transformers: averages over the whole run.

::

    TrainOutput(global_step=1276, training_loss=nan, metrics={'train_runtime': 340.4428, 'epoch': 1.0})
      train_loss               =        0.0
      train_runtime            = 0:02:59.80
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.names import plain
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import Reading

_CALL = re.compile(rf"\bTrainOutput\(global_step=(\d+),\s*training_loss=({NUMBER})")
_CELL = re.compile(rf"\s*((?:train|eval|predict|test|epoch|total)\w*)\s+=\s+({NUMBER})\s*$")


class TrainOutput(Format):
    """The `TrainOutput` repr and the table of metrics."""

    marks = ("trainoutput(", " = ")

    def read(self, line: str, start: int) -> Reading | None:
        call = _CALL.search(line, start)
        if call:
            fields = [("step", *call.span(1)), ("loss", *call.span(2))]
            return Reading("transformers", fields=fields, is_summary=True)
        cell = _CELL.match(line, start)
        if cell is None:
            return None
        name = plain(cell[1])
        if name in {"train_loss", "training_loss"}:
            return Reading("transformers", fields=[("loss", *cell.span(2))], is_summary=True)
        return Reading("transformers", fields=[(name, *cell.span(2))], is_point=False)
