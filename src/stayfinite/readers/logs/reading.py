"""A parsed line: where its numbers are and what each one means.

Spans are kept instead of values: ``shapes`` turns them into a regular expression for all lines of that shape, so a
format's parser sees only the first lines of each shape.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.logs.names import NO_METRICS, column_of, is_evaluation, name_rank, plain

BATCH = ".batch"  # batch number within its epoch
BATCHES = ".batches"  # batches per epoch
TOTAL = ".total"  # steps in the run
TOTAL_EPOCHS = ".epochs"
SKIPS_HERE = ".skips"  # steps skipped since the last line
NANS_HERE = ".nans"
"""Steps with a NaN loss or gradient since the last line, which frameworks leave out."""
SKIPS_EVER = ".skips_ever"  # steps skipped since the start
OTHER = ".other"  # a number that is ignored
RANK = ".rank"
_ETA = lazy_regex(r"\beta: (?:\d+ days?, )?[\d:]+")
_TOTALS = {"total_steps", "max_steps", "total_iters", "max_iters", "num_training_steps"}


SCORES = {"acc", "accuracy", "f1", "auc", "bleu", "dice", "iou", "miou", "acc@1", "acc@5", "top1", "top5"}
"""Bare names of scores: of the evaluation, where the line is one."""


@dataclass(slots=True)
class Reading:
    """One parsed line."""

    kind: str
    """The log format, such as `megatron`."""
    fields: list[tuple[str, int, int]] = field(default_factory=list)
    """``(name, start, end)``: a ``Point`` column, one of the dotted names above, or a metric name."""
    wild: list[tuple[int, int, str]] = field(default_factory=list)
    """``(start, end, pattern)``: text that may differ between lines of this shape."""
    constants: dict[str, float] = field(default_factory=dict)
    """Columns whose value is implied by the words, as in `Loss is nan`."""
    skipped: bool = False
    is_point: bool = True
    """False: only its metrics and its position in the run are used."""
    is_message: bool = False
    """Whether the line is also kept as a message."""
    moves: bool = False
    """Its step or batch is the position in the run, without a measurement: a progress bar."""
    loss_is_expected: bool = False
    """The framework omits the loss when it is NaN."""
    first_epoch: int = 1
    """The number of the first epoch in this format."""
    epoch_is_step: bool = False
    """One such line per epoch, unless other lines have steps."""
    has_shape: bool = True
    """False: the meaning depends on earlier lines, so each line is parsed again."""
    loss_is_sum: bool = False
    """The line has only terms of the loss; their sum is used unless the log has the total elsewhere."""
    is_summary: bool = False
    """An average over the whole run, at its end."""

    def take(self, pairs: list[tuple[str, int, int]], *, evaluation: bool = False) -> None:
        """Assign each written name to its column if known, else to a metric."""
        names = [plain(raw) for raw, _, _ in pairs]
        of_evaluation = evaluation or (any(map(is_evaluation, names)) and "loss" not in map(column_of, names))
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
            elif of_evaluation and name in SCORES:
                name = f"eval_{name}"
            elif name != best.get(column, name):
                column = ""
            if column and column not in taken:
                taken.add(column)
                self.fields.append((column, start, end))
            elif name and name not in taken and name not in NO_METRICS:
                taken.add(name)
                self.fields.append((name, start, end))

    def without_eta(self, pairs: list[tuple[str, int, int]], line: str, start: int) -> list[tuple[str, int, int]]:
        """Mark the ETA as variable text, since it is printed with and without days."""
        eta = _ETA.search(line, start)
        if eta is None:
            return pairs
        self.wild.append((*eta.span(), _ETA.pattern))
        return [pair for pair in pairs if not eta.start() <= pair[1] < eta.end()]

    def has(self, *names: str) -> bool:
        """Whether any of these fields is present."""
        return any(name in names for name, _, _ in self.fields)
