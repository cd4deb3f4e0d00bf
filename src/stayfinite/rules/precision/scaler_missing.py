"""fp16 mixed precision runs without a gradient scaler.

## What it means
The forward pass computes in fp16 and the loss goes to `backward()` unscaled. Gradients below 6e-8 become 0 in fp16, and
those below 6e-5 lose digits: parts of the model learn little or nothing, silently. The loss still falls, only
slower and to a worse place.

## Why it happens
`torch.autocast(dtype=torch.float16)` was copied without its other half, `torch.amp.GradScaler`. Or a script was moved
from bf16, which needs no scaler, to fp16 for an older card. Or the scaler was made with `enabled=False`, or for a
device that is not there, which switches it off.

## How to recognize it
- `autocast(..., dtype=torch.float16)` (on CUDA also without a dtype: fp16 is the default) and a bare
  `loss.backward()`.
- Gradients that are exactly 0 in fp16 and not in fp32, most of them in the first layers.
- `preflight(...)` sees products in fp16 and is given no scaler.

## How to fix it
- plain torch: `scaler = torch.amp.GradScaler("cuda")`, then `scaler.scale(loss).backward()`,
  `scaler.unscale_(optimizer)` before clipping, `scaler.step(optimizer)`, `scaler.update()`.
- Where the card has it: `dtype=torch.bfloat16` and no scaler.
- transformers, accelerate, Lightning (`16-mixed`) and DeepSpeed bring a scaler of their own.
- `preflight(..., scaler=scaler)`: give it the one that the training uses.

## When it is a false alarm
The loop has a scaler and the check was not given it. A fixed loss scale written by hand, `(loss * 1024).backward()`,
does the same work. Evaluation needs none.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import HINT, PROOF, STRONG, Clue, Clues, Rule


def judge(facts: Facts) -> Clues:
    """Clues: fp16 products, fp32 weights and no scaler; only a probe sees it."""
    missing = facts.seen("scaler.missing")
    if missing is not None and missing.value:
        yield Clue("the forward pass computes in fp16 without a gradient scaler", STRONG + 1.0, missing.where)


RULE = Rule(
    code="SF116",
    severity="warning",
    fix="scale the loss with torch.amp.GradScaler (and give it to preflight as scaler=...), or autocast to bf16",
    plans={"plan.scaler_missing": STRONG + HINT},
    observes={"scaler.missing": "whether products run in fp16 over fp32 weights and no enabled scaler is there"},
    says={
        r"loss scaling is required for this configuration": PROOF,
        r"fp16 expects a grad scaler": PROOF,
        r"attempted (?:step|unscale_) but _scale is none|may indicate your script did not use scaler\.scale": PROOF,
    },
)
