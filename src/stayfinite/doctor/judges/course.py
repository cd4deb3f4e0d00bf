"""Course of the loss: divergence, and why a program without a finding is still not called healthy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

import torch

from stayfinite.doctor.record import Course, Program
from stayfinite.doctor.told import Told, told

FEWEST = 10
LONG = 30
RISEN = 4.0
LONG_AT_CHANCE = 60
NEAR_CHANCE = 0.1
"""Share of the chance level that counts as near to it."""
STILL_FALLING = 0.015
"""Fall of the loss from the third to the last quarter of the steps."""


def judge(program: Program) -> Iterator[Told]:
    """A loss that ends far above its start, or falls without bound."""
    stepping = [each for each in program.optimizers.values() if each.steps]
    course = program.main_loss()
    if program.bad is not None or len(stepping) > 1 or len(course) < FEWEST:
        return
    if runs_away(course):
        begin, end = ends(course)
        yield told(
            "flipped-sign", [f"The loss fell from {begin:.4g} to {end:.4g}, faster and faster."],
            title="A term of the loss has no lower bound.", confidence=0.7, weight=1.4,
            fix="check each term's sign: squared errors, divergences and penalties are added, not subtracted",
        )  # fmt: skip
    if risen(program, course):
        begin, end = course.finite[0], ends(course)[1]
        yield told(
            "loss-diverging", [f"The loss went from {begin:.4g} to {end:.4g} in {len(course)} steps."], confidence=0.7,
            weight=0.9,
        )  # fmt: skip


def runs_away(course: Course) -> bool:
    """Whether a loss is far below 0 and falls ever faster."""
    values = course.finite
    if len(values) < LONG:
        return False
    begin, end = ends(course)
    middle = sorted(values[len(values) // 2 : len(values) // 2 + 9])[4]
    return end < -1e4 * max(1.0, abs(begin)) and end < 4 * middle < 0


def ends(course: Course) -> tuple[float, float]:
    """Median loss over the first and last tenth of the steps."""
    values = course.finite
    tenth = max(1, min(20, len(values) // 10))
    return sorted(values[:tenth])[tenth // 2], sorted(values[-tenth:])[tenth // 2]


def risen(program: Program, course: Course) -> bool:
    """Whether a loss that should fall has clearly risen."""
    if not has_known_loss(program) or len(course.finite) < FEWEST:
        return False
    begin, end = course.finite[0], ends(course)[1]
    turned = any(each.turned for each in program.loss_calls.values())
    return begin > 0 and end > RISEN * begin and math.isfinite(end) and not turned


def has_known_loss(program: Program) -> bool:
    """Whether a torch loss, which should fall, is computed at most steps."""
    most = 0.5 * len(program.main_loss())
    return any(each.learns and each.calls >= most for each in program.loss_calls.values())


def at_chance(program: Program, course: Course) -> bool:
    """Whether a cross entropy ends where guessing by class frequency would."""
    end = ends(course)[1] if len(course.finite) >= FEWEST else math.inf
    for seen in program.loss_calls.values():
        if seen.learns and seen.name == "cross_entropy" and seen.labels and seen.calls >= 0.5 * len(course):
            counts = torch.cat(seen.labels).unique(return_counts=True)[1].double()
            shares = counts / counts.sum()
            guess = -float((shares * shares.log()).sum())
            if guess > 0.1 and 0.96 * guess <= end <= 1.1 * guess:
                return True
    return False


def classes_at_chance(program: Program) -> int:
    """Number of classes whose chance level, ln(classes), a cross entropy with one optimizer never leaves; else 0.

    A loss that still falls in the second half of the run has begun to learn, however near to chance it is.
    """
    course = program.main_loss()
    values = course.finite
    stepping = [each for each in program.optimizers.values() if each.steps]
    if len(stepping) != 1 or len(values) < LONG_AT_CHANCE or program.bad is not None:
        return 0
    for seen in program.loss_calls.values():
        if not seen.learns or not seen.labels or seen.classes < 2 or seen.calls < 0.5 * len(course):
            continue
        chance = math.log(seen.classes)
        quarter = len(values) // 4
        quarters = [fmean(values[at * quarter : (at + 1) * quarter]) for at in range(4)]
        near = min(NEAR_CHANCE * chance, 0.1)
        stays = all(-near <= each - chance <= 1.2 * near for each in quarters)
        if stays and quarters[2] - quarters[3] < STILL_FALLING:
            return seen.classes
    return 0


def stands_still(program: Program) -> bool:
    """Whether a torch loss changed by less than 1% over many steps, with one optimizer."""
    course = program.main_loss()
    stepping = [each for each in program.optimizers.values() if each.steps]
    if len(stepping) != 1 or not has_known_loss(program) or len(course.finite) < LONG or program.bad is not None:
        return False
    begin, end = ends(course)
    return abs(begin) > 1e-3 and abs(begin - end) < 0.01 * abs(begin)


def stalled(program: Program) -> bool:
    """Whether a torch loss has fallen by less than 2% over many steps."""
    course = program.main_loss()
    slow = len(course.finite) >= 2 * LONG and not learned(course, 0.02)
    return stands_still(program) or (slow and has_known_loss(program) and program.bad is None)


def not_learning(program: Program) -> bool:
    """Whether the loss has not clearly fallen, has risen, or ends at chance level."""
    course = program.main_loss()
    if not has_known_loss(program) and min(course.finite, default=0.0) <= 0:
        return False  # a policy loss or likelihood, which says nothing alone
    return not learned(course) or risen(program, course) or at_chance(program, course)


def learned(course: Course, share: float = 0.1) -> bool:
    """Whether the loss has clearly fallen."""
    values = course.finite
    if len(values) < FEWEST:
        return True
    begin, end = ends(course)
    # A rate far too high drives the loss up at once; coming down from there is not learning.
    return begin - end > share * max(abs(begin), 1e-12) and end <= values[0] + 0.02 * abs(values[0])


FEWEST_SKIPPED = 5
OFTEN_SKIPPED = 0.05
"""Share of the steps that a scaler skips only while it finds no scale that lasts."""


def doubt(program: Program) -> str:
    """One sentence; empty if nothing speaks against calling it healthy."""
    if scale_keeps_falling(program):
        return "the loss scale keeps falling"
    if classes := classes_at_chance(program):
        return f"the loss stays at ln {classes:,}, chance level for {classes:,} classes"
    return "the loss does not move, and no cause was found" if stands_still(program) else ""


def scale_keeps_falling(program: Program) -> bool:
    """Whether a GradScaler skips often and reaches a new lowest scale in the last third of its updates.

    The search for a first scale ends early, and a scale that grows and falls back reaches no new low.
    """
    scales = program.scales.values
    if program.skipped < max(FEWEST_SKIPPED, OFTEN_SKIPPED * len(scales)):
        return False
    return min(scales[2 * len(scales) // 3 :]) < min(scales[: 2 * len(scales) // 3])
