"""Steps that a guard refused never touched the weights, and are no symptom of the run.

They are known from its steps.jsonl, and in a trainer's own log from what the guard adds to its rows. Such a step is
told as what it is, and its autopsy says what was the matter with it. Refused steps at the end, from which the run never
came back, are how it ended and stay among its numbers. The search for an fp16 scale is the scaler's own business: the
rules hear of the skipped steps and of the scale, and its gradient norms are no symptom either.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from stayfinite.core.decision import REFUSING, Action, Code
from stayfinite.core.finding import Finding
from stayfinite.core.series import RunSeries
from stayfinite.diagnosis.autopsies import record_in
from stayfinite.diagnosis.course import RUNGS
from stayfinite.readers.runs.directory import STEPS, Step, step_of
from stayfinite.rules.registry import rule_of

STUCK = 3
"""So many refused steps in a row are no single bad batch any more."""

REFUSED_LOSS, VETOES = "stayfinite/refused_loss", "stayfinite/vetoes"
"""What the guard adds to a row of a trainer's log: the first only where a step was refused since the row before."""

UNEXPLAINED = 0.3
"""How sure it is that a value which was not finite is all there is to say."""
WHY = "Guard(..., forward=...) explains the next such step; `stayfinite replay` explains a captured one"
WHY_IN_ROWS = "see the guard's run directory: stayfinite diagnose OUTPUT_DIR/stayfinite"

_TAKEN = (b'"decision": "accept"', b'"decision": "clip"', b'"decision": "bound"')
"""As the guard writes them: nearly every line, which need not be parsed then."""


@dataclass(slots=True)
class Refusals:
    """What a guard refused of one run."""

    steps: int = 0
    """All steps of the run; 0 where they were not counted."""
    codes: Counter[str] = field(default_factory=Counter)
    """Why steps were refused, and how often. Searching for an fp16 scale is no refusal here."""
    lines: set[int] = field(default_factory=set)
    """Of steps.jsonl, counted from 1: the refused steps that the run came back from."""
    losses: dict[int, float | None] = field(default_factory=dict)
    """The losses of the same steps, by step; NaN where only the gradient norm was not finite."""
    searches: set[int] = field(default_factory=set)
    """Lines of steps in which a scaler looked for its scale, and found it."""
    first: int | None = None
    """The first refused step."""
    not_finite: bool = False
    """Whether a refused loss or gradient norm was NaN or infinite."""
    stopped: int | None = None
    """The step at which the guard gave up."""
    lasting: bool = False
    """Several in a row, or a rung was taken: more than single bad batches."""
    in_rows: bool = False
    """The lines are rows of a trainer's log: their loss is that of the steps that were taken, NaN where none was."""

    def come_back(self, steps: dict[int, Step]) -> None:
        """The run went on after these refused steps, by line; they are taken out of ``steps``."""
        self.lines.update(steps)
        for step in steps.values():
            if step.step is not None:
                self.losses[step.step] = math.nan if _bad(step.grad_norm) else step.loss
        steps.clear()

    def in_words(self) -> str:
        """`1 of 60 steps was refused and did not touch the weights (loss-not-finite, step 41)`."""
        count = self.codes.total()
        often = [(code, n) for code, n in self.codes.most_common(3) if code]
        why = ", ".join(code if len(self.codes) == 1 else f"{n:,} {code}" for code, n in often)
        at = (
            "" if self.first is None else f"{', ' if why else ''}{'' if count == 1 else 'first at '}step {self.first:,}"
        )
        place = f" ({why}{at})" if why or at else ""
        verb = "was refused and did" if count == 1 else "were refused and did"
        whole = f" of {self.steps:,}" if self.steps else ""
        plural = "" if (self.steps or count) == 1 else "s"
        end = "" if self.stopped is None else f"; the guard stopped the run at step {self.stopped:,}"
        return f"{count:,}{whole} step{plural} {verb} not touch the weights{place}{end}"


def refusals_in(path: Path) -> Refusals | None:
    """What the guard refused, by its steps.jsonl; None where every step was taken, or it is no such file.

    Raises:
        OSError: it cannot be read.
    """
    if path.name != STEPS:
        return None
    found, tail, searched = Refusals(), dict[int, Step](), set[int]()
    in_a_row = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            step = None if any(taken in line for taken in _TAKEN) else _step_in(line)
            if step is not None and not step.decision:
                continue
            found.steps += 1
            if step is None or step.decision not in REFUSING:
                found.come_back(tail)
                found.searches |= searched
                found.stopped, in_a_row = None, 0
                searched.clear()
            elif step.code == Code.SCALE_SEARCH:
                searched.add(number)
            else:
                tail[number] = step
                in_a_row += 1
                found.codes[step.code] += 1
                found.not_finite = found.not_finite or _bad(step.loss) or _bad(step.grad_norm)
                found.first = step.step if found.first is None else found.first
                found.stopped = step.step if step.decision == Action.STOP else None
                found.lasting = found.lasting or in_a_row >= STUCK or step.decision in RUNGS
    if in_a_row < STUCK and found.stopped is None:
        found.come_back(tail)
    return found if found.codes or found.searches else None


def refusals_in_rows(run: RunSeries) -> Refusals | None:
    """What the guard refused, by the rows of a trainer's log; None where they tell of nothing."""
    told, vetoes = run.metrics.get(REFUSED_LOSS), run.metrics.get(VETOES)
    if told is None or not told.lines:
        return None
    rows = set(told.lines)
    found = Refusals(in_rows=True)
    most = max((value for value in vetoes.values if math.isfinite(value)), default=0.0) if vetoes else 0.0
    found.not_finite = any(not math.isfinite(value) for value in told.values)
    found.codes[Code.LOSS_NOT_FINITE if found.not_finite else ""] = max(len(rows), int(most))
    in_a_row: list[int] = []
    for point in run.points:
        if point.line in rows:
            in_a_row.append(point.line)
            found.lasting = found.lasting or len(in_a_row) >= STUCK
        elif point.loss is not None:
            found.lines.update(in_a_row)
            in_a_row.clear()
    if len(in_a_row) < STUCK:
        found.lines.update(in_a_row)
    return found


def unexplained(source: str, refusals: Refusals) -> Finding | None:
    """That values which were not finite were refused and nobody knows why: no harm was done, but something is wrong."""
    if not refusals.not_finite:
        return None
    where = f"{source}:{min(refusals.lines)}" if refusals.lines else source
    why = WHY_IN_ROWS if refusals.in_rows else WHY
    return rule_of("nan-loss").finding(UNEXPLAINED, where, [f"{where}: {refusals.in_words()}"], fix=why)


def as_judged(run: RunSeries, refusals: Refusals, *, whole: bool = False) -> RunSeries:
    """The same run, less the refused steps that it came back from, unless the ``whole`` of it is to be judged."""
    left = RunSeries(run.source, kind=run.kind, rank=run.rank)
    left.metrics = {name: track for name, track in run.metrics.items() if name not in (REFUSED_LOSS, VETOES)}
    left.messages = run.messages
    left.lines, left.total_steps = run.lines, run.total_steps
    for point in run.points:
        if refusals.in_rows and not whole and point.line in refusals.lines:
            if point.loss is not None and math.isfinite(point.loss):
                left.add(point.line, point.step, point.loss, lr=point.lr, loss_scale=point.loss_scale)
        elif whole or point.line not in refusals.lines:
            # Without a loss scale, nobody has skipped a step on its account.
            skipped = point.skipped and (refusals.in_rows or point.loss_scale is not None)
            norm = None if point.line in refusals.searches else point.grad_norm
            left.add(
                point.line, point.step, point.loss, norm, point.lr, point.loss_scale, point.epoch, point.throughput,
                skipped,
            )  # fmt: skip
    return left


def _bad(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


def _step_in(line: bytes) -> Step:
    record = record_in(line)
    return step_of(record if "version" in record and "step" in record else {})
