"""What is lost in 16 bits: gradients under a loss scale of 1, updates of bf16 weights, the images of SDXL's VAE."""

from __future__ import annotations

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting
from stayfinite.inspection.files.learning_rate import own_optimizer
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import RATES, Plan
from stayfinite.rules.known import is_on, number_in
from stayfinite.rules.plans import Remark

SMALLEST_STEP = 2e-6
"""An Adam step of at most this much is less than half a bf16 digit of every weight above 0.0006."""
_KEPT = lazy_regex(r"master|kahan|stochastic_round|\.float\(\)|float32|fp32|bf16_optim|upcast|deepspeed|fsdp|megatron")
_SDXL = lazy_regex(r"stable-diffusion-xl|sdxl(?!.*fp16)", 2)
_HALF = lazy_regex(r"(?:torch\.)?(?:float16|fp16|half)")


def fixed_scale(plan: Plan) -> list[Remark]:
    """DeepSpeed's `loss_scale: 1` under fp16, which scales nothing."""
    switches = [each for each in plan.known if each.name.endswith("fp16.enabled") and is_on(each.value) is True]
    for switch in switches:
        name = f"{switch.name.removesuffix('enabled')}loss_scale"
        scale = next((each for each in plan.known if each.name == name and each.source == switch.source), None)
        if scale is not None and number_in(scale.value) == 1:
            text = f"{scale.name}: 1 is a fixed scale: small fp16 gradients round to 0"
            return [(text, scale.where, "loss_scale: 0, which adapts it")]
    return []


def lost_updates(plan: Plan) -> list[Remark]:
    """AdamW of torch over bf16 weights, at a rate below their last digit."""
    weights = plan.context.weights
    if weights is None or weights.value != "bf16" or plan.adapters is not None or plan.is_transformers:
        return []
    rates = [each for each in plan.known if own_optimizer(each).startswith("adam") and last_step(each) in RATES]
    rate = number_in(rates[0].value) if len(rates) == 1 else None
    if rate is None or not 0 < rate <= SMALLEST_STEP or any(_KEPT.search(each.text) for each in plan.scripts):
        return []
    text = f"{rates[0].name}: {rate:g} over bf16 weights: most updates are below their last digit"
    fix = "keep the weights in fp32, under autocast to bf16"
    return [(text, rates[0].where, fix)]


def half_vae(plan: Plan) -> list[Remark]:
    """SDXL's own VAE, cast to fp16."""
    made = [each for each in plan.known if each.name == "AutoencoderKL.from_pretrained.name"]
    base = made[0] if len(made) == 1 else None
    if (
        base is None
        or not plan.trains
        or not isinstance(base.value, str)
        or not _SDXL.search(base.value)
        or base.doubtful
    ):
        return []
    cast = next((each for each in plan.known if _casts(each, base)), None)
    if cast is None or cast.where in plan.switched_off:
        return []
    text = f"{cast.name}: float16 with {base.value}: SDXL's VAE overflows in fp16"
    return [(text, cast.where, "keep it in fp32, or load madebyollin/sdxl-vae-fp16-fix")]


def _casts(setting: Setting, base: Setting) -> bool:
    """Whether a setting is the fp16 of what was loaded there."""
    owner = base.bound_to or "vae"
    own = setting.name in (f"{owner}.to.dtype", f"{owner}.half", "AutoencoderKL.from_pretrained.torch_dtype")
    return own and not setting.doubtful and _HALF.fullmatch(str(setting.value)) is not None
