"""What a GPU has to bear: quantization, gradient checkpointing, and what the named card supports and holds."""

import re
from importlib import metadata

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Setting
from stayfinite.inspection.files.learning_rate import optimizer_of
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.files.precision import eight_bits_in
from stayfinite.inspection.notes import Notes
from stayfinite.rules.cards import Card
from stayfinite.rules.context import ATTENTION, CHECKPOINTING
from stayfinite.rules.fp8_settings import MXFP8
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


_PARAMETERS = lazy_regex(r"(?<![\d.])(?:(\d+)x)?(\d+(?:\.\d+)?)[ _-]?b(?![a-z])", re.IGNORECASE)
_SPREAD = lazy_regex(r"fsdp|megatron|tensor_parallel|offload|device_map|lomo|galore", re.IGNORECASE)
"""Settings that spread a model over several GPUs or host memory."""
GIB = 2**30


def look_at_card(plan: Plan, notes: Notes) -> None:
    """Check number formats, kernels, and whether the weights alone fit."""
    card = plan.card
    title = "GPU features"
    if card is None:
        notes.check("GPU", title, skipped="name it with --gpu T4, V100, A100, H100, ...")
        return
    if card.is_none:
        notes.heading("GPU", "no GPU: CUDA branches are read as on the CPU")
        notes.check("GPU", title, skipped="no GPU (--gpu none)")
        return
    formats = [name for name, has in (("bf16", card.bf16), ("TF32", card.tf32), ("fp8", card.fp8)) if has]
    notes.heading(
        "GPU", f"{card.name}, {card.architecture}, {card.memory_gib:g} GiB, {', '.join(formats) or 'no bf16'}"
    )
    trains = plan.trains or plan.find("mixed_precision", "distributed_type") is not None  # a launcher's file
    known = next((each for each in (plan.precision, plan.context.weights) if each and each.value == "bf16"), None)
    if known is not None and not card.bf16 and trains:
        text = f"{known.text.strip()[:80]}, but {card.with_article} ({card.architecture}) has no bf16"
        notes.remark("plan.card_without_bf16", (text, known.where))
    notes.remark("plan.card_lacks", *_lacking(plan, card))
    notes.check("GPU", title, "bf16-unsupported", "card-lacks-feature", seen=f"{card.name} ({card.architecture})")
    least = _least_memory(plan)
    if least is not None and least[0] > card.memory_gib:
        notes.remark(
            "plan.too_large_for_card", (f"{least[1]}, but {card.with_article} has {card.memory_gib:g}", least[2])
        )
    notes.check(
        "GPU",
        "model size",
        "out-of-memory",
        seen="" if least is None else f"at least {least[0]:.0f} of {card.memory_gib:g} GiB",
        otherwise="unknown from these files; use stayfinite check --memory MODEL",
    )


def _lacking(plan: Plan, card: Card) -> list[Remark]:
    found: list[Remark] = []
    tf32 = plan.on("tf32")
    if tf32 is not None and not card.tf32:
        text = f"{tf32.text}, but {card.with_article} ({card.architecture}) has no TF32"
        found.append((text, tf32.where, "tf32=False"))
    attention = plan.find(*ATTENTION, "flash_attention")
    if attention is not None and not card.flash_attention_2:
        word = str(attention.value).lower()
        if is_on(attention.value) is True or word in ("flash_attention_2", "fa2", "flash_attn_2", "flash_attention_3"):
            said = f"{attention.name}: {attention.value}"
            text = f"{said}, but FlashAttention 2 does not run on {card.with_article} ({card.architecture})"
            found.append((text, attention.where, 'disable FlashAttention: attn_implementation="sdpa"'))
    eight = eight_bits_in(plan)
    if eight is not None and not card.fp8:
        text = f"{eight.told.text.strip()[:80]}, but {card.with_article} ({card.architecture}) has no fp8"
        instead = "bf16 instead of fp8" if card.bf16 else "fp16 instead of fp8, if it is safe for the model"
        found.append((text, eight.told.where, instead))
    elif eight is not None and eight.scaling is not None and eight.scaling.value == MXFP8 and not card.mxfp8:
        text = f"{eight.scaling.text.strip()[:80]}, but {card.with_article} ({card.architecture}) has no MX formats"
        found.append((text, eight.scaling.where, "blockwise or tensorwise scales instead of mxfp8"))
    return found


def _least_memory(plan: Plan) -> tuple[float, str, str] | None:
    """Lower bound in GiB for weights, gradients and moments on one GPU, its description, and its location."""
    model = plan.context.model
    count = None if model is None else _PARAMETERS.search(str(model.value))
    if model is None or count is None or not plan.trains or not _one_process(plan):
        return None
    if plan.context.deepspeed is not None or plan.says(_SPREAD):
        return None
    billions = float(count.group(2)) * (0.8 * float(count.group(1)) if count.group(1) else 1.0)
    bits = _bits(plan)
    if plan.adapters is None and bits < 16:
        return None  # not trainable
    if plan.adapters is not None:
        a_weight, what = bits / 8, f"the weights in {bits} bits"
    else:
        moments = 0 if re.search(r"sgd|adafactor|lion|muon", optimizer_of(plan)) else 4
        moments = 2 if "8bit" in plan.word("optim", "optimizer") else moments
        whole = plan.context.weights is not None and plan.context.weights.value == "fp32"
        a_weight = (8 + 2 * moments) if whole else (4 + moments)
        what = f"weights, gradients and moments (at least {a_weight:g} bytes per parameter)"
    need = billions * 1e9 * a_weight / GIB
    return need, f"{str(model.value)[:60]}: {what} take {need:.0f} GiB", model.where


def _bits(plan: Plan) -> int:
    """Bits per weight of the frozen base."""
    for bits in (4, 8):
        if plan.on(f"load_in_{bits}bit") is not None or plan.word("quantization_bit") == str(bits):
            return bits
    return 16


def _one_process(plan: Plan) -> bool:
    """Whether a script is started directly; settings alone may be for a launcher that shards."""
    launched = [source for source in plan.sources if source.kind in ("command", "shell")]
    if launched:
        return all(re.match(r"(?:\w+=\S+ )*(?:\S*/)?python[\d.]* (?!-m)", source.text) for source in launched)
    return bool(plan.scripts)
