"""Gradients are too small for fp16 and round to zero.

## What it means
Gradients below 6e-8 are 0 in fp16, and below 6e-5 they lose digits. A large share of the gradient is exactly zero
although it would not be in fp32: parts of the model stop learning while the loss looks fine, or the whole gradient
norm is 0.

## Why it happens
The loss is not scaled before backward, or the scale is fixed and too low, or it was halved so often that it protects
nothing. Means over many elements, deep models and small output layers make small gradients.

## How to recognize it
- fp16 is on, the loss is finite, and `grad_norm` is 0.0 step after step, or many parameters have a gradient of
  exactly 0.
- The same step in fp32 or bf16 has gradients that are not 0.
- The loss scale in the log is 1 or below, or `loss_scale` is set to a small constant.

## How to fix it
- plain torch: `scaler = torch.amp.GradScaler("cuda")`; `scaler.scale(loss).backward()`; `scaler.step(optimizer)`;
  `scaler.update()`. Or bf16, which needs no scaling: its smallest normal number is that of fp32.
- transformers: `fp16=True` brings its own scaler (weights in fp32); `bf16=True` needs none.
- Lightning: `precision="16-mixed"` scales, `"16-true"` does not. accelerate: `mixed_precision="fp16"` scales.
- DeepSpeed: `"fp16": {"enabled": true, "loss_scale": 0}` is dynamic scaling; any other number is a fixed scale.
- apex: `loss_scale="dynamic"`. fairseq: `--fp16-init-scale 128`, and no `--fp16-scale-tolerance` that keeps it down.

## When it is a false alarm
Gradients that are exactly 0 in fp32 as well come from a detached loss, dead units, frozen parameters or a mask (4xx).
Rows of an embedding that no token of the batch uses have zero gradients by right.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.known import number_in
from stayfinite.rules.precision.half_range import against_half
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule

MANY = 0.3
"""Share of zero gradient elements that makes fp16 a suspect."""


def judge(facts: Facts) -> Clues:
    """Clues: gradients that are zero only in fp16; in a log, a gradient norm of 0 with a nonzero loss."""
    half_share, full_share = facts.seen("gradient.zero_share"), facts.seen("worlds.fp32.zero_share")
    if half_share is not None and full_share is not None:
        lost = float(half_share.value) - float(full_share.value)
        if lost > MANY:
            yield Clue(f"{lost:.0%} of the gradient is zero in fp16 but not in fp32", PROOF, half_share.where)
    foreseen, precision = facts.seen("headroom.lost_gradients"), facts.seen("training.precision")
    if foreseen is not None and precision is not None and precision.value == "fp16" and foreseen.value > MANY:
        yield Clue(
            f"{foreseen.value:.0%} of the gradient rounds to 0 in fp16, at {foreseen.where}", PROOF, foreseen.where
        )
    half, seen = facts.context.half, facts.symptoms
    if half is None or seen.zero_norms < 2 or seen.good_losses < 2:
        return
    yield Clue(f"fp16 is on ({half.text.strip()})", HINT, half.where, risk=True)
    yield Clue(
        f"the gradient norm is exactly 0 at {seen.zero_norms} points, with a loss above 0", FAIR, seen.at("start")
    )
    fixed = facts.settings.find("loss_scale", "static_loss_scale", "fp16_loss_scale", "init_scale")
    scale = None if fixed is None else number_in(fixed.value)
    if fixed is not None and scale is not None and 0 < scale <= 16:
        yield Clue(f"the loss scale is fixed at {scale:g}", STRONG, fixed.where, risk=True)
    yield from against_half(facts)


RULE = Rule(
    code="SF105",
    fix="scale the loss (torch.amp.GradScaler, DeepSpeed fp16.loss_scale 0) or train in bf16",
    prior=-4.5,
    beats=("zero-gradient", "vanishing-gradient", "loss-collapse"),
    plans={"plan.fixed_scale": PROOF},
    observes={
        "gradient.zero_share": "the share of gradient elements that are exactly zero, 0 to 1",
        "worlds.fp32.zero_share": "the same share when the step is run in fp32",
        "headroom.lost_gradients": "the share of the gradient that fp16 makes zero in a step before training, 0 to 1",
        "training.precision": "what the training computes in: fp16, bf16 or fp32",
    },
)
