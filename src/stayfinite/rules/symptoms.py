"""Symptoms in a run's numbers, without a cause; rules use these instead of searching the series."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from stayfinite.core.series import Message, Point
from stayfinite.rules.signs.reported_symptoms import Kind, ReportedSymptom

TINY_LOSS = 1e-7
"""A smaller training loss is not real: it is 0.0, or was printed from nothing."""

HUGE_LOSS = 1e4
"""No usual loss is this large in a working training."""

_SAID: dict[Kind, str] = {
    "weights still": "reported: the weights do not change",
    "same answers": "reported: the model gives every input the same answer",
    "worse after loading": "reported: worse after loading",
    "bad answers": "reported: the answers are empty, repeat or make no sense",
    "low score": "reported: a score that no trained model has",
    "score falls": "reported: a score gets worse",
    "negative loss": "reported: the loss is negative",
    "negative kl": "reported: a KL divergence is negative",
    "not as expected": "you report a wrong result",
    "slow": "reported: it is slow",
    "rate still": "reported: the learning rate does not change",
    "rate off": "reported: the learning rate is not what its schedule says",
    "overflows": "reported: step after step overflows",
    "memory grows": "reported: memory grows",
    "hangs": "reported: the training hangs",
}
"""Kinds that only words can report; others count as if measured."""

NAMED = 3
"""Metrics named in a sentence."""

HUGE_NORM = 1e6
"""No gradient of a working training is this large beside others that are 10,000 times smaller."""
RUNAWAY = 1e4
"""Growth of a gradient norm that is trouble without a loss beside it."""

PRINTED = 1e-4
"""A log that prints rates below this prints no other rate as 0."""
PRINTED_AT_ONCE = 5e-3
"""A rate from which the next one is not rounded to 0."""
EARLY = 10
"""Points that count as the start of a log."""
COMES_BACK = 3
"""Finite gradient norms after a bad one that show that the weights are finite."""
SMALLEST_SCALE = 0.1
"""Summed losses settle at such a scale; below it nothing is gained by scaling."""
ENOUGH_AFTER = 4
"""Losses without a skipped step that show that a scale was found."""
LIVE_SCALE = 128.0
"""A loss scale that stays above this leaves gradients in the range of fp16."""


Clash = Literal[
    "negative loss", "share above 1", "saturated", "evaluation far off", "random order", "discriminator wins",
    "accuracy gone", "running sum", "metric explodes", "worse than the mean", "evaluation at chance", "class not found",
    "no advantage", "softmax twice", "rate spent", "epochs alike", "nothing right", "one set for both",
    "evaluation frozen", "overlap above 1", "beyond bounds", "below 0", "collapsed", "work stops", "scale shrinks",
    "back at start", "right by chance", "unlearned", "too good", "generator wins", "tosses about",
    "policy leaps", "trainings alike",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Numbers that no working training shows together."""

    kind: Clash
    text: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Symptoms:
    """The numbers of one run. NaN and infinity are `bad`, absent is neither."""

    source: str = ""
    points: int = 0
    """Training points with a loss or a gradient norm."""
    first_bad: Point | None = None
    """The first point with a non-finite loss or gradient norm."""
    good_before: int = 0
    """Fully finite points before it."""
    late_start: str = ""
    """What shows that steps before it were fine, though none is logged; else empty."""
    bad: int = 0
    """Non-finite points."""
    good_after: int = 0
    """Fully finite points after the first bad one."""
    bad_losses: int = 0
    """Non-finite losses, including a final summary."""
    bad_norms: int = 0
    """Non-finite gradient norms."""
    bad_evals: int = 0
    """Non-finite evaluation losses."""
    zero_losses: int = 0
    """Losses that are 0 or nearly 0."""
    good_losses: int = 0
    """Finite positive losses."""
    zero_norms: int = 0
    """Gradient norms of exactly 0."""
    first_loss: float | None = None
    """The first finite loss."""
    best_loss: float | None = None
    last_loss: float | None = None
    """The last finite loss."""
    largest_loss: float | None = None
    """The largest finite loss."""
    loss_growth: float = 1.0
    """Last finite losses before the first bad point (or the end), over the lowest before them; 1 if unknown."""
    norm_growth: float = 1.0
    """The same for gradient norms."""
    largest_norm: float | None = None
    typical_norm: float | None = None
    """Median of the finite gradient norms."""
    skipped: int = 0
    """Steps skipped by a loss scaler."""
    skipped_last: bool = False
    """The log ends in skipped steps."""
    longest_skips: int = 0
    """Most consecutive skipped steps."""
    after_skips: int = 0
    """Finite positive losses after the last skipped step; with them the log ends."""
    unscaled_skips: int = 0
    """Steps skipped for a non-finite value without mention of a loss scale."""
    never_updates: bool = False
    """Every step was skipped: no weight has changed."""
    first_scale: float | None = None
    last_scale: float | None = None
    lowest_scale: float | None = None
    lrs: int = 0
    """Points with a learning rate."""
    zero_lrs: int = 0
    """Learning rates of exactly 0."""
    trailing_zero_lrs: int = 0
    first_lr: float | None = None
    largest_lr: float | None = None
    smallest_lr: float | None = None
    """The smallest one above 0."""
    lr_at_bad: float | None = None
    """The learning rate at the first bad point."""
    flat: bool = False
    """Many losses without change beyond rounding."""
    falls_to_nothing: bool = False
    """The last loss is exactly 0 and the previous one was far from it."""
    one_class: bool = False
    """A confusion matrix with a single nonzero column."""
    impossible: str = ""
    """A metric with an impossible value."""
    swings: bool = False
    """The loss repeatedly jumps by factors."""
    chance: int | None = None
    """The number of classes if the loss stays at chance throughout."""
    diverges: bool = False
    lone_spike: bool = False
    """One loss stands out, and all others, before and after, are usual."""
    """Finite to the end and far above an earlier level."""
    absurd: bool = False
    """Absurdly large losses or perplexities that do not fall."""
    rewarded: bool = False
    """Learns from rewards: the printed loss is near 0 by design."""
    range_test: bool = False
    """The learning rate is raised on purpose to find where training breaks."""
    crash: Message | None = None
    """The first line of a crash."""
    hung: bool = False
    """It was ended because its ranks waited for each other."""
    where: dict[str, str] = field(default_factory=dict)
    """Locations of `first_bad`, `first_zero`, `first_skip`, `last_skip`, `bad_eval`, `largest_loss`, `lowest_loss`,
    `summary`,
    `zero_lr`, `start`, if present."""
    recognised: int = 0
    """Measurements of any kind in all logs."""
    lost_metrics: tuple[str, ...] = ()
    """Other metrics that end in non-finite values."""
    lost_at: float | None = None
    """The step from which the first of them is non-finite."""
    printed: Message | None = None
    """With few logged losses: a line that prints a non-finite value."""
    told: tuple[ReportedSymptom, ...] = ()
    """With few logged numbers: reported symptoms."""
    still_score: str = ""
    """A poor score that is equal at every evaluation."""
    zero_score: str = ""
    """A score that is exactly 0 at every evaluation while the loss falls."""
    lost_score: str = ""
    """A score that had been learned and is back where it began."""
    unused_code: str = ""
    """A divergence that is next to 0 beside a reconstruction."""
    growing_memory: str = ""
    """A memory that grows from each line to the next."""
    contradictions: tuple[Contradiction, ...] = ()
    """Numbers that cannot go together."""

    def at(self, *names: str) -> str:
        """Where the first of these was seen; empty where none was."""
        return next((self.where[name] for name in names if name in self.where), "")

    @property
    def settles(self) -> bool:
        """Bad gradient norms and finite losses that a loss scaler explains: at the start, or at a scale that holds."""
        if not self.bad or self.never_updates or self.bad_losses:
            return False
        early = self.bad <= EARLY and self.good_before + self.bad <= 2 * EARLY
        return (early and self.good_after >= self.bad) or (self.good_after >= COMES_BACK and self.scale_holds)

    @property
    def scale_holds(self) -> bool:
        """Whether a loss scale moves, stays large and does not end below its start: steps are skipped now and then."""
        first, last, lowest = self.first_scale, self.last_scale, self.lowest_scale
        if first is None or last is None or lowest is None:
            return False
        return lowest >= LIVE_SCALE and first <= last and (lowest < first or first < last)

    @property
    def from_start(self) -> bool:
        """Whether nothing before the first bad or zero-loss point was good."""
        bad = self.bad > 0 or (self.zero_losses > 0 and self.good_losses == 0)
        return bad and self.good_before == 0 and not self.late_start

    @property
    def non_finite(self) -> bool:
        """Something is NaN or infinite, was reported to be, or may hide behind skipped steps or a loss of 0."""
        seen = (self.bad, self.bad_losses, self.bad_norms, self.bad_evals, self.skipped, self.unscaled_skips)
        return any(seen) or bool(self.lost_metrics or self.printed or self.said("not finite")) or self.zero_loss

    @property
    def zero_loss(self) -> bool:
        """A sudden loss of 0, throughout or until the end; not on the way below 0."""
        if self.last_loss is not None and self.last_loss < -TINY_LOSS:
            return False
        return self.zero_losses >= 1 and (
            self.good_losses == 0
            or self.falls_to_nothing
            or (self.zero_losses >= 2 and self.last_loss is not None and self.last_loss <= TINY_LOSS)
        )

    @property
    def sinks(self) -> bool:
        """The loss goes ever further below 0."""
        return self.absurd and self.last_loss is not None and self.last_loss < 0 and self.last_loss == self.best_loss

    @property
    def learns_at_zero(self) -> bool:
        """The loss is 0 but gradients are not: by design when learning from rewards."""
        return self.rewarded and not self.bad_norms and (self.typical_norm is None or self.typical_norm > 0)

    @property
    def found_scale(self) -> bool:
        """Whether the scale stayed usable and has risen again, or enough good steps followed the skipped ones."""
        return (
            self.skipped > 0
            and not self.skipped_last
            and self.bad_losses == 0
            and self.lowest_scale is not None
            and self.lowest_scale > SMALLEST_SCALE
            and (
                self.good_losses > 2 * self.skipped
                or (self.falls and (self.after_skips >= ENOUGH_AFTER or (self.last_scale or 0.0) > self.lowest_scale))
            )
        )

    @property
    def collapses(self) -> bool:
        """The loss scale collapsed, or steps were skipped throughout without finding one."""
        low = (
            self.lowest_scale is not None
            and self.lowest_scale <= 1.0
            and (self.first_scale is None or self.first_scale > 1.0 or self.skipped >= 2)
        )
        # Occasional skips at a scale near 1, with good steps in between, are normal for a hard task.
        lowest = self.lowest_scale is not None and self.lowest_scale < 0.1 and self.skipped >= 2
        search = math.log2(max(self.first_scale or 0.0, 1.0)) - 8  # each skip halves what is tried
        endless = self.longest_skips >= max(12, search) and not self.found_scale
        return self.skipped > 0 and ((low and self.longest_skips >= 3 and not self.found_scale) or lowest or endless)

    @property
    def explodes(self) -> bool:
        """Loss or gradient norm grew out of proportion before it went bad or ended."""
        huge = self.largest_loss is not None and self.largest_loss >= HUGE_LOSS
        if huge and self.points > EARLY // 2 and self.first_loss is not None and self.first_loss >= HUGE_LOSS / 2:
            huge = False  # a sum over pixels or rows: it began as large
        huge = huge and not self.lone_spike
        return self.loss_growth >= 4.0 or self.norm_growth >= 30.0 or huge

    @property
    def lr_zero(self) -> bool:
        """The learning rate is 0 other than at a warmup's first or a schedule's last step."""
        if self.lrs == 0 or self.zero_lrs == 0 or self.skipped >= self.zero_lrs:
            return False  # a schedule pauses while steps are skipped
        exact = self.smallest_lr is not None and self.smallest_lr < PRINTED
        if exact and self.trailing_zero_lrs >= max(3, self.lrs // 4):
            return True
        at_once = self.smallest_lr is not None and self.smallest_lr >= PRINTED_AT_ONCE
        if at_once and self.trailing_zero_lrs >= max(3, self.lrs // 2):
            return True  # no schedule goes on from there to 0 in one step, whatever the digits
        learns = (
            self.points >= 5
            and self.first_loss is not None
            and self.last_loss is not None
            and 0 < self.last_loss < 0.8 * self.first_loss
        )
        if learns:  # with four digits, 2e-5 prints as 0.0000
            return False
        if self.zero_lrs == self.lrs:
            return self.lrs >= 2 or self.bad > 0 or bool(self.first_lr)  # decayed to almost nothing, or not started yet
        return self.trailing_zero_lrs >= 3

    @property
    def trouble(self) -> list[str]:
        """What is wrong with the numbers, briefly."""
        found = {
            "every step is skipped: no weight is updated": self.never_updates,
            "the loss is NaN or inf": self.bad_losses > 0,
            "the gradient norm is NaN or inf": self.bad_norms > 0 and not self.settles,
            "the evaluation loss is NaN or inf": self.bad_evals > 0,
            _lost(self.lost_metrics, self.lost_at): bool(self.lost_metrics),
            f"line {self.printed.line if self.printed else 0} prints NaN or inf": self.printed
            and not (self.bad_losses or self.bad_norms or self.lost_metrics),
            "the loss is 0": self.zero_loss and not self.learns_at_zero,
            "the model predicts one class for every input": self.one_class,
            f"{self.impossible} is below 1": bool(self.impossible),
            "the gradient is 0": self.zero_norms >= 2 and self.zero_norms * 2 >= self.points and not self.learns,
            "the loss scale collapses": self.collapses,
            f"the loss {'falls without bound' if self.sinks else 'explodes'}": self.absurd
            or (
                self.points > 0
                and self.explodes
                and (self.bad > 0 or self.diverges or (self.points == 2 and not self.falls))
            ),
            "the loss diverges": self.diverges,
            "the gradient norm explodes": self.largest_loss is None
            and self.norm_growth >= RUNAWAY
            and (self.points > EARLY or (self.largest_norm is not None and self.largest_norm >= HUGE_NORM)),
            "the loss swings": self.swings and not self.diverges,
            f"the loss stays at ln {self.chance}, chance level for {self.chance} classes": self.chance is not None,
            "reported: the loss or a score does not move" if self.said("still") else "the loss does not move": self.flat
            and self.chance is None,
            f"{self.still_score} does not change": bool(self.still_score) and not self.zero_score,
            f"{self.zero_score} is 0 while the loss falls": bool(self.zero_score),
            f"{self.lost_score} is back where it started": bool(self.lost_score),
            f"{self.unused_code} is almost 0 (posterior collapse)": bool(self.unused_code),
            f"{self.growing_memory} grows on every line": bool(self.growing_memory),
            "the learning rate is 0": self.lr_zero,
            "the run hung" if self.hung else "the run crashed": self.crash is not None,
        }
        words = [word for word, holds in found.items() if holds] + [each.text for each in self.contradictions]
        return words + [_SAID[each.kind] for each in self.told if each.kind in _SAID]

    def said(self, kind: Kind) -> ReportedSymptom | None:
        return next((each for each in self.told if each.kind == kind), None)

    def contradicted(self, kind: Clash) -> Contradiction | None:
        return next((each for each in self.contradictions if each.kind == kind), None)

    @property
    def falls(self) -> bool:
        """The last loss is below the first."""
        return self.first_loss is not None and self.last_loss is not None and self.last_loss < self.first_loss

    @property
    def learns(self) -> bool:
        """The last loss is a tenth below the first, or more: whatever is printed, there is a gradient."""
        first, last = self.first_loss, self.last_loss
        return first is not None and last is not None and 0 < last <= 0.9 * first and not self.bad

    @property
    def doubtful(self) -> bool:
        """Only the loss of 0 is odd, and gradients are alive."""
        alive = self.typical_norm is not None and self.typical_norm > 0 and not self.bad_norms
        return alive and self.trouble == ["the loss is 0"]

    @property
    def story(self) -> list[str]:
        """Like ``trouble``, with the step where it started if known."""
        first = self.first_bad
        if first is None or first.step is None:
            return self.trouble
        begun = f"from step {first.step:,.0f}" if self.good_before else "from the first logged step"
        dated = f" {begun}" + (f", after {_losses(self.good_before, 'finite')}" if self.good_before else "")
        if self.good_after:
            dated += f"; {_losses(self.good_after, 'later')} {'is' if self.good_after == 1 else 'are'} finite"
        words = self.trouble
        first_word = next((index for index, word in enumerate(words) if word.endswith("is NaN or inf")), None)
        if first_word is not None:
            words[first_word] += dated
        return words

    @property
    def healthy(self) -> bool:
        """There are measurements, and none is wrong."""
        return self.recognised > 0 and not self.trouble


def _losses(count: int, kind: str) -> str:
    """`1 finite loss`, `3,000 finite losses`."""
    return f"{count:,} {kind} loss{'' if count == 1 else 'es'}"


def _lost(names: Sequence[str], step: float | None) -> str:
    """`g, d are NaN or inf from step 150`."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    begun = "" if step is None else f" from step {step:,.0f}"
    return f"{', '.join(names[:NAMED])}{more} {'is' if len(names) == 1 else 'are'} NaN or inf{begun}"
