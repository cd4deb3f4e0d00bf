"""The state of one rank while its log is read: its series and its position in the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from stayfinite.core.log_names import is_loss_part
from stayfinite.core.series import POINT_COLUMNS, RunSeries
from stayfinite.readers.logs.messages import Messages, Traceback
from stayfinite.readers.logs.pairs import number
from stayfinite.readers.logs.reading import (
    BATCH,
    BATCHES,
    NANS_HERE,
    RANK,
    SKIPS_EVER,
    SKIPS_HERE,
    TOTAL,
    TOTAL_EPOCHS,
    Reading,
)
from stayfinite.readers.logs.repeated import RepeatedLines

Values = list[float | None]
_LAST_COUNTS = frozenset({TOTAL, TOTAL_EPOCHS})


class RankState:
    """One rank's series under construction."""

    def __init__(self, source: str) -> None:
        self.series = RunSeries(source)
        self.messages = Messages()
        self.repeated = RepeatedLines()
        self.traceback = Traceback()
        self._kinds: Counter[str] = Counter()
        self._step: float | None = None
        self._epoch: float | None = None
        self._epochs_from_zero = False
        self._bar: float | None = None
        self._bar_done = False
        self._loss_seen = False
        self._skips = 0.0
        self._counted_at: float | None = None
        self._unnamed: set[int] = set()
        self._named = 0

    @property
    def kind(self) -> str:
        """The most frequent format, preferring lines with a loss; ties go to the one seen first."""
        return max((kind for kind in self._kinds if kind), key=self._kinds.__getitem__, default="")

    @property
    def told(self) -> RunSeries:
        """The series, without numbers that have no name where losses have one."""
        if not self._unnamed or self._named < len(self._unnamed):
            return self.series
        return self.series.with_points(each for each in self.series.points if each.line not in self._unnamed)

    def take(
        self, reading: Reading, names: Sequence[str], lines: Sequence[int], groups: Sequence[Sequence[str]]
    ) -> None:
        """Add lines of one shape; ``groups`` holds their numbers as text, by name."""
        columns: dict[str, Values] = {}
        for name, texts in zip(names, zip(*groups, strict=True), strict=True):
            if name in _LAST_COUNTS:
                columns[name] = _floats(texts[-1:])
            elif name != RANK:
                columns[name] = _floats(texts)
        for name, value in reading.constants.items():
            columns[name] = [value] * len(lines)
        if reading.loss_is_sum and not self._loss_seen:
            parts = [values for name, values in columns.items() if is_loss_part(name)]
            columns["loss"] = [sum(value or 0.0 for value in values) for values in zip(*parts, strict=True)]
        epochs = columns.get("epoch")
        if epochs is not None:
            self._epoch = epochs[-1]
            self._epochs_from_zero = self._epochs_from_zero or 0.0 in epochs
        steps = self._steps(reading, columns, len(lines))
        if reading.moves:
            self._move(columns, steps)
            return
        self._kinds[reading.kind] += len(lines) * (10 if "loss" in columns else 1)
        if TOTAL in columns:
            self.series.total_steps = columns[TOTAL][-1]
        if TOTAL_EPOCHS in columns:
            self.series.total_epochs = columns[TOTAL_EPOCHS][-1]
        if reading.is_summary:
            self._summarise(columns, lines)
        elif reading.is_point and not (reading.loss_is_sum and "loss" not in columns):
            self._points(reading, columns, steps, lines)
        for name, values in columns.items():
            if name not in POINT_COLUMNS and name[0] != ".":
                self.series.track(name).extend(steps, values, lines)

    def _steps(self, reading: Reading, columns: dict[str, Values], count: int) -> Values:
        steps = columns.get("step")
        if steps is None and BATCH in columns:
            first = 0.0 if self._epochs_from_zero else float(reading.first_epoch)
            epochs = columns.get("epoch") or [first if self._epoch is None else self._epoch] * count
            batches = columns.get(BATCHES) or [0.0] * count
            steps = [
                None if batch is None else batch + max((epoch or 0.0) - first, 0.0) * (per or 0.0)
                for batch, per, epoch in zip(columns[BATCH], batches, epochs, strict=True)
            ]
        if steps is None:
            if self._step is None and reading.epoch_is_step and "epoch" in columns:
                return columns["epoch"]
            return [self._step] * count
        last = steps[-1]
        if reading.is_point and last is not None and math.isfinite(last):
            self._step = last
        return steps

    def _move(self, columns: dict[str, Values], steps: Values) -> None:
        """Update the position from a progress bar: the longest unfinished one, since evaluations have bars too."""
        totals = columns.get(TOTAL) or columns.get(BATCHES)
        step, total = steps[-1], totals[-1] if totals else None
        if step is None or total is None or not (math.isfinite(step) and math.isfinite(total)):
            return
        if self._bar is None or self._bar_done or total >= self._bar:
            self._step, self._bar, self._bar_done = step, total, step >= total
            if TOTAL in columns:
                self.series.total_steps = total

    def _points(self, reading: Reading, columns: dict[str, Values], steps: Values, lines: Sequence[int]) -> None:
        columns = {**columns, "step": steps}
        if reading.kind == "keras" and "epoch" not in columns and self._epoch is not None:
            columns["epoch"] = [self._epoch] * len(lines)  # its heading is a line of its own
        if "loss" in columns and reading.is_named:
            self._named += len(lines)
        elif "loss" in columns:
            self._unnamed.update(lines)
        if "loss" in columns:
            self._loss_seen = self._loss_seen or not reading.loss_is_sum
        elif reading.loss_is_expected and (self._loss_seen or _has_no_loss(columns)):
            columns["loss"] = [math.nan] * len(lines)
        skipped = [True] * len(lines) if reading.skipped else None
        for name in (SKIPS_HERE, NANS_HERE):
            if any(columns.get(name, ())):
                counts = [value is not None and value > 0 for value in columns[name]]
                if name == NANS_HERE and (scales := columns.get("loss_scale")):
                    # A scale of 1 means bf16 or fp32: no scaler skips a step with a NaN.
                    counts = [one and scale != 1.0 for one, scale in zip(counts, scales, strict=True)]
                skipped = [one or other for one, other in zip(counts, skipped or counts, strict=True)]
        if SKIPS_HERE in columns:
            self._count(columns[SKIPS_HERE], steps)
        if SKIPS_EVER in columns:
            ever = [value or 0.0 for value in columns[SKIPS_EVER]]
            self._count([now - before for before, now in pairwise([self._skips, *ever])], steps)
            skipped = [self._rises(value) for value in columns[SKIPS_EVER]]
        self.series.extend(lines, columns, skipped)

    def _count(self, skips: Sequence[float | None], steps: Values) -> None:
        """Add reported skipped steps. The first line of a log covers an unknown number of steps."""
        for skipped, step in zip(skips, steps, strict=True):
            if step is None or skipped is None:
                continue
            if self._counted_at is not None and step > self._counted_at:
                self.series.counted += 1
                self.series.counts_intervals = self.series.counts_intervals or step - self._counted_at > 1
                self.series.counted_none += skipped >= step - self._counted_at
                if skipped >= step - self._counted_at:
                    self.series.skipped_at_once = max(self.series.skipped_at_once, int(skipped))
            self._counted_at = step

    def _rises(self, count: float | None) -> bool:
        if count is None or not math.isfinite(count):
            return False
        rises = count > self._skips
        self._skips = count
        return rises

    def _summarise(self, columns: dict[str, Values], lines: Sequence[int]) -> None:
        """Use the average over the run only if the log has no other loss."""
        losses = columns.pop("loss", None)
        step = columns.get("step", [self._step])[-1]
        if not losses or losses[-1] is None:
            return
        if not self._loss_seen:
            self.series.add(lines[-1], step, losses[-1], epoch=self._epoch)
        self.series.measure("train_loss", losses[-1], step=step, line=lines[-1])


def _has_no_loss(columns: dict[str, Values]) -> bool:
    """Whether lines that never had a loss left it out: behind the first step, no step was skipped."""
    first = columns["step"][0]
    return "loss_scale" in columns and not any(columns.get(SKIPS_HERE, ())) and first is not None and first > 1


def _floats(texts: Sequence[str]) -> Values:
    if texts[0] == texts[-1] and texts.count(texts[0]) == len(texts):
        return [_float(texts[0])] * len(texts)
    try:
        return list(map(float, texts))
    except ValueError:
        return [_float(text) for text in texts]


def _float(text: str) -> float | None:
    try:
        return number(text)
    except ValueError:
        return None
