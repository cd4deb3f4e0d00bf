"""A value exceeded fp16's limit of 65,504.

## What it means
fp16 ends at 65,504. An activation, an attention score or a gradient grew beyond that, became infinite, and the next
subtraction or normalization made NaN of it. The same step is finite in fp32 and in bf16, whose range is that of fp32.

## Why it happens
Mixed precision runs matrix products and convolutions in fp16. Sums over long sequences, wide layers without
normalization, attention scores before the softmax, a mask written as `-1e9`, squared errors, variances and losses
over unnormalized targets pass 65,504 easily. Gradients do so too once they are multiplied with the loss scale, but
that is meant to happen now and then: the scaler halves the scale and continues. It is a fault when lowering the scale
does not help.

## How to recognize it
- Loss NaN or 0.0 and `grad_norm` nan within the first steps, with `fp16: true` or `mixed_precision: fp16`.
- `RuntimeError: value cannot be converted to type at::Half without overflow`: a constant such as `-1e9` in fp16.
- A list of activations (transformers: `--debug underflow_overflow`) whose `abs max` comes near 6.5e+04 and then turns
  inf.
- The run is fine with fp16 switched off, or in bf16.
- `stayfinite check --build` or `preflight(...)` names the modules before training: one pass in fp32 and one as fp16
  would have it, with the factor by which each leaves the range.

## How to fix it
Use bf16 where the card has it (Ampere and newer), else keep the one module that overflows in fp32.

- transformers: `bf16=True, fp16=False`; find the module with `TrainingArguments(debug="underflow_overflow")`.
- Lightning: `Trainer(precision="bf16-mixed")`.
- accelerate: `Accelerator(mixed_precision="bf16")`.
- DeepSpeed: `"bf16": {"enabled": true}` in place of `"fp16"`.
- A card without bf16: `stayfinite.keep_in_range(model)` before the loop, with fp16 autocast as it is.
- plain torch: `torch.autocast("cuda", dtype=torch.bfloat16)`; for a single module: `with torch.autocast("cuda",
  enabled=False): y = module(x.float())`.
- Masks: `torch.finfo(scores.dtype).min` in place of `-1e9`, or a boolean mask with `scaled_dot_product_attention`.
- Losses, softmax, norms and sums over many elements: on `x.float()`.

## When it is a false alarm
A few skipped steps at the beginning, or one every few thousand, are the scaler looking for its scale: the gradients
overflowed, not the model, and nothing is wrong. NaN that fp32 shows as well has another cause. DeepSpeed's `OVERFLOW!
Skipping step. Gradients are non-finite, weights were not updated.` comes from bf16 and fp32, where no scale is in use.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.precision.half_range import (
    FINE_OTHERWISE,
    against_half,
    collapse,
    half_of,
    likely_half,
    overflow_sign,
)
from stayfinite.rules.rule import FAIR, HINT, PROOF, Clue, Clues, Rule, quote
from stayfinite.rules.signs.going_bad import remark
from stayfinite.rules.signs.overflow_frames import overflowing_module

MOST_NAMED = 4
"""Modules named in a sentence."""


def judge(facts: Facts) -> Clues:
    """Clues: fp16 and an early failure; the same step finite in another format, or torch's message, is proof."""
    refused = facts.said(
        r"cannot be converted to type (?:at|c10)::Half without overflow|overflow.{0,20}(?:at|c10)::Half"
    )
    yield from quote(refused, PROOF)
    module = overflowing_module(facts)
    if module is not None:
        name, largest, where = module
        text = f"{name} turns finite values (largest {largest:,.0f}) into inf (fp16 limit 65,504)"
        yield Clue(text, PROOF, where, fix=f"train in bf16 or fp32, or keep {name} in fp32")
    yield from _foreseen(facts)
    sign = overflow_sign(facts)
    if sign is None:
        return
    half = half_of(facts)
    if half is not None:
        yield Clue(f"fp16 is on ({half.text.strip()})", FAIR, half.where, risk=True)
    elif (likely := likely_half(facts)) is not None:
        yield likely
    else:
        yield Clue("no setting names the precision", -HINT)
    yield sign
    if collapse(facts) is not None:
        yield Clue("the collapsed loss scale is a separate finding", -HINT, sign.where)
    yield from quote(
        remark(facts, FINE_OTHERWISE) if half is not None else None, FAIR + HINT, "reported to work otherwise: {}"
    )
    yield from against_half(facts)


def _foreseen(facts: Facts) -> Clues:
    """Results of a pass before training; not a fault if the training does not use fp16."""
    precision = facts.seen("training.precision")
    if precision is None or precision.value != "fp16":
        return
    modules = facts.seen("headroom.fp16_modules")
    if modules is not None and modules.value:
        count = f"{len(modules.value)} modules" if len(modules.value) > 1 else "1 module"
        named = ", ".join(modules.value[:MOST_NAMED]) + (", ..." if len(modules.value) > MOST_NAMED else "")
        yield Clue(f"fp16 overflows in {count} ({named}); bf16 holds them", PROOF, modules.where)
    error = facts.seen("headroom.fp16_error")
    if error is not None and "without overflow" in error.value:
        yield Clue(error.value, PROOF, error.where)


RULE = Rule(
    code="SF101",
    fix="train in bf16 (bf16=True, fp16=False) or fp32, or keep the overflowing module in fp32",
    prior=-3.5,
    beats=("nan-loss", "loss-collapse", "lr-zero", "exploding-gradient", "zero-gradient"),
    observes={
        "headroom.fp16_modules": "modules that leave fp16's range before training, with their factors, a list",
        "headroom.fp16_error": "why a pass in fp16 could not be run",
        "training.precision": "what the training computes in: fp16, bf16 or fp32",
    },
)
