"""Shapes of number sequences: growth, stagnation, divergence, absurd magnitudes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from stayfinite.core.series import Point
from stayfinite.rules.symptoms import TINY_LOSS

SMALL_LOSS = 5e-3
"""A loss that reached this may be printed as 0 next."""

ABSURD_LOSS = 1e5
"""Unscaled targets may start here; a run that stays here is not training. Its square is never reached."""

ALL_FALL = 30
"""So many losses do not fall one after the other by accident."""
FAR_BELOW = 20.0
"""Times the size of the first loss, or 1, that such losses end below 0."""
STEADY = 0.9
"""Share of its first speed that such a fall keeps: a loss that learns slows down."""

THROWN_AWAY = 1e3
"""No hard batch keeps a loss this many times above its first value."""

JUMP = 4.0
"""If all of a few losses are this many times above the first, the first updates destroyed the weights."""

JUMP_OF_ONE = 5.5
"""The same for a single later loss, which may be a hard batch."""

SWING = 3.0
"""Ratio of a loss to the previous one."""

SWINGS = 3
"""So many of them are no single hard batches."""

OFTEN = 0.03
"""The share of such steps among many: batches of one image, or of mixed ones, are hard now and then."""

CHANCE = {2: math.log(2), 3: math.log(3), 4: math.log(4), 5: math.log(5), 10: math.log(10), 20: math.log(20),
          100: math.log(100), 1000: math.log(1000)}  # fmt: skip
"""The loss of guessing, by usual numbers of classes."""

STANDS_AT_CHANCE = 4
"""Digits in which two losses are the logarithm of a number only where that is chance level."""

MANY = (*(2**power for power in range(4, 17)), 30522, 32000, 50257, 128256, 151936)
"""Rows of a batch that are told apart, and words: fewer steps between their losses, so a loss has to be nearer."""

SETTLED, LEAP = 4, 50.0
"""Values of a distance before it leaps, and by how much."""
DOUBLINGS = 6
LARGE, ORDERS = 1e4, 1e3
"""What a number that runs away reaches, by itself and over its usual size."""
MANY_STEPS = 500
"""After so many a loss that falls has fallen in three digits."""

FROZEN, MANY_DIGITS = 4, 6
"""Losses in a row, and their digits, that are equal only where nothing moves."""
LEAST_FIRST = 0.1
"""A smaller first loss may have no targets yet, as in a value network, and says nothing."""


def trainings(points: Sequence[Point]) -> list[Sequence[Point]]:
    """One part for each training: another begins where the count returns to where the log began.

    A notebook trains several models, whose losses have nothing to do with each other.
    """
    counts = [point.step if point.epoch is None else point.epoch for point in points]
    first = counts[0] if counts else None
    if first is None:
        return [points]
    starts = [
        at for at, (before, now) in enumerate(pairwise(counts), start=1)
        if before is not None and now is not None and now <= first < before
    ]  # fmt: skip
    return [points[start:end] for start, end in pairwise([0, *starts, len(points)])]


def finite_of(values: Sequence[float]) -> list[float]:
    """Those that are finite."""
    return [value for value in values if math.isfinite(value)]


def growth(values: Sequence[float]) -> float:
    """Ratio of the last values to the lowest before them; never NaN."""
    finite = finite_of(values)
    if len(finite) < 2 or min(finite) <= 0:
        return 1.0
    if len(finite) <= 3:
        return finite[-1] / min(finite)
    # An easy batch at the end is no reason to look away from a climb, nor a hard one that is over a reason to see one.
    end = max(range(len(finite) - 3, len(finite)), key=finite.__getitem__)
    climb, last = finite[end] / min(finite[:end]), finite[-1] / min(finite)
    return climb if last * last >= climb else last


def trailing_zeros(values: Sequence[float]) -> int:
    """Number of trailing zeros."""
    count = 0
    for value in reversed(values):
        if value != 0:
            break
        count += 1
    return count


def is_flat(losses: Sequence[float]) -> bool:
    """Whether many losses change only by rounding, or fewer not in the last of three or more digits."""
    told = losses and (losses[0] != round(losses[0], 2) or digits(losses[0]) >= 4)
    if len(losses) >= 8 and len(set(losses)) == 1 and losses[0] > TINY_LOSS and told:
        return True
    end = losses[-FROZEN:]
    if len(end) == FROZEN and len(set(end)) == 1 and end[0] > LEAST_FIRST and digits(end[0]) >= MANY_DIGITS:
        return True  # whatever came before: no two batches have the same loss to so many digits
    if len(losses) < 20 or max(losses) <= TINY_LOSS:
        return False
    middle = median(losses)
    return middle > 0 and (max(losses) - min(losses)) / middle < 2e-3


def at_chance(losses: Sequence[float], *, by_epochs: bool = False, steps: float = 0.0) -> int | None:
    """The number of classes if the loss is at chance from first to last, over so many steps; else None."""
    few = len(losses) == 3 and not by_epochs
    if len(losses) < 3 or (few and steps < MANY_STEPS):
        return None
    near = 3e-4 if few else 3e-3 if len(losses) < 8 else 6e-3
    for classes, guess in CHANCE.items():
        if all(abs(loss - guess) <= near * guess for loss in losses):
            return classes
    if len(losses) < 8:
        return None
    return next((many for many in MANY if all(abs(loss / math.log(many) - 1) <= 1e-3 for loss in losses)), None)


def stands_still_by_epochs(losses: Sequence[float]) -> bool:
    """Whether five or more epoch losses stay within half a percent."""
    return len(losses) >= 5 and min(losses) > LEAST_FIRST and max(losses) - min(losses) <= 5e-3 * median(losses)


def falls_to_nothing(losses: Sequence[float]) -> bool:
    """Whether the loss drops to exactly 0 from far above in one step, which learning cannot do."""
    return len(losses) >= 2 and losses[-1] == 0 and losses[-2] >= LEAST_FIRST


AVERAGED, BEYOND_NOISE = 20, 3.0
"""Losses that make an average, and how many standard errors two averages differ by where noise does not explain it."""


def swings(losses: Sequence[float]) -> bool:
    """Whether losses above 1 repeatedly jump back up to earlier levels.

    Losses of single batches differ by a factor of 2 or 3, small ones by more.
    """
    if len(losses) < 8 or min(losses) < LEAST_FIRST:
        return False
    thrown = sum(later >= SWING * earlier and later >= 2.0 for earlier, later in pairwise(losses))
    if 2 * sum(earlier >= SWING * later for earlier, later in pairwise(losses)) < thrown:
        return False  # it only rises
    third = len(losses) // 3
    learns = median(losses[-third:]) <= 0.6 * median(losses[:third])
    # What learns also reaches new lows.
    learns = learns and (thrown < 2 * SWINGS or min(losses[-third:]) < min(losses[:-third]))
    learns = learns or falls_beyond_noise(losses[:third], losses[-third:])
    return (
        thrown >= max(SWINGS, OFTEN * len(losses)) and not learns and max(losses[-third:]) >= 0.25 * max(losses[:third])
    )


def falls_beyond_noise(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the later losses, all above 0, are lower on average, by more than noisy batches explain."""
    if len(before) < AVERAGED:
        return False
    logs = [[math.log(loss) for loss in losses] for losses in (before, after)]  # one hard batch does not decide
    noise = math.hypot(*(_spread(losses) / math.sqrt(len(losses)) for losses in logs))
    return fmean(logs[0]) - fmean(logs[1]) >= BEYOND_NOISE * noise


def _spread(losses: Sequence[float]) -> float:
    """The standard deviation; the library's own is exact, and slow."""
    mean = fmean(losses)
    return math.hypot(*(loss - mean for loss in losses)) / math.sqrt(len(losses))


def digits(value: float) -> int:
    """Visible digits of a printed number."""
    return len(f"{value:.12g}".partition("e")[0].replace(".", "").lstrip("-0"))


def zeros_in(losses: Sequence[float]) -> int:
    """Number of losses that are 0 or nearly 0. A loss that takes both signs passes through 0."""
    if any(loss < -TINY_LOSS for loss in losses) and any(loss > TINY_LOSS for loss in losses):
        return 0
    return sum(abs(loss) <= TINY_LOSS for loss in losses if math.isfinite(loss))


def zero_was_earned(losses: Sequence[float]) -> bool:
    """Whether a loss of 0 is a rounded small one: it had fallen close to 0."""
    first = next((index for index, loss in enumerate(losses) if abs(loss) <= TINY_LOSS), None)
    return first is not None and first > 0 and 0 < losses[first - 1] <= SMALL_LOSS


def is_range_test(rates: Sequence[float]) -> bool:
    """Whether the rate was raised on purpose to find where training breaks."""
    if len(rates) < 5 or rates[0] <= 0 or any(later < earlier for earlier, later in pairwise(rates)):
        return False
    gains = [math.log(later / earlier) for earlier, later in pairwise(rates)]
    by_a_factor = gains[-1] >= 0.8 * median(gains) and rates[-1] >= 30 * rates[0]  # a warm-up adds, and slows down so
    return by_a_factor or (len(rates) >= 10 and rates[-1] >= 1e3 * rates[0])


def sinks_straight(losses: Sequence[float]) -> bool:
    """Whether losses fall far below 0 and no slower at the end: nothing bounds them, as a likelihood's noise would."""
    if len(losses) < ALL_FALL or losses[-1] > -FAR_BELOW * max(1.0, abs(losses[0])):
        return False
    falls = [earlier - later for earlier, later in pairwise(losses)]
    third = len(falls) // 3
    return min(falls) > 0 and sum(falls[-third:]) >= STEADY * sum(falls[:third])


def is_absurd(losses: Sequence[float]) -> bool:
    """Whether losses are absurdly large and do not fall."""
    if losses and min(losses) <= -(ABSURD_LOSS**2):
        return True
    if len(losses) >= 4 and losses[-1] <= -THROWN_AWAY and losses[-1] <= -THROWN_AWAY * abs(losses[0]):
        return all(later < earlier for earlier, later in pairwise(losses))  # unbounded below
    if sinks_straight(losses):
        return True
    if len(losses) < 2 or max(losses) < ABSURD_LOSS:
        return False  # a single one may be the sum over all pixels of a batch
    if is_lone_spike(losses):
        return False
    if len(losses) < 8 and max(losses) < min(2 * losses[0], ABSURD_LOSS**2):
        return False  # it started there, as a sum or a square does, and had no time to fall
    if losses.index(max(losses)) <= len(losses) // 10 and median(losses[-3:]) <= losses[0] / ORDERS:
        return False  # it started there and falls by orders of magnitude: a residual in units of its own
    return max(losses) >= ABSURD_LOSS**2 or median(losses[-3:]) >= max(ABSURD_LOSS, losses[0] / 2)


def is_lone_spike(losses: Sequence[float]) -> bool:
    """Whether one of many losses is of another magnitude than all others, before it and after it."""
    if len(losses) <= 2 * SETTLED:
        return False
    at = max(range(len(losses)), key=losses.__getitem__)
    others = [*losses[:at], *losses[at + 1 :]]
    return SETTLED <= at < len(losses) - SETTLED and losses[at] >= ORDERS * max(others) > 0


def _lost_at_once(losses: Sequence[float], ends: float) -> bool:
    """Whether all but the first loss are of another magnitude: the first update destroyed the weights.

    Saturated outputs then give a loss of exactly 0 at times.
    """
    first = losses[0]
    if min(losses) < 0 or first < LEAST_FIRST:
        return False
    return median(losses[1:]) >= THROWN_AWAY * first and ends >= THROWN_AWAY / 10 * first


def jumps(losses: Sequence[float]) -> bool:
    """Whether a few losses are all far above the first. A printed running sum grows evenly instead."""
    if not 2 <= len(losses) < 8 or losses[0] < LEAST_FIRST:
        return False
    if min(losses[1:]) < (JUMP_OF_ONE if len(losses) == 2 else JUMP) * losses[0]:
        return False
    gains = [later - earlier for earlier, later in pairwise([0.0, *losses])]
    return len(losses) == 2 or not max(gains) <= 2 * min(gains)


FEW, WINDOWS = 8, 7
"""Fewer losses are compared one by one, many by medians of so many windows."""
RISE, OVER_FIRST = 2.0, 1.6
"""Ratios of the last losses to the lowest before them and to the first."""
STRAIGHT = 0.6
"""The part of all ups and downs since the lowest loss that leads up."""


def climbs(losses: Sequence[float]) -> bool:
    """Whether losses rise from their lowest to far above their first, and not by the ups and downs of batches."""
    if FEW <= len(losses) < 2 * FEW:
        return False
    if len(losses) >= FEW:
        size = len(losses) / WINDOWS
        losses = [median(losses[int(at * size) : int((at + 1) * size)]) for at in range(WINDOWS)]
    if len(losses) < 3 or min(losses) <= 0 or losses[0] < LEAST_FIRST:
        return False
    gains = [later - earlier for earlier, later in pairwise(losses)]
    best = min(range(len(losses)), key=losses.__getitem__)
    ends = losses[-1] if len(gains[best:]) > 1 and min(gains[best:]) > 0 else min(losses[-2:])
    if ends < max(RISE * losses[best], OVER_FIRST * losses[0]) or (len(losses) == 3 and min(gains) <= 0.1 * max(gains)):
        return False
    if 0 < max(gains) <= 2 * min(gains) and min(gains) > losses[0] / 2:
        return False  # a printed running sum grows evenly, by about its first value
    since = [math.log(later / earlier) for earlier, later in pairwise(losses[best:])]
    return sum(since) >= STRAIGHT * sum(map(abs, since))


LEVELS = 16
"""Medians of a long course."""
LOST, STAYS = 1.5, 0.95
"""Ratios: of levels that no batches explain, and of two levels of a loss that falls no more."""
NOISE = 2.5
"""A rise of this many usual differences of neighbors, in logarithms, is none of single batches."""


def diverges(losses: Sequence[float], *, early: bool = True) -> bool:
    """Whether losses end far above an earlier level; ``early``: the first ones are those of the first steps."""
    if len(losses) < FEW:
        return (early and jumps(losses)) or climbs(losses)
    window = max(3, len(losses) // 10)
    ends = median(losses[-window:])
    if _lost_at_once(losses, ends):
        return True
    if min(losses) <= 0:
        return False
    starts = median(losses[:window])
    best = min(median(losses[index : index + window]) for index in range(0, len(losses) - window + 1, window))
    rises = climbs(losses) or (ends > 3.0 * best and ends > 1.5 * starts) or _lost_its_gains(losses)
    return rises and not _is_noise(losses, window)


def _lost_its_gains(losses: Sequence[float]) -> bool:
    """Whether a loss that had clearly fallen stands far above its lowest level, for long, and falls no more."""
    size = len(losses) // LEVELS
    if size < 2 or min(losses) < LEAST_FIRST:
        return False
    levels = [median(losses[at * size : (at + 1) * size]) for at in range(LEVELS)]
    best = min(range(LEVELS), key=levels.__getitem__)
    after = levels[best + 2 :]
    lasts = (
        len(after) >= LEVELS // 4
        and min(after) >= LOST * levels[best]
        and after[-1] >= STAYS * max(after[0], after[-2])
    )
    return lasts and levels[best] <= levels[0] / LOST


def _is_noise(losses: Sequence[float], window: int) -> bool:
    """Whether the last losses are what single batches differ by: not far above the lowest third, or not all."""
    length = max(window, len(losses) // 3)
    lowest = min(
        (losses[at : at + length] for at in range(0, len(losses) - length + 1, max(1, length // 4))), key=median
    )
    spread = median(abs(math.log(later / earlier)) for earlier, later in pairwise(losses))
    near = math.log(median(losses[-window:]) / median(lowest)) <= NOISE * spread
    return near or min(losses[-window:]) <= sorted(lowest)[int(0.75 * (len(lowest) - 1))]


def runs_away(values: Sequence[float]) -> tuple[float, float] | None:
    """The usual size and the last value of a number that rises to a thousand times all that it was."""
    tail = values[-SETTLED:]
    usual = median(values[: len(values) // 2]) if len(values) > 2 * SETTLED else 0.0
    rises = all(before < after for before, after in pairwise(tail))
    return (usual, tail[-1]) if usual > 0 and rises and tail[-1] >= max(LARGE, ORDERS * usual) else None


def leap(values: Sequence[float]) -> tuple[float, float] | None:
    """The two levels of a number that is suddenly far above all that it was, to the end."""
    for at in range(SETTLED, len(values) - 1):
        before, after = max(values[:at]), min(values[at:])
        if after >= LEAP * before > 0:
            return before, after
    return None


def multiplies(values: Sequence[float]) -> bool:
    """Whether each of the last values is at least twice the one before: no count or clock grows like this."""
    last = finite_of(values)[-DOUBLINGS:]
    return len(last) == DOUBLINGS and all(0 < 2 * before <= after for before, after in pairwise(last))
