"""Memory savers and their requirements: quantization with adapters, gradient checkpointing."""

from __future__ import annotations

from importlib import metadata

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.context import CHECKPOINTING
from stayfinite.rules.known import is_on, number_in
from stayfinite.rules.plans import Remark

_BITS = ("load_in_8bit", "load_in_4bit", "use_4bit", "use_8bit")
_LETS_GRADIENTS_IN = lazy_regex(
    r"enable_input_require_grads|prepare_model_for_(?:kbit|int8)_training|make_inputs_require_grads?|FastLanguageModel|"
    r"\bunsloth\b|\bSFTTrainer\b|\bSFTConfig\b|\b\w{2,4}Trainer\b.{0,20}\btrl\b|from trl\b"
)
"""Code that lets gradients reach the first checkpointed block, or trainers that ensure it."""
_OFFERS_ADAPTERS = lazy_regex(r"\bget_peft_model\b")
"""A call that marks adapter training, even if a switch of another name is off."""


def look_at_memory_savers(plan: Plan, notes: Notes) -> None:
    """Check that quantized models have adapters, and that reentrant checkpointing gets inputs with gradients."""
    bits = _few_bits(plan)
    offered = plan.adapters is not None or plan.soft_prompt or plan.says(_OFFERS_ADAPTERS)
    offered = offered or any("get_peft_model(" in source.text for source in plan.scripts)  # also behind a switch
    if bits is not None and plan.trains and not offered:
        text = f"{bits.name}: {bits.value}, but no adapters are trained"
        notes.remark("plan.quantized_without_adapters", (text, bits.where))
    checkpointing = _checkpointing(plan)
    notes.remark("plan.checkpointing_frozen_inputs", *_frozen_inputs(plan, checkpointing))
    seen = [shown(each) for each in (bits, checkpointing) if each is not None]
    if plan.adapters is not None:
        seen.append(f"adapters ({plan.adapters.where})")
    notes.check(
        "Memory savers",
        "quantization, LoRA and gradient checkpointing",
        "quantized-weights",
        "gradient-checkpointing-no-input-grad",
        seen=", ".join(seen),
        otherwise="none",
    )


def _few_bits(plan: Plan) -> Setting | None:
    for name in _BITS:
        setting = plan.find(name)
        if setting is not None and is_on(setting.value) is True:
            return setting
    setting = plan.find("quantization_bit", "quant_bits")
    return setting if setting is not None and number_in(setting.value) in (2.0, 3.0, 4.0, 8.0) else None


def _checkpointing(plan: Plan) -> Setting | None:
    setting = plan.find(*CHECKPOINTING)
    return setting if setting is not None and is_on(setting.value) is not False and setting.value is not None else None


def _transformers_is_new() -> bool:
    """Whether the installed transformers uses non-reentrant checkpointing by default; nothing is imported."""
    try:
        return int(metadata.version("transformers").partition(".")[0]) >= 5
    except (metadata.PackageNotFoundError, ValueError):
        return False


def _frozen_inputs(plan: Plan, checkpointing: Setting | None) -> list[Remark]:
    """Adapters over a frozen base with reentrant checkpointing, where no gradient reaches the first block.

    Frameworks driven by a config file (axolotl, LLaMA-Factory, trl) handle this; scripts must.
    """
    if checkpointing is None or plan.adapters is None or not plan.scripts or plan.soft_prompt:
        return []
    reentrant = plan.settings.find("use_reentrant", "use_reentrant_gc")
    is_reentrant = not _transformers_is_new() if reentrant is None else is_on(reentrant.value) is True
    if not is_reentrant or any(_LETS_GRADIENTS_IN.search(source.text) for source in plan.scripts):
        return []
    said = f"{checkpointing.name}: {checkpointing.value} over a frozen base with adapters ({plan.adapters.where})"
    if reentrant is None:
        return [(f"{said}, but use_reentrant has its default (True before transformers 5)", checkpointing.where)]
    return [
        (f"{said}, but {reentrant.name}: {reentrant.value}", checkpointing.where),
        ("inputs do not require gradients: enable_input_require_grads() is missing", reentrant.where),
    ]
