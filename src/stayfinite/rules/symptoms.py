"""What can be seen in a run's numbers before any cause is named; rules cite these instead of searching the series."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from stayfinite.core.series import Message, Point, RunSeries

TINY_LOSS = 1e-7
"""A training loss at or below this is no loss that a model earned: it is 0.0, or was printed from nothing."""

HUGE_LOSS = 1e4
"""No usual loss is so large at any step of a training that works."""

ABSURD_LOSS = 1e5
"""A loss of unscaled targets may begin there; one that stays there is no training. Its square is never one."""

ABSURD_PERPLEXITY = 1e12
"""exp of a loss of 28 and more: worse than guessing among all words of any language."""

EARLY = 10
"""Points that count as the beginning of a log."""

_CRASH = re.compile(
    r"^(?:\[?rank\s?\d+\]?:?\s*)?(?:E\s+)?(?:[\w.]+\.)?\w*(?:Error|Exception)\b(?::|$)|\bAssertion [`'\"]?.+ failed|"
    r"^Traceback \(most recent call last\)|CUDA error:|device-side assert|^Segmentation fault|core dumped|"
    r"exited with exit code [1-9]|\bSIG(?:SEGV|ABRT|KILL|BUS)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Symptoms:
    """The numbers of one run, read as a person would read them. NaN and infinity are `bad`, absent is neither."""

    source: str = ""
    points: int = 0
    """Training points with a loss or a gradient norm."""
    first_bad: Point | None = None
    """The first point whose loss or gradient norm is not finite."""
    good_before: int = 0
    """Wholly finite points before it."""
    bad: int = 0
    """Points that are not finite."""
    good_after: int = 0
    """Wholly finite points after the first bad one."""
    bad_losses: int = 0
    """Losses that are NaN or infinite, those of a summary line at the end among them."""
    bad_norms: int = 0
    """Gradient norms that are NaN or infinite."""
    bad_evals: int = 0
    """Evaluation losses that are NaN or infinite."""
    zero_losses: int = 0
    """Losses that are exactly 0, or as good as."""
    good_losses: int = 0
    """Losses that are finite and more than 0."""
    zero_norms: int = 0
    """Gradient norms that are exactly 0."""
    first_loss: float | None = None
    """The first finite loss."""
    best_loss: float | None = None
    last_loss: float | None = None
    """The last finite loss."""
    largest_loss: float | None = None
    """The largest finite loss."""
    loss_growth: float = 1.0
    """The last finite losses before the first bad point (or the end), over the lowest before them; 1 when unknown."""
    norm_growth: float = 1.0
    """The same of gradient norms."""
    largest_norm: float | None = None
    typical_norm: float | None = None
    """The median of the finite gradient norms."""
    skipped: int = 0
    """Steps that a loss scaler left out."""
    skipped_last: bool = False
    """The log ends in skipped steps."""
    longest_skips: int = 0
    """Skipped steps in a row, at most."""
    first_scale: float | None = None
    last_scale: float | None = None
    lowest_scale: float | None = None
    lrs: int = 0
    """Points with a learning rate."""
    zero_lrs: int = 0
    """Learning rates that are exactly 0."""
    trailing_zero_lrs: int = 0
    first_lr: float | None = None
    largest_lr: float | None = None
    lr_at_bad: float | None = None
    """The learning rate at the first bad point."""
    flat: bool = False
    """Many losses and no movement beyond rounding."""
    diverges: bool = False
    """Finite to the end and far above where it had been."""
    absurd: bool = False
    """Losses, or perplexities, of a size that no task has, and they do not come down."""
    crash: Message | None = None
    """The first line of a crash."""
    where: dict[str, str] = field(default_factory=dict)
    """The place of `first_bad`, `first_zero`, `first_skip`, `last_skip`, `bad_eval`, `largest_loss`, `summary`,
    `zero_lr`, `start`: those that there are."""
    recognised: int = 0
    """Measurements of any kind in all logs."""

    @property
    def settles(self) -> bool:
        """Bad gradient norms at the beginning only, with finite losses: a loss scaler that looks for its scale."""
        return (
            self.bad > 0
            and self.bad_losses == 0
            and self.good_after >= max(1, self.bad)
            and self.bad <= EARLY
            and self.good_before + self.bad <= 2 * EARLY
        )

    @property
    def from_start(self) -> bool:
        """Nothing that was logged before the first bad point, or point of loss 0, was good."""
        return self.good_before == 0 and (self.bad > 0 or (self.zero_losses > 0 and self.good_losses == 0))

    @property
    def zero_loss(self) -> bool:
        """A loss of 0 that nobody earned: throughout, or from some point on to the end."""
        return self.zero_losses >= 1 and (
            self.good_losses == 0
            or (self.zero_losses >= 2 and self.last_loss is not None and self.last_loss <= TINY_LOSS)
        )

    @property
    def collapses(self) -> bool:
        """The loss scale fell to nothing, or step after step was skipped."""
        low = (
            self.lowest_scale is not None
            and self.lowest_scale <= 1.0
            and (self.first_scale is None or self.first_scale > 1.0 or self.skipped >= 2)
        )
        # Single skips at a scale near 1, with good steps between them, are how a scaler lives with a hard task.
        lowest = self.lowest_scale is not None and self.lowest_scale < 0.1 and self.skipped >= 2
        return self.skipped > 0 and ((low and self.longest_skips >= 3) or lowest or self.longest_skips >= 12)

    @property
    def explodes(self) -> bool:
        """Loss or gradient norm grew out of all proportion before it went bad, or to the end."""
        huge = self.largest_loss is not None and self.largest_loss >= HUGE_LOSS
        return self.loss_growth >= 4.0 or self.norm_growth >= 30.0 or huge

    @property
    def lr_zero(self) -> bool:
        """The learning rate is 0 beyond what a warmup's first step or a schedule's last one has."""
        if self.lrs == 0 or self.zero_lrs == 0:
            return False
        learns = (
            self.points >= 5
            and self.first_loss is not None
            and self.last_loss is not None
            and 0 < self.last_loss < 0.8 * self.first_loss
        )
        if learns:  # printed with four digits, 2e-5 is 0.0000
            return False
        if self.zero_lrs == self.lrs:
            return self.lrs >= 2 or self.bad > 0
        return self.trailing_zero_lrs >= 3

    @property
    def trouble(self) -> list[str]:
        """What is wrong with the numbers, in a word each."""
        found = {
            "the loss is not finite": self.bad_losses > 0,
            "the gradient norm is not finite": self.bad_norms > 0 and not self.settles,
            "the evaluation loss is not finite": self.bad_evals > 0,
            "the loss is 0": self.zero_loss,
            "the gradient is 0": self.zero_norms >= 2 and self.zero_norms * 2 >= self.points,
            "the loss scale collapses": self.collapses,
            "the loss explodes": self.absurd
            or (self.points > 0 and self.explodes and (self.bad > 0 or self.diverges or self.points < 3)),
            "the loss diverges": self.diverges,
            "the loss does not move": self.flat,
            "the learning rate is 0": self.lr_zero,
            "the run crashed": self.crash is not None,
        }
        return [word for word, holds in found.items() if holds]

    @property
    def story(self) -> list[str]:
        """The same, with the step at which it began where that is known."""
        first = self.first_bad
        if first is None or first.step is None:
            return self.trouble
        begun = f"from step {first.step:,.0f} on" if self.good_before else "from the first logged step on"
        dated = f" {begun}" + (f", after {self.good_before:,} good points" if self.good_before else "")
        dated += f", and good again {self.good_after:,} times" if self.good_after else ""
        words = self.trouble
        first_word = next((index for index, word in enumerate(words) if word.endswith("is not finite")), None)
        if first_word is not None:
            words[first_word] += dated
        return words

    @property
    def healthy(self) -> bool:
        """There are measurements, and nothing is wrong with them."""
        return self.recognised > 0 and not self.trouble


def symptoms_of(runs: Sequence[RunSeries]) -> Symptoms:
    """The symptoms of the sickest of these series, with a crash of any of them."""
    crash = next((message for run in runs for message in run.messages if _CRASH.search(message.text)), None)
    recognised = sum(run.points_seen + sum(len(track.values) for track in run.metrics.values()) for run in runs)
    each = [_symptoms(run, crash, recognised) for run in runs]
    return max(each, key=lambda one: (len(one.trouble), one.points), default=Symptoms(crash=crash))


def _symptoms(run: RunSeries, crash: Message | None, recognised: int) -> Symptoms:
    where: dict[str, str] = {}
    points = [point for point in run.points if point.loss is not None or point.grad_norm is not None]
    everything = list(run.points)
    first_bad = next((point for point in points if point.bad), None)
    bad_index = points.index(first_bad) if first_bad is not None else len(points)
    losses = [point.loss for point in points if point.loss is not None]
    finite = [loss for loss in losses if math.isfinite(loss)]
    norms = [point.grad_norm for point in points if point.grad_norm is not None]
    finite_norms = [norm for norm in norms if math.isfinite(norm)]
    lrs = [point.lr for point in everything if point.lr is not None and math.isfinite(point.lr)]
    skips = [point for point in everything if point.skipped]
    scales = [
        point.loss_scale for point in everything if point.loss_scale is not None and math.isfinite(point.loss_scale)
    ]
    summary = _summary_losses(run)
    evals = [
        (value, line)
        for name, track in run.metrics.items()
        if re.search(r"(?:eval|val|valid|dev|test)\w*[_/ ]?loss", name)
        for value, line in zip(track.values, track.lines, strict=True)
    ]
    bad_evals = [line for value, line in evals if not math.isfinite(value)]
    before = points[:bad_index]
    before_losses = [point.loss for point in before if point.loss is not None]
    before_norms = [point.grad_norm for point in before if point.grad_norm is not None]
    # The step that goes bad may still print a loss: the last finite value belongs to the climb.
    if first_bad is not None and first_bad.loss is not None and math.isfinite(first_bad.loss):
        before_losses.append(first_bad.loss)
    largest = max(points, key=lambda point: _finite_or(point.loss, -math.inf), default=None)

    if first_bad is not None:
        where["first_bad"] = run.where(first_bad.line)
    for name, found in (
        ("first_zero", next((p for p in points if p.loss is not None and abs(p.loss) <= TINY_LOSS), None)),
        ("first_skip", skips[0] if skips else None),
        ("last_skip", skips[-1] if skips else None),
        ("largest_loss", largest),
        ("zero_lr", next((p for p in everything if p.lr == 0), None)),
        ("start", points[0] if points else None),
    ):
        if found is not None:
            where[name] = run.where(found.line)
    if bad_evals:
        where["bad_eval"] = run.where(bad_evals[0])
    if summary:
        where["summary"] = run.where(summary[0][1])
    # A summary line is the only witness where nothing else was logged.
    told = [value for value, _ in summary] if not losses else []
    bad_losses = sum(not math.isfinite(loss) for loss in losses) + sum(not math.isfinite(value) for value, _ in summary)
    return Symptoms(
        source=run.source,
        points=len(points),
        first_bad=first_bad,
        good_before=bad_index if first_bad is not None else 0,
        bad=sum(point.bad for point in points),
        good_after=sum(not point.bad for point in points[bad_index:]),
        bad_losses=bad_losses,
        bad_norms=sum(not math.isfinite(norm) for norm in norms),
        bad_evals=len(bad_evals),
        zero_losses=sum(abs(loss) <= TINY_LOSS for loss in [*finite, *told] if math.isfinite(loss)),
        good_losses=sum(loss > TINY_LOSS for loss in [*finite, *told] if math.isfinite(loss)),
        zero_norms=sum(norm == 0 for norm in finite_norms),
        first_loss=finite[0] if finite else None,
        best_loss=min(finite) if finite else None,
        last_loss=finite[-1] if finite else None,
        largest_loss=max(finite) if finite else None,
        loss_growth=_growth(before_losses),
        norm_growth=_growth(before_norms),
        largest_norm=max(finite_norms) if finite_norms else None,
        typical_norm=median(finite_norms) if finite_norms else None,
        skipped=len(skips),
        skipped_last=bool(everything) and everything[-1].skipped,
        longest_skips=_longest_skips(everything),
        first_scale=scales[0] if scales else None,
        last_scale=scales[-1] if scales else None,
        lowest_scale=min(scales) if scales else None,
        lrs=len(lrs),
        zero_lrs=sum(lr == 0 for lr in lrs),
        trailing_zero_lrs=_trailing_zeros(lrs),
        first_lr=lrs[0] if lrs else None,
        largest_lr=max(lrs) if lrs else None,
        lr_at_bad=first_bad.lr if first_bad is not None else None,
        flat=_flat(finite),
        diverges=_diverges(finite),
        absurd=_absurd(finite) or _absurd_perplexity(run),
        crash=crash,
        where=where,
        recognised=recognised,
    )


def _finite_or(value: float | None, other: float) -> float:
    return value if value is not None and math.isfinite(value) else other


def _summary_losses(run: RunSeries) -> list[tuple[float, int]]:
    return [
        (value, line)
        for name in ("train_loss", "training_loss")
        if name in run.metrics
        for value, line in zip(run.metrics[name].values, run.metrics[name].lines, strict=True)
    ]


def _growth(values: Sequence[float]) -> float:
    """How far the last values lie above the lowest before them."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2 or min(finite) <= 0:
        return 1.0
    last = max(finite[-3:]) if len(finite) > 3 else finite[-1]
    return last / min(finite)


def _longest_skips(points: Sequence[Point]) -> int:
    longest = current = 0
    for point in points:
        # A position without numbers between two skips (a progress bar) does not interrupt them.
        if point.skipped:
            current += 1
        elif point.loss is not None or point.grad_norm is not None:
            current = 0
        longest = max(longest, current)
    return longest


def _trailing_zeros(values: Sequence[float]) -> int:
    count = 0
    for value in reversed(values):
        if value != 0:
            break
        count += 1
    return count


def _flat(losses: Sequence[float]) -> bool:
    if len(losses) < 20 or max(losses) <= TINY_LOSS:
        return False
    middle = median(losses)
    return middle > 0 and (max(losses) - min(losses)) / middle < 2e-3


def _absurd(losses: Sequence[float]) -> bool:
    if not losses or max(losses) < ABSURD_LOSS:
        return False
    return max(losses) >= ABSURD_LOSS**2 or median(losses[-3:]) >= max(ABSURD_LOSS, losses[0] / 2)


def _absurd_perplexity(run: RunSeries) -> bool:
    track = run.metrics.get("ppl") or run.metrics.get("perplexity")
    values = [] if track is None else [value for value in track.values[-3:] if math.isfinite(value)]
    return bool(values) and min(values) >= ABSURD_PERPLEXITY


def _diverges(losses: Sequence[float]) -> bool:
    if len(losses) < 8 or min(losses) <= 0:
        return False
    window = max(3, len(losses) // 10)
    ends = median(losses[-window:])
    starts = median(losses[:window])
    best = min(median(losses[index : index + window]) for index in range(0, len(losses) - window + 1, window))
    return ends > 3.0 * best and ends > 1.5 * starts
