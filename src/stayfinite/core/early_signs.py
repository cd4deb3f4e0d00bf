"""Early warnings that move before the loss does. Each signal is judged on its own history; none refuses a step.

Growing attention logits saturate the softmax; a router that sends every token to one expert starves the others; a jump
of the largest activation precedes an overflow; an update far above all earlier ones throws the weights off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

LEAST = 16
"""Samples before a signal is judged: early in training everything moves."""

IN_A_ROW = 2
"""Consecutive unusual samples for a warning: one rare batch is not a trend."""

KEPT = 64
"""Samples kept per signal; longer runs are thinned to every 2nd, 4th, ... sample."""

ATTENTION, ACTIVATION, ROUTER, UPDATE = "attention-logit", "activation", "router-share", "update-ratio"


@dataclass(frozen=True, slots=True)
class Kind:
    """Thresholds of one kind of signal."""

    floor: float
    """Values below are never unusual."""
    factor: float
    """Multiple of the usual value that is unusual."""
    above_all: bool = False
    """Compare with the highest value so far instead of the median: warmup raises it by design."""
    words: str = ""
    advice: str = ""


KINDS = {
    ATTENTION: Kind(
        64.0, 4.0, words="largest attention logit {value:.4g} in {place} (median {usual:.4g})",
        advice="normalize queries and keys (QK-norm), or lower the learning rate",
    ),
    ACTIVATION: Kind(
        1000.0, 8.0, words="largest activation {value:.4g} in {place} (median {usual:.4g})",
        advice="lower the learning rate; under fp16 change to bf16",
    ),
    ROUTER: Kind(
        0.5, 2.0, words="{value:.0%} of tokens go to one expert in {place} (median {usual:.0%})",
        advice="raise the weight of the load-balancing loss",
    ),
    UPDATE: Kind(
        0.01, 4.0, above_all=True,
        words="median update {value:.2%} of the weights (largest so far {usual:.2%})",
        advice="check the learning rate and the last batches",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sign:
    """A signal that has left its usual range."""

    step: int
    signal: str
    place: str
    value: float
    usual: float
    places: int
    """Number of places that show it; this one is the worst."""

    def __str__(self) -> str:
        kind = KINDS[self.signal]
        more = f" and {self.places - 1} more" if self.places > 1 else ""
        what = kind.words.format(value=self.value, usual=self.usual, place=f"{self.place}{more}")
        return f"{what}. Training continues. If the loss rises: {kind.advice}"


@dataclass(slots=True)
class History:
    """Samples of one signal at one place."""

    values: list[float] = field(default_factory=list)
    seen: int = 0
    stride: int = 1
    highest: float = 0.0
    unusual: int = 0
    """Consecutive samples out of range."""

    def judge(self, value: float, kind: Kind, *, share: bool) -> float | None:
        """Add a sample; return the usual value if the signal has left its range for good, else None."""
        usual = None
        if self.seen >= LEAST:
            usual = self.highest if kind.above_all else median(self.values)
            out = value > kind.floor and value > kind.factor * usual
            if share:
                # Shares are bounded by 1, so also compare what is left for the other experts.
                out = value > kind.floor and (value > kind.factor * usual or 1 - value < (1 - usual) / 8)
            self.unusual = self.unusual + 1 if out else 0
        if self.seen % self.stride == 0:
            self.values.append(value)
            if len(self.values) > KEPT:
                self.values, self.stride = self.values[::2], 2 * self.stride
        self.seen += 1
        if not self.unusual:
            # Samples out of range must not raise the reference.
            self.highest = max(self.highest, value)
        return usual if self.unusual >= IN_A_ROW else None


class EarlySigns:
    """Follow signals by kind and place; report each kind once, and again after all its places were quiet."""

    def __init__(self) -> None:
        self._histories: dict[tuple[str, str], History] = {}
        self._reported: set[str] = set()

    def take(self, step: int, signals: Mapping[tuple[str, str], float]) -> list[Sign]:
        """Judge the samples of a step; non-finite values are ignored, since the loss shows those."""
        out: dict[str, list[Sign]] = {}
        for (signal, place), value in signals.items():
            if not math.isfinite(value):
                continue
            history = self._histories.setdefault((signal, place), History())
            usual = history.judge(value, KINDS[signal], share=signal == ROUTER)
            if usual is not None:
                out.setdefault(signal, []).append(Sign(step, signal, place, value, usual, 1))
        fresh = []
        for signal, signs in out.items():
            if signal not in self._reported:
                worst = max(signs, key=lambda sign: sign.value)
                fresh.append(Sign(step, signal, worst.place, worst.value, worst.usual, len(signs)))
        self._reported = set(out)
        return fresh
