"""Signs that come before the loss: each is judged on its own history, and none refuses a step.

Attention logits that grow without end saturate the softmax; a router that sends every token to one expert starves the
others; a layer whose largest activation jumps is about to overflow; an update far above any before it is about to throw
the weights off. All of them move before the loss does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

LEAST = 16
"""Samples of a signal before it is judged: at the start of a training everything moves."""

IN_A_ROW = 2
"""So many samples in a row have to be unusual: one rare batch is not a trend."""

KEPT = 64
"""Samples of each signal that are remembered; of a longer run every second, fourth, ... one."""

ATTENTION, ACTIVATION, ROUTER, UPDATE = "attention-logit", "activation", "router-share", "update-ratio"


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of signal is judged."""

    floor: float
    """What is below is never unusual."""
    factor: float
    """How many times the usual value is."""
    above_all: bool = False
    """Whether it is compared with the highest value so far, instead of the median: a warm-up raises it by design."""
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
    """How many places show it; this one most."""

    def __str__(self) -> str:
        kind = KINDS[self.signal]
        more = f" and {self.places - 1} more" if self.places > 1 else ""
        what = kind.words.format(value=self.value, usual=self.usual, place=f"{self.place}{more}")
        return f"{what}. Training continues. If the loss rises: {kind.advice}"


@dataclass(slots=True)
class History:
    """What one signal in one place was like, over the whole run."""

    values: list[float] = field(default_factory=list)
    seen: int = 0
    stride: int = 1
    highest: float = 0.0
    unusual: int = 0
    """Samples in a row that were out of range."""

    def judge(self, value: float, kind: Kind, *, share: bool) -> float | None:
        """Take a sample in; returns the usual value if it has left its range for good, None otherwise."""
        usual = None
        if self.seen >= LEAST:
            usual = self.highest if kind.above_all else median(self.values)
            out = value > kind.floor and value > kind.factor * usual
            if share:
                # Shares end at 1: what is left for the other experts counts, too.
                out = value > kind.floor and (value > kind.factor * usual or 1 - value < (1 - usual) / 8)
            self.unusual = self.unusual + 1 if out else 0
        if self.seen % self.stride == 0:
            self.values.append(value)
            if len(self.values) > KEPT:
                self.values, self.stride = self.values[::2], 2 * self.stride
        self.seen += 1
        if not self.unusual:
            # What is out of range does not become the measure of what follows it.
            self.highest = max(self.highest, value)
        return usual if self.unusual >= IN_A_ROW else None


class EarlySigns:
    """Follows signals by kind and place; tells of each kind once, and again after all its places were quiet."""

    def __init__(self) -> None:
        self._histories: dict[tuple[str, str], History] = {}
        self._told: set[str] = set()

    def take(self, step: int, signals: Mapping[tuple[str, str], float]) -> list[Sign]:
        """Judge the samples of a step, by kind and place; what is not finite is the loss's business."""
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
            if signal not in self._told:
                worst = max(signs, key=lambda sign: sign.value)
                fresh.append(Sign(step, signal, worst.place, worst.value, worst.usual, len(signs)))
        self._told = set(out)
        return fresh
