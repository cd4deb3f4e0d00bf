"""A gradient scaler is on, but nothing computes in fp16.

## What it means
The forward pass computes in bf16, which has the range of fp32, and the loss is scaled all the same. Nothing is gained.
The scaler doubles its scale every 2,000 steps until gradients overflow even there, skips that step, and starts over;
and without `unscale_` the loop clips and logs gradients that are thousands of times too large.

## Why it happens
A script was moved from fp16 to bf16 by changing the dtype of autocast alone. The scaler is the other half of fp16 and
goes with it.

## How to recognize it
- `torch.autocast(..., dtype=torch.bfloat16)` with `GradScaler()` without `enabled=False`.
- Gradient norms of about 65,536 times what they should be, or a logged loss scale that grows and grows.
- `preflight(...)` sees products in bf16 and is given an enabled scaler.

## How to fix it
- plain torch: `scaler = torch.amp.GradScaler("cuda", enabled=dtype is torch.float16)`: all its calls may stay, and do
  nothing.
- transformers: `bf16=True, fp16=False`. Lightning: `precision="bf16-mixed"` and no scaler in the plugin.
- accelerate: `mixed_precision="bf16"` makes none.

## When it is a false alarm
Parts of the model that compute in fp16 on their own, in a kernel that the check does not see, do need the scaler.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF117",
    severity="warning",
    fix='disable it with bf16: torch.amp.GradScaler("cuda", enabled=dtype is torch.float16)',
    proofs={
        # Whether an enabled scaler is given while products run in bf16 and none in fp16.
        "scaler.without_fp16": "the forward pass computes in bf16, but the loss is scaled",
    },
)
