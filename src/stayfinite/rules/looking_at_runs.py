"""Reading the symptoms of a run from its series, as a person would read them from the log."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from stayfinite.core.series import Message, Point, RunSeries
from stayfinite.rules.symptoms import TINY_LOSS, Symptoms

WENT_ON = 10
"""So many measurements after a crash, and it was not the end."""

SMALL_LOSS = 5e-3
"""A loss that came down to this may be printed as 0 next."""

ABSURD_LOSS = 1e5
"""A loss of unscaled targets may begin there; one that stays there is no training. Its square is never one."""

ABSURD_PERPLEXITY = 1e12
"""exp of a loss of 28 and more: worse than guessing among all words of any language."""

_CRASH = re.compile(
    r"^(?:\[?rank\s?\d+\]?:?\s*)?(?:E\s+)?(?:[\w.]+\.)?\w*(?:Error|Exception)\b(?::|$| \()|"
    r"\bAssertion [`'\"]?.+ failed|"
    r"^Traceback \(most recent call last\)|CUDA error:|device-side assert|^Segmentation fault|core dumped|"
    r"exited with exit code [1-9]|\bSIG(?:SEGV|ABRT|KILL|BUS)\b",
    re.IGNORECASE,
)


_STATED = re.compile(
    r"\b(?:loss|cost|losstensor)\b[^.;\n]{0,30}\b(?:nan|infinite|inf or nan|nan or inf)\b[^.;\n]{0,20}"
    r"\b(?:stop|abort|terminat|exit|diverg|quit)|\bnan (?:in|for|encountered in) (?:the )?loss\b|invalid loss, term|"
    r"\bdiverged with loss ?= ?nan|\blosstensor is inf or nan|\bloss (?:became|is|was|turned) (?:infinite or )?nan\b|"
    r"\bnan loss (?:encountered|detected|during)|\bcost (?:is )?nan\b|\bweights? (?:are |become |turned? )?nan\b",
    re.IGNORECASE,
)
_DENIED = re.compile(r"\b(?:if|when|whether|no|not|never|without|unless)\b", re.IGNORECASE)
"""`stops if the loss is NaN` states nothing."""


def symptoms_of(runs: Sequence[RunSeries]) -> Symptoms:
    """The symptoms of the sickest of these series, with a crash of any of them."""
    crash = next((m for run in runs for m in run.messages if _CRASH.search(m.text) and not _went_on(run, m)), None)
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
    stated = next((m for m in run.messages if _STATED.search(m.text) and not _DENIED.search(m.text)), None)
    if stated is not None and first_bad is None:
        where.setdefault("summary", stated.where)
    bad_losses = (
        (stated is not None)
        + sum(not math.isfinite(loss) for loss in losses)
        + sum(not math.isfinite(value) for value, _ in summary)
    )
    # A model that has learnt all there is evaluates to next to nothing, too.
    small_evals = any(abs(value) <= SMALL_LOSS for value, _ in evals if math.isfinite(value))
    range_test = _range_test(lrs)
    expected_to_rise = range_test or _rewarded(run)
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
        zero_losses=0 if _earned(finite) or small_evals else _zeros([*finite, *told]),
        good_losses=sum(loss > TINY_LOSS for loss in [*finite, *told] if math.isfinite(loss)),
        range_test=range_test,
        zero_norms=sum(norm == 0 for norm in finite_norms),
        first_loss=finite[0] if finite else None,
        best_loss=min(finite) if finite else None,
        last_loss=finite[-1] if finite else None,
        largest_loss=max(finite) if finite else None,
        loss_growth=1.0 if expected_to_rise else _growth(before_losses),
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
        diverges=not expected_to_rise and _diverges(finite),
        absurd=_absurd(finite) or _absurd_perplexity(run),
        crash=crash,
        where=where,
        recognised=recognised,
    )


def _went_on(run: RunSeries, crash: Message) -> bool:
    """Whether measurements follow a crash: it was caught, or the run was taken up again."""
    last = max(crash.line, crash.last_line)
    return sum(point.line > last for point in run.points) >= WENT_ON


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


def _zeros(losses: Sequence[float]) -> int:
    return sum(abs(loss) <= TINY_LOSS for loss in losses if math.isfinite(loss))


def _earned(losses: Sequence[float]) -> bool:
    """Whether a loss of 0 is a small one that was printed with few digits: it had come down to there."""
    first = next((index for index, loss in enumerate(losses) if abs(loss) <= TINY_LOSS), None)
    return first is not None and first > 0 and 0 < losses[first - 1] <= SMALL_LOSS


def _range_test(lrs: Sequence[float]) -> bool:
    """Whether the rate was driven up on purpose to see where training breaks."""
    rising = all(later >= earlier for earlier, later in pairwise(lrs))
    return len(lrs) >= 10 and rising and lrs[0] > 0 and lrs[-1] >= 1e3 * lrs[0]


def _rewarded(run: RunSeries) -> bool:
    """Whether rewards are what is learnt from: a loss of values rises with them."""
    words = ("reward", "return", "epsilon", "score", "episode")
    return any(word in name for name in run.metrics for word in words)


def _absurd(losses: Sequence[float]) -> bool:
    if losses and min(losses) <= -(ABSURD_LOSS**2):
        return True
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
