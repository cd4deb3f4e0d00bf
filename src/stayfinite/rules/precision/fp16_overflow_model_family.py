"""This model family was trained in bf16 and overflows in fp16.

## What it means
The activations of some models are larger than fp16 can hold, in every batch and with good weights. They were
pre-trained in bf16 (or fp32), whose range goes to 3e38, and nothing kept them below fp16's 65,504. In fp16 the
forward pass gives inf, the loss is NaN, and no loss scale helps, because it is the activation that overflows and not
the gradient.

## Why it happens
T5, mT5, ByT5, FLAN-T5, UL2 and Pegasus have feed-forward outputs above 1e5 in their last layers. Gemma multiplies its
embeddings by the root of the width; Qwen, LLaMA and their descendants carry a few giant channels; GPT-Neo computes
unscaled attention scores. Scripts that were written for BERT or GPT-2 switch `fp16=True` on for all models alike.

## How to recognize it
- fp16 is on, the model belongs to one of these families, and the first logged step is already lost: `loss` 0.0 or nan
  with `grad_norm` nan, `eval_loss` nan, `train_loss` 0.0 at the end, or DeepSpeed and apex skipping every step down
  to scale 1.
- transformers writes a NaN loss as 0.0 (`logging_nan_inf_filter`), so that 0.0 is the usual sight.
- The same script trains with fp16 switched off.

## How to fix it
- transformers: `bf16=True, fp16=False` on Ampere or newer; on older cards `fp16=False` (fp32).
- Lightning: `Trainer(precision="bf16-mixed")`, or `"32-true"`.
- accelerate: `accelerate launch --mixed_precision bf16`, or `no`.
- DeepSpeed: `"bf16": {"enabled": true}, "fp16": {"enabled": false}`.
- A card without bf16: `stayfinite.keep_in_range(model)` before the loop, with fp16 autocast as it is.
- fairseq: `--bf16` in place of `--fp16`. LLaMA-Factory and ms-swift: `bf16: true`, `--torch_dtype bfloat16`.
- plain torch: `torch.autocast("cuda", dtype=torch.bfloat16)` and no GradScaler.
- A card without bf16 and too little memory for fp32: adapters on a quantized base with fp32 computation, a smaller
  model, or T5's feed-forward `wo` in fp32 (transformers does so when the weights are loaded in fp16, not under
  autocast).

## When it is a false alarm
Inference in fp16 often survives where training does not. Loss 0.0 from the first step can also be a batch without any
label (SF302): count the labels that are not -100. With bf16 or fp32 in the settings this cannot be the cause.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.model_families import SUREST
from stayfinite.rules.precision.half_range import against_half, collapse, half_of, likely_half, overflow_sign
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule

ADAPTERS_BEAR_IT = frozenset({"Qwen"})
"""Families whose adapters are often trained in fp16 successfully on GPUs without bf16."""


def judge(facts: Facts) -> Clues:
    """Clues: fp16, a sensitive family, and a failed run together."""
    family, sign = facts.context.family, overflow_sign(facts)
    yield from _planned(facts)
    half = half_of(facts)
    # With settings alone, before any run, report the risk.
    planned = not facts.runs and half is not None
    if family is None or (sign is None and not planned):
        return
    surest = family.value in SUREST
    yield Clue(
        f"{family.value} models overflow in fp16 ({family.text.strip()})",
        2.5 if surest else 1.5,
        family.where,
        risk=True,
    )
    if sign is not None:
        yield sign
    fallen = collapse(facts)
    if fallen is not None and not surest and family.value != "LLaMA":
        yield Clue("the collapsed loss scale is a separate finding", AGAINST, fallen.where)
    if half is not None:
        computed = facts.context.precision is not None or facts.context.weights is None
        yield Clue(f"fp16 is on ({half.text.strip()})", FAIR if computed else HINT, half.where, risk=True)
    elif (likely := likely_half(facts)) is not None:
        yield likely
    else:
        yield Clue("no setting names the precision", -1.5 * HINT)
    yield from against_half(facts)


def _planned(facts: Facts) -> Clues:
    """Before a launch: the surest families always, the others if the whole model is trained."""
    seen = facts.seen("plan.fp16_family")
    if seen is None:
        return
    surest, adapters = seen.value["family"] in SUREST, seen.value["adapters"]
    if surest or not adapters:
        # A loss scaler gets many a LLaMA through fp16; the surest families overflow whatever the scale.
        mild = not surest or (adapters and seen.value["family"] in ADAPTERS_BEAR_IT)
        yield Clue(seen.value["text"], PROOF if surest else STRONG, seen.where, risk=True, mild=mild)


RULE = Rule(
    code="SF102",
    fix="train in bf16 (bf16=True, fp16=False); on GPUs without bf16, in fp32 (fp16=False)",
    beats=(
        "fp16-overflow",
        "loss-scale-collapse",
        "nan-loss",
        "loss-collapse",
        "lr-zero",
        "zero-gradient",
        "adam-eps-underflow",
    ),
    plans={"plan.half_vae": STRONG + HINT},
    observes={
        "plan.fp16_family": "where fp16 is on: the model's family, whether adapters alone are trained, both as text"
    },
    warns={
        r"known to nan/inf in fp16": PROOF,
    },
)
