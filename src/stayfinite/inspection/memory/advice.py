"""Recommend what to do with the estimates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from stayfinite.inspection.memory.columns import Column, column
from stayfinite.inspection.memory.plan import PRECISIONS, Plan
from stayfinite.inspection.memory.shape import Shape
from stayfinite.rules.cards import Card
from stayfinite.rules.model_families import SUREST, family_of

RANK = 16  # of the suggested adapters
_OVERFLOWS = ". This model family overflows in fp16, though (SF102): prefer a GPU with bf16"


def advice(shape: Shape, found: Sequence[Column], card: Card) -> str:
    """One sentence: how it fits, or the smallest change that makes it fit."""
    planned = found[0].plan.batch
    overflows = leaves_half(shape)
    if not any(each.runs for each in found):
        return f"{card.name} has no bf16: use --precision {'fp32' if overflows else 'fp16'}"
    # bf16 weights lose small updates: the last choice, unless they are frozen.
    ranked = sorted(found, key=lambda each: (each.plan.precision.name == "pure-bf16") and not each.plan.lora)
    fitting = [each for each in ranked if each.fits and each.runs]
    fitting = [each for each in fitting if not _risky(each, overflows)] or fitting
    if fitting:
        best = max(fitting[:2], key=lambda each: each.plan.precision.autocast)
        text = f"{_named(best)} fits with batch {planned} on {card.name}; the largest batch is {best.largest}"
        more = [each for each in fitting if (each.largest or 0) > (best.largest or 0)]
        most = max(more, key=lambda each: each.largest or 0, default=None)
        text += f", and {most.largest} in {_named(most)}" if most is not None else ""
        if best.plan.precision.name == "pure-bf16" and not best.plan.lora:
            text += f". Weights in bf16 lose small updates: prefer adapters (--lora {RANK})"
        return text + (_OVERFLOWS if _risky(best, overflows) else "")
    smaller = [each for each in ranked if each.runs and each.largest]
    smaller = [each for each in smaller if not _risky(each, overflows)] or smaller
    if smaller:
        best = max(smaller, key=lambda each: (each.plan.precision.name != "pure-bf16", each.largest or 0))
        steps = math.ceil(planned / (best.largest or 1))
        return (
            f"batch {best.largest} fits on {card.name} in {_named(best)}: use it with "
            f"gradient_accumulation_steps={steps}{_OVERFLOWS if _risky(best, overflows) else ''}"
        )
    return _rescue(shape, found[0].plan, card)


def leaves_half(shape: Shape) -> bool:
    """Whether models of this kind overflow in fp16, whatever is trained."""
    return shape.family == "t5" or family_of(shape.name) in SUREST


def _risky(each: Column, overflows: bool) -> bool:
    return overflows and each.plan.precision.name == "fp16"


def _rescue(shape: Shape, plan: Plan, card: Card) -> str:
    """The smallest change that makes a single row fit."""
    half = PRECISIONS["bf16" if card.bf16 else "fp32" if leaves_half(shape) else "fp16"]
    frozen = PRECISIONS["pure-bf16"] if card.bf16 else half
    lora = plan.lora or RANK
    thrift = replace(plan, batch=1, checkpointing=True)
    attempts = (
        ("the optimizer adamw-8bit", replace(thrift, precision=half, optimizer="adamw-8bit")),
        ("the optimizer adafactor", replace(thrift, precision=half, optimizer="adafactor")),
        (f"adapters (--lora {lora})", replace(thrift, precision=frozen, lora=lora)),
        (
            f"adapters on 8-bit weights (--lora {lora} --base 8bit)",
            replace(thrift, precision=half, lora=lora, base="8bit"),
        ),
        (
            f"adapters on 4-bit weights (--lora {lora} --base 4bit)",
            replace(thrift, precision=half, lora=lora, base="4bit"),
        ),
    )
    for what, attempt in attempts:
        if plan.lora and not attempt.lora:
            continue
        tried = column(shape, attempt, what, card)
        if tried.fits:
            return f"not even one row fits on {card.name}; with {what} and checkpointing batch {tried.largest} fits"
    shorter = column(shape, replace(attempts[-1][1], seq=128, target_seq=128), "", card)
    if plan.seq > 128 and shorter.fits and shape.vocabulary:
        return f"nothing fits on {card.name} at {plan.seq} tokens; 128 tokens with {attempts[-1][0]} fit"
    return f"this model does not fit on one {card.name}: shard it (FSDP, ZeRO 3) or use a larger GPU"


def _named(each: Column) -> str:
    again = " with checkpointing" if each.plan.checkpointing else ""
    return f"{each.plan.precision.title}{again}"
