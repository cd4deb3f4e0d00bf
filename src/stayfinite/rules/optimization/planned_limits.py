"""Which learning rates are out of scale, by the optimizer and by what is trained: judged before a launch.

The limits lie well outside of what recipes that work use, because a plan has no symptoms that could speak against it:
what stands between is left in peace.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRate:
    """A learning rate with all that decides whether it fits."""

    rate: float
    text: str
    """As written: `learning_rate: 3e-4`."""
    optimizer: str = ""
    """In small letters; empty where the settings do not say, which is AdamW in most frameworks."""
    trained: str = ""
    """`whole` (a pre-trained model, all of it), `adapters` (LoRA), `vectors` (adapters of few numbers), `prompt` (soft
    prompts), `tensors` (no weights, but an image or a latent), `scratch`, or empty."""
    model: str = ""
    """The family of models: `large` for decoders of billions, `t5`, `transformer`, or empty."""
    batch: float | None = None
    """Rows in an update, where it is known."""
    clipped: bool = False
    """Clipping keeps a step of plain SGD short at this rate."""
    normalised: bool = False
    """Norm layers follow the weights: a step that was too long makes the next ones shorter."""
    preference: bool = False
    """Reinforcement learning or preference training, whose rates are tiny by design."""
    answers: bool = False
    """A language model's own answers are rewarded (GRPO, PPO), or pairs of answers compared (DPO, KTO)."""
    factor: bool = False
    """No scale applies: the schedule takes the rate for a factor (Noam), or a head alone is trained."""


_ADAPTIVE = re.compile(r"adam|lamb|rmsprop|nadam|radam|adagrad|sophia|adopt|ademamix|stable")
_NORMALISED = 4.0
"""How much more SGD bears where norm layers follow the weights: short trainings of ResNets go up to rates of 3."""
_OWN_SCALE = re.compile(
    r"prodigy|d-?adapt|schedule_?free|lars|rprop|adadelta|dog\b|muon|shampoo|soap|apollo|galore|lomo"
)


def highest(plan: PlannedRate) -> tuple[float, str] | None:
    """The highest rate that is on its scale, and what for; None where no scale is known."""
    name = plan.optimizer
    if plan.factor or _OWN_SCALE.search(name):
        return None
    if plan.trained in ("prompt", "tensors"):
        return _highest_of_tensors(plan)
    if "adafactor" in name:
        return 0.1, "Adafactor"
    if "adagrad" in name:
        return 5.0, "Adagrad"  # whose steps shrink from the first one on
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
    return (0.3, called) if name else None  # one layer alone is trained with 0.2


def _highest_of_tensors(plan: PlannedRate) -> tuple[float, str] | None:
    """No weights are moved: prompts are of the size of embeddings, images and latents of their own."""
    if plan.optimizer and not (_ADAPTIVE.search(plan.optimizer) or "adafactor" in plan.optimizer):
        return None
    return 5.0, "soft prompts under Adam" if plan.trained == "prompt" else "tensors under Adam"


def _highest_of_sgd(plan: PlannedRate) -> tuple[float, str] | None:
    if plan.clipped:
        return None  # with clipped gradients rates of 20 and 30 are used, for LSTMs
    if plan.trained == "whole" and plan.model:
        return 1.0, "SGD on a pre-trained transformer"
    if plan.batch is not None:
        bears = _NORMALISED if plan.normalised else 1.0
        return bears * max(1.0, 2.0 * plan.batch / 256), f"SGD with a batch of {plan.batch:g}"
    return 10.0, "SGD"


def lowest(plan: PlannedRate) -> tuple[float, str] | None:
    """The rate up to which nothing can be learned, and what for; None where no scale is known."""
    name = plan.optimizer
    if plan.factor or _OWN_SCALE.search(name):
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
    """How the rate is above what it may be; empty when it is not."""
    limit = highest(plan) if math.isfinite(plan.rate) and plan.rate > 0 else None
    if limit is None or plan.rate <= limit[0]:
        return ""
    return f"{plan.text} is too high for {limit[1]} (usual: up to {limit[0]:g})"


def too_low(plan: PlannedRate) -> str:
    """How the rate is below what moves anything; empty when it is not."""
    limit = lowest(plan) if math.isfinite(plan.rate) and plan.rate > 0 else None
    if limit is None or plan.rate >= limit[0]:
        return ""
    return f"{plan.text} is too low for {limit[1]} (usual: above {limit[0]:g})"
