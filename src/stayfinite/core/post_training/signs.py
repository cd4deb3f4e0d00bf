"""Failures of post-training with a finite loss: the causes, and a sign of one with its advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KL_RUNAWAY = "kl-runaway"
ENTROPY_COLLAPSE = "entropy-collapse"
ZERO_ADVANTAGE = "grpo-zero-advantage"
LENGTH_HACKING = "length-hacking"
REWARD_ON_TRUNCATED = "reward-on-truncated"
RATIO_EXPLOSION = "ratio-explosion"
SAMPLER_MISMATCH = "sampler-mismatch"
BOTH_FALL = "dpo-both-fall"
BLIND_VALUE = "value-explains-nothing"
REWARD_FALLS = "reward-falls"
REFERENCE_MOVES = "reference-moves"
ONE_SCORE = "reward-model-constant"
CAUSES = frozenset(
    (
        KL_RUNAWAY, ENTROPY_COLLAPSE, ZERO_ADVANTAGE, LENGTH_HACKING, REWARD_ON_TRUNCATED, RATIO_EXPLOSION,
        SAMPLER_MISMATCH, BOTH_FALL, BLIND_VALUE, REWARD_FALLS, REFERENCE_MOVES,
        ONE_SCORE,
    )
)  # fmt: skip

ALL_RIGHT, ALL_WRONG, CONSTANT = "all right", "all wrong", "constant"
"""Why all rewards in a group are equal."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One detected failure, with its figures."""

    cause: str
    """The rule's slug, `kl-runaway`."""
    signal: str
    """The signal that shows it."""
    step: int
    value: float
    """Current level of the signal."""
    usual: float
    """Level at the start, or the expected one."""
    text: str
    """One sentence with the figures."""
    variant: str = ""
    """Variant of the cause: `all right`, `all wrong` or `constant` for equal rewards."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Related signals at that step."""

    @property
    def advice(self) -> str:
        return _ADVICE.get(f"{self.cause} {self.variant}", _ADVICE.get(self.cause, ""))

    def __str__(self) -> str:
        return f"{self.text}. Fix: {self.advice}"


_ADVICE = {
    KL_RUNAWAY: "lower the learning rate, raise the KL coefficient, or return to a checkpoint from before the rise",
    ENTROPY_COLLAPSE: "lower the learning rate, sample at temperature 1.0, raise the upper clip, add an entropy bonus",
    ZERO_ADVANTAGE: "print one group of answers with its rewards; raise the temperature or the number of answers",
    f"{ZERO_ADVANTAGE} {ALL_RIGHT}": "stop, or leave out prompts that are always solved",
    f"{ZERO_ADVANTAGE} {ALL_WRONG}": "print one group of answers: is the answer found? Use a graded reward or easier "
    "prompts",
    f"{ZERO_ADVANTAGE} {CONSTANT}": "print one group of answers with its rewards: the reward may be constant",
    LENGTH_HACKING: "give cut or repeating answers no reward, and normalize the loss by a constant length",
    REWARD_ON_TRUNCATED: "give cut answers no reward or mask them (trl: mask_truncated_completions=True)",
    RATIO_EXPLOSION: "resample more often, take fewer updates per batch, lower the learning rate",
    SAMPLER_MISMATCH: "compare dtype, temperature, template, dropout and weights of sampler and trainer; correct the "
    "ratio by importance sampling",
    BOTH_FALL: "lower the learning rate, raise beta, or add the chosen answers' own loss (trl: loss_type sigmoid, sft)",
    ONE_SCORE: "print scores of a few answers; is the head trained (modules_to_save), and do the pairs differ?",
    BLIND_VALUE: "check that the value head is in the optimizer and gets the returns; raise its learning rate",
    REWARD_FALLS: "return to the checkpoint of the best reward and lower the learning rate",
    REFERENCE_MOVES: "make the reference a frozen copy: copy.deepcopy(model).eval().requires_grad_(False)",
}
