"""The trained weights are in fp16 without an fp32 copy.

## What it means
The weights themselves, their gradients and often the optimizer's moments are float16, and no fp32 master copy exists.
The first updates already go wrong: Adam's `eps` of 1e-8 is 0 in fp16 and the update divides by 0, or updates smaller
than a weight's last digit are lost.

## Why it happens
`.half()` or `dtype=torch.float16` comes from inference code. In training it removes the fp32 weights that mixed
precision relies on, and there is no loss scaler either, since no mixed precision is on. fp16 keeps 11 bits: a weight
of 1.0 ignores every update below 5e-4, and a gradient below 6e-8 is 0.

## How to recognize it
- The first loss is plausible; from the second or third step on everything is NaN, for good.
- The settings load in float16 and switch no mixed precision on. Lightning's `precision="16-true"`, apex `O3` and
  `model.half()` are the same thing.
- Only some batches are NaN, the loss does not fall, and single losses are absurdly large.

## How to fix it
- transformers: `from_pretrained(name, dtype=torch.float32)` and `bf16=True` (or `fp16=True`).
- Lightning: `Trainer(precision="bf16-mixed")` or `"16-mixed"`, not `"16-true"`.
- accelerate: no `.half()`; `Accelerator(mixed_precision="bf16")`.
- DeepSpeed: `"bf16": {"enabled": true}` or `"fp16": {"enabled": true}`: both keep an fp32 master copy.
- peft: an fp16 base may stay if it is frozen; adapters and `modules_to_save` in fp32 (`autocast_adapter_dtype=True`).
- apex: `O1` or `O2`, not `O3`. plain torch: `model.float()` and `torch.autocast`.
- Where memory forbids it: bf16 weights with an optimizer that rounds stochastically or keeps a compensation term.

## When it is a false alarm
A frozen fp16 base under fp32 adapters is fine. So are frameworks that load in fp16 and keep a master copy on their
own (DeepSpeed, Megatron, FSDP with a mixed-precision policy over fp32 parameters).
"""

import math
import re

from stayfinite.rules.facts import Facts
from stayfinite.rules.precision.adam_eps_underflow import adam_on_half
from stayfinite.rules.precision.half_range import (
    against_half,
    comes_back,
    half_of,
    half_weights,
    likely_half,
    overflow_sign,
)
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, REFUTED, STRONG, Clue, Clues, Rule

SOON = 5
"""Logged points within which the first update shows."""


def judge(facts: Facts) -> Clues:
    """Clues: fp16 weights without mixed precision, and a failure with the first updates."""
    scanned = facts.seen("optimizer.parameter_dtypes")
    if scanned is not None and re.search(r"(?<!b)float16", str(scanned.value)):
        yield Clue("the optimizer updates float16 parameters", PROOF, scanned.where)
    sign = overflow_sign(facts)
    weights, precision = half_weights(facts), facts.context.precision
    if weights is not None and weights.value != "fp16":
        yield Clue(f"the weights are in {weights.value} ({weights.text.strip()})", REFUTED, weights.where)
    true_half = facts.settings.search(
        r"\b16-true\b|\bopt_level\b.{0,6}\bO3\b|\bpure[ _-]?fp16\b|\bfull[_-]fp16\b(?!\W{1,3}(?:false|0|no)\b)"
    )
    if true_half is not None:
        yield Clue(f"a mode without fp32 weights ({true_half[1].strip()})", STRONG, true_half[0], risk=True)
    elif weights is not None and weights.value == "fp16":
        whole = re.search(r"\bhalf\b", weights.text) is not None
        yield Clue(f"weights in fp16 ({weights.text.strip()})", 3.0 if whole else 2.5, weights.where, risk=True)
        if facts.context.adapters is not None:
            yield Clue("adapters are trained, perhaps in fp32", -HINT, facts.context.adapters.where)
        if precision is not None and precision.value in ("bf16", "fp32") and sign is not None:
            yield Clue(f"without fp16 mixed precision ({precision.text.strip()})", HINT, precision.where)
        if sign is not None and adam_on_half(facts):
            yield Clue("Adam's eps, 0 in fp16, explains it too", -HINT, weights.where)
    if sign is None:
        return
    yield sign
    seen = facts.symptoms
    first_step = None if seen.first_bad is None else seen.first_bad.step
    soon = 1 <= seen.good_before <= SOON and seen.good_after == 0 and (first_step is None or first_step <= 10 * SOON)
    zero_soon = seen.zero_loss and 1 <= seen.good_losses <= SOON and (seen.bad_evals > 0 or seen.bad > 0)
    if soon or zero_soon:
        yield Clue("the first losses are fine; the first updates break it", FAIR, seen.at("first_bad"))
    if comes_back(facts) and _stands_still(facts):
        yield Clue("NaN and finite losses alternate, and the finite ones do not fall", FAIR, seen.at("first_bad"))
    if weights is None and true_half is None:
        hinted = half_of(facts) is not None or likely_half(facts) is not None
        yield Clue("no setting puts the weights in fp16", -HINT if hinted else AGAINST)
        yield from against_half(facts)


def _stands_still(facts: Facts) -> bool:
    seen = facts.symptoms
    return (
        seen.first_loss is not None
        and seen.last_loss is not None
        and math.isfinite(seen.last_loss)
        and seen.last_loss > 0.8 * seen.first_loss
    )


RULE = Rule(
    code="SF104",
    fix="load the weights in fp32 (dtype=torch.float32) and enable mixed precision (bf16=True), or train in bf16",
    beats=("fp16-overflow", "nan-loss", "loss-collapse", "nan-weights"),
    observes={"optimizer.parameter_dtypes": "the dtypes of the parameters that the optimizer updates, as text or list"},
    plans={"plan.pure_fp16": STRONG + HINT},
)
