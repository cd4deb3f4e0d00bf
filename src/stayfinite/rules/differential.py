"""When the text cannot decide: the remaining causes, their predictions, and what to try first.

The experiment is the one with the most expected information about the cause (mutual information of cause and outcome,
in bits) for its cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.rules.experiments import EXPERIMENTS, Experiment
from stayfinite.rules.facts import Facts
from stayfinite.rules.ranking import RESTATED

DECIDED = 0.7
"""A cause of this confidence without a rival needs no experiment."""

RIVAL = 0.5
"""Share of the first cause's confidence that makes a second one a rival."""

MOST = 3
"""Causes to tell apart."""

LEAST_BITS = 0.05
"""Less informative experiments are not worth running."""

LIKELY, UNLIKELY = 0.75, 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """A cause that is still possible."""

    cause: str
    predicts: str
    """The outcome of the experiment if this is the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Differential:
    """What is undecided, and how to decide it."""

    remaining: Sequence[Remaining]
    experiment: Experiment

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "remaining": [{"cause": each.cause, "predicts": each.predicts} for each in self.remaining],
            "try": self.experiment.do,
            "key": self.experiment.key,
            "outcomes": {"fine": self.experiment.fine, "bad": self.experiment.bad},
        }


def differential(findings: Sequence[Finding], facts: Facts) -> Differential | None:
    """The remaining causes and the experiment between them; None if decided or inseparable."""
    causes = [each for each in findings if each.severity != "info" and each.cause not in RESTATED]
    if not causes:
        return None
    first = causes[0].confidence
    rivals = [each for each in causes[1:] if each.confidence >= RIVAL * first]
    if first >= DECIDED and not rivals:
        return None
    chosen = causes[: max(2, min(MOST, 1 + len(rivals) + (first < RIVAL)))]
    weights = {each.cause: each.confidence for each in chosen}
    if len(weights) < 2:
        return None
    best = max(_possible(facts), key=lambda each: _worth(each, weights), default=None)
    if best is None or _bits(best, weights) < LEAST_BITS:
        return None
    return Differential(remaining=[_remaining(cause, best) for cause in weights], experiment=best)


def _remaining(cause: str, experiment: Experiment) -> Remaining:
    fine = experiment.chance_of_fine(cause)
    predicts = experiment.fine if fine >= LIKELY else experiment.bad if fine <= UNLIKELY else "either"
    return Remaining(cause=cause, predicts=predicts)


def _possible(facts: Facts) -> Iterable[Experiment]:
    """Experiments that were not done and would change something."""
    done = {world.subject for world in facts.reported_experiments}
    context = facts.context
    precision = context.precision.value if context.precision is not None else ""
    finite = not facts.symptoms.non_finite
    needless = {
        **dict.fromkeys(("anomaly", "batch", "guarded", "mask", "single", "eps", "scan"), finite),
        "fp32": precision == "fp32",
        "bf16": precision in ("bf16", "fp32") or (context.half is None and precision != "fp16"),
        "part": context.half is None,
        "zero": context.deepspeed is None,
        "checkpointing": context.checkpointing is None,
        "optimizer": True,
        "compile": facts.mentioned(r"compile|dynamo|inductor") is None,
        "one_gpu": facts.mentioned(r"\brank|ddp|distributed|fsdp|deepspeed|nccl|nproc|world.?size|gpus") is None,
        "clip": context.clip is not None and context.clip.value > 0,
        "warmup": context.warmup is not None and context.warmup.value > 0,
    }
    return [each for each in EXPERIMENTS if each.subject not in done and not needless.get(each.key, False)]


def _worth(experiment: Experiment, weights: dict[str, float]) -> float:
    return _bits(experiment, weights) / math.log2(4.0 + experiment.minutes)


def _bits(experiment: Experiment, weights: dict[str, float]) -> float:
    """Expected information of the outcome about the cause."""
    total = sum(weights.values())
    share = {cause: weight / total for cause, weight in weights.items()}
    fine = {cause: experiment.chance_of_fine(cause) for cause in weights}
    overall = sum(share[cause] * fine[cause] for cause in weights)
    return _entropy(overall) - sum(share[cause] * _entropy(fine[cause]) for cause in weights)


def _entropy(chance: float) -> float:
    if chance <= 0.0 or chance >= 1.0:
        return 0.0
    return -chance * math.log2(chance) - (1.0 - chance) * math.log2(1.0 - chance)
