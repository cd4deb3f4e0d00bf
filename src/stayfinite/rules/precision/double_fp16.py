"""The weights are in fp16, and fp16 mixed precision is on too.

## What it means
The trainable weights are stored in float16, and mixed precision with a gradient scaler is switched on as well. A
scaler multiplies the loss so that small gradients survive fp16, and divides the gradients afterwards. Gradients of
fp16 weights are fp16 themselves: dividing them would lose what the scaling saved, so torch refuses with "Attempting
to unscale FP16 gradients".

## Why it happens
Mixed precision casts to fp16 automatically, operation by operation, and needs fp32 weights. Examples for
*inference* load with `dtype=torch.float16` or call `.half()`, and that line is copied into training. Adapters put on
an fp16 base inherit its dtype, also when they are loaded again to continue training. Without a scaler that refuses, the
updates round to zero or turn NaN.

## How to recognize it
- `ValueError: Attempting to unscale FP16 gradients.` in the traceback: this is proof.
- A config with `torch_dtype=float16` (or `.half()`) and `fp16=True` (or `mixed_precision="fp16"`,
  `precision="16-mixed"`).
- In a script: `.to(device, dtype=weight_dtype)` on a module whose parameters go to the optimizer.

## How to fix it
Load in fp32, or in bf16 where the card has it, and leave the casting to mixed precision. With adapters only the
trainable parameters have to be fp32.

- transformers: `AutoModel.from_pretrained(name, dtype=torch.float32)` with `fp16=True`; better `bf16=True`,
  `fp16=False`.
- peft: `get_peft_model(model, config, autocast_adapter_dtype=True)` keeps adapters in fp32; after loading one by
  hand: `for p in model.parameters(): p.data = p.data.float() if p.requires_grad else p.data`.
- diffusers: `cast_training_params(model, dtype=torch.float32)` before the optimizer is built, also when resuming.
- Lightning: `Trainer(precision="16-mixed")` and a model in fp32; `precision="16-true"` is the other thing.
- accelerate: `Accelerator(mixed_precision="fp16")` and no `.half()`.
- DeepSpeed: `"fp16": {"enabled": true}` keeps its own fp32 master copy; do not combine it with a torch scaler.
- plain torch: `model.float()` before `torch.amp.GradScaler()`.

## When it is a false alarm
A frozen fp16 base under fp32 adapters trains where its activations fit fp16. Adapters may be in fp16 as well, so
`check` warns. DeepSpeed's fp16 mode is fine: it keeps an fp32 copy.
"""

import re

from stayfinite.rules.facts import Facts
from stayfinite.rules.precision.half_range import half_weights
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: the library's error is proof; both settings together are a risk, a smaller one with an fp32 copy."""
    refusal = facts.said(r"\bunscal\w+ (?:the |of )?(?:fp16|half|float16)\b.{0,12}\bgrad")
    yield from quote(refusal, PROOF)
    weights, precision = half_weights(facts), facts.context.precision
    if weights is None or weights.value != "fp16":
        return
    yield Clue(f"weights in fp16 ({weights.text.strip()})", HINT if refusal else FAIR, weights.where, risk=True)
    # A printed dtype says nothing about mixed precision.
    mixed = precision is not None and precision.value == "fp16" and re.match(r"\W*dtype\b", precision.text) is None
    both = precision is not None and mixed and precision.text.strip() != weights.text.strip()
    if precision is not None and both:
        yield Clue(f"fp16 mixed precision is on ({precision.text.strip()})", STRONG, precision.where, risk=True)
        symptoms = facts.symptoms
        if symptoms.bad_norms and symptoms.bad == symptoms.points and facts.context.deepspeed is None:
            yield Clue("no step has a finite gradient", FAIR, symptoms.at("first_bad"))
    elif precision is not None and precision.value == "bf16":
        yield Clue(
            f"mixed precision is in bf16, which needs no scaler ({precision.text.strip()})", -STRONG, precision.where
        )
    if refusal is None:
        yield from quote(
            facts.context.deepspeed or facts.context.adapters or facts.context.quantized,
            -FAIR - HINT,
            "trained weights may be kept in fp32 ({})",
        )


RULE = Rule(
    code="SF103",
    fix=(
        "load the weights in fp32 (dtype=torch.float32) and let mixed precision cast, or train in bf16 (bf16=True, "
        "fp16=False)"
    ),
    proofs={
        # Whether a scaler is used and the optimizer holds fp16 parameters.
        "optimizer.half_parameters_scaled": "the optimizer holds fp16 parameters and a gradient scaler is in use",
    },
    beats=(
        "pure-fp16-weights",
        "fp16-overflow",
        "fp16-overflow-model-family",
        "nan-loss",
        "adam-eps-underflow",
        "loss-collapse",
    ),
    plans={"plan.double_fp16": STRONG + HINT},
    mild_plans={"plan.double_fp16_adapters": STRONG + HINT},
)
