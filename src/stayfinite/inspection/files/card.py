"""Compare the named GPU with what the settings require."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.files.learning_rate import optimizer_of
from stayfinite.inspection.files.plan import Plan
from stayfinite.inspection.files.precision import eight_bits_in
from stayfinite.inspection.notes import Notes
from stayfinite.rules.cards import Card
from stayfinite.rules.context import ATTENTION
from stayfinite.rules.fp8_settings import MXFP8
from stayfinite.rules.known import is_on
from stayfinite.rules.plans import Remark

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
