"""Learning rates that are out of scale for the optimizer and the model, judged before a launch.

The limits are far outside of working recipes, because a plan has no symptoms that could contradict them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRate:
    """A learning rate with everything that decides whether it fits."""

    rate: float
    text: str
    """As written: `learning_rate: 3e-4`."""
    optimizer: str = ""
    """In lowercase; empty if not set, which means AdamW in most frameworks."""
    trained: str = ""
    """`whole` (a full pre-trained model), `adapters` (LoRA), `vectors` (tiny adapters), `prompt` (soft prompts),
    `tensors` (an image or a latent), `scratch`, or empty."""
    model: str = ""
    """`large` for decoders of billions, `t5`, `transformer`, or empty."""
    batch: float | None = None
    """Rows per update, if known."""
    clipped: bool = False
    """Clipping bounds a plain SGD step at this rate."""
    normalised: bool = False
    """Norm layers follow the weights: after a step that is too long, the next ones are shorter."""
    preference: bool = False
    """RL or preference training, whose rates are tiny by design."""
    answers: bool = False
    """A language model's own answers are rewarded (GRPO, PPO) or compared (DPO, KTO)."""
    part: bool = False
    """Something is frozen: perhaps only a head is trained, which bears more."""
    factor: bool = False
    """No scale applies: the schedule uses the rate as a factor (Noam)."""


_ADAPTIVE = lazy_regex(r"adam|lamb|rmsprop|nadam|radam|adagrad|sophia|adopt|ademamix|stable")
_NORMALISED = 4.0
"""Factor for SGD with norm layers: short ResNet trainings use rates up to 3."""
_OWN_SCALE = lazy_regex(
    r"prodigy|d-?adapt|schedule_?free|lars|rprop|adadelta|dog\b|muon|shampoo|soap|apollo|galore|lomo"
)


def highest(plan: PlannedRate) -> tuple[float, str] | None:
    """The highest plausible rate and its reason; None if unknown."""
    name = plan.optimizer
    if plan.factor or _OWN_SCALE.search(name):
        return None
    if plan.trained in ("prompt", "tensors"):
        return _highest_of_tensors(plan)
    if "adafactor" in name:
        return 0.1, "Adafactor"
    if "adagrad" in name:
        return 5.0, "Adagrad"  # its steps shrink from the start
    if "rmsprop" in name:
        return 1.0, "RMSprop"
    if "signsgd" in name:
        return 0.1, "the sign of the gradient"
    if "lion" in name:
        return (1e-3, "Lion on a pre-trained model") if plan.trained == "whole" else (5e-3, "Lion")
    if "sgd" in name or "momentum" in name or "nag" in name:
        return _highest_of_sgd(plan)
    if name and not _ADAPTIVE.search(name):
        return None
    called = "Adam" if name else "Adam (likely)"
    if plan.part and plan.trained not in ("vectors", "adapters"):
        return (0.3, called) if name else None
    if plan.trained == "vectors":
        return 0.5, f"small adapters under {called}"
    if plan.trained == "adapters":
        return (1e-2 if plan.model == "large" else 2e-2), f"adapters under {called}"
    if plan.trained == "whole":
        if plan.answers:
            return 5e-5, f"full-model training on rewards or preferences under {called}"
        if plan.model == "large":
            return 8e-4, f"a pre-trained model of this size under {called}"
        if plan.model == "t5":
            return 5e-3, f"a pre-trained T5 under {called}"
        if plan.model == "transformer":
            return 1e-3, f"a pre-trained transformer under {called}"
        return 2e-2, f"a pre-trained model under {called}"
    if plan.model:
        return 2e-2, f"a transformer under {called}"
    return (0.3, called) if name else None  # a single layer is trained with 0.2


def _highest_of_tensors(plan: PlannedRate) -> tuple[float, str] | None:
    """Prompts, images and latents instead of weights."""
    if plan.optimizer and not (_ADAPTIVE.search(plan.optimizer) or "adafactor" in plan.optimizer):
        return None
    return 5.0, "soft prompts under Adam" if plan.trained == "prompt" else "tensors under Adam"


def _highest_of_sgd(plan: PlannedRate) -> tuple[float, str] | None:
    if plan.clipped or plan.part:
        return None  # a head alone bears 30; LSTMs with clipped gradients use rates of 20 and 30
    if plan.trained == "whole" and plan.model:
        return 1.0, "SGD on a pre-trained transformer"
    if plan.batch is not None:
        bears = _NORMALISED if plan.normalised else 1.0
        return bears * max(1.0, 2.0 * plan.batch / 256), f"SGD with a batch of {plan.batch:g}"
    return 10.0, "SGD"


def lowest(plan: PlannedRate) -> tuple[float, str] | None:
    """The rate below which nothing is learned and its reason; None if unknown."""
    name = plan.optimizer
    if plan.factor or plan.part or _OWN_SCALE.search(name):
        return None
    if "sgd" in name:
        return 1e-6, "SGD"
    if plan.preference:
        return 1e-9, "any optimizer"
    if plan.trained == "adapters":
        return 5e-7, "adapters"
    if plan.trained == "scratch":
        return 1e-7, "a model from scratch"
    return 1e-8, "any optimizer"


def too_high(plan: PlannedRate) -> str:
    """Why the rate is too high; empty if it is not."""
    limit = highest(plan) if math.isfinite(plan.rate) and plan.rate > 0 else None
    if limit is None or plan.rate <= limit[0]:
        return ""
    return f"{plan.text} is too high for {limit[1]} (usual: up to {limit[0]:g})"


def too_low(plan: PlannedRate) -> str:
    """Why the rate is too low; empty if it is not."""
    limit = lowest(plan) if math.isfinite(plan.rate) and plan.rate > 0 else None
    if limit is None or plan.rate >= limit[0]:
        return ""
    return f"{plan.text} is too low for {limit[1]} (usual: above {limit[0]:g})"
