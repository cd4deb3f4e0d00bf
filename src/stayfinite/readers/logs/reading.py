"""What one line says: the places of its numbers and what each of them is.

Places, not values: from them a regular expression for all lines of the same shape is made (``shapes``), so that a
format's own parser sees only the first lines of each shape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from stayfinite.readers.logs.names import NO_METRICS, column_of, name_rank, plain

BATCH = ".batch"
"""The number of a batch within its epoch."""
BATCHES = ".batches"
"""How many an epoch has."""
TOTAL = ".total"
"""How many steps the run has."""
SKIPS_HERE = ".skips"
"""Steps skipped since the last line."""
NANS_HERE = ".nans"
"""Steps whose loss or gradient was not a number since the last line; frameworks leave them out."""
SKIPS_EVER = ".skips_ever"
"""Steps skipped since the start."""
OTHER = ".other"
"""A number that nobody wants to know."""
RANK = ".rank"
_ETA = re.compile(r"\beta: (?:\d+ days?, )?[\d:]+")
_TOTALS = {"total_steps", "max_steps", "total_iters", "max_iters", "num_training_steps"}


@dataclass(slots=True)
class Reading:
    """One line, understood."""

    kind: str
    """Of the log: `megatron`, ..."""
    fields: list[tuple[str, int, int]] = field(default_factory=list)
    """``(name, start, end)``: a column of a ``Point``, one of the dotted names above, or a metric's name."""
    wild: list[tuple[int, int, str]] = field(default_factory=list)
    """``(start, end, pattern)``: text that may differ in lines of this shape."""
    constants: dict[str, float] = field(default_factory=dict)
    """Columns whose value the words of the line give: `Loss is nan`."""
    skipped: bool = False
    is_point: bool = True
    """Otherwise only its metrics, and where the run stands, are of use."""
    is_message: bool = False
    """Also kept as a message."""
    moves: bool = False
    """Its step or batch says where the run stands, though there is no measurement beside it: a progress bar."""
    loss_is_expected: bool = False
    """The framework leaves the loss out when it is not a number."""
    first_epoch: int = 1
    """How the format counts epochs."""
    epoch_is_step: bool = False
    """There is one such line an epoch, unless steps are met elsewhere."""
    has_shape: bool = True
    """Otherwise it depends on lines before, and each of its like is parsed anew."""
    loss_is_sum: bool = False
    """The line gives only parts of the loss; their sum stands for it, unless the log says the whole elsewhere."""
    is_summary: bool = False
    """An average over the whole run, at its end."""

    def take(self, pairs: list[tuple[str, int, int]], *, evaluation: bool = False) -> None:
        """Give names as they are written their place: a column where they are known, else a metric."""
        taken = {name for name, _, _ in self.fields}
        best: dict[str, str] = {}
        for raw, _, _ in pairs:
            name = plain(raw)
            column = column_of(name)
            if column and (column not in best or name_rank(name) < name_rank(best[column])):
                best[column] = name
        for raw, start, end in pairs:
            name = plain(raw)
            column = TOTAL if name in _TOTALS else column_of(name)
            if evaluation and column in {"loss", "grad_norm", "lr", "throughput"}:
                column, name = "", "eval_loss" if name == best.get("loss") else f"eval_{name}"
            elif name != best.get(column, name):
                column = ""
            if column and column not in taken:
                taken.add(column)
                self.fields.append((column, start, end))
            elif name and name not in taken and name not in NO_METRICS:
                taken.add(name)
                self.fields.append((name, start, end))

    def without_eta(self, pairs: list[tuple[str, int, int]], line: str, start: int) -> list[tuple[str, int, int]]:
        """Leave the time to go open, which is written now with and now without days."""
        eta = _ETA.search(line, start)
        if eta is None:
            return pairs
        self.wild.append((*eta.span(), _ETA.pattern))
        return [pair for pair in pairs if not eta.start() <= pair[1] < eta.end()]

    def has(self, *names: str) -> bool:
        """Whether one of these is among the fields."""
        return any(name in names for name, _, _ in self.fields)
