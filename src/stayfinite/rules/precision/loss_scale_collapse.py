"""Every step overflows: the loss scale is at its minimum, and nothing is learned.

## What it means
Dynamic loss scaling halves the scale whenever a gradient overflows and skips that step. Here every step overflows,
whatever the scale: it falls to 1 or far below, nothing is learned, and some frameworks stop the run. The
scale is not the fault. Something in the model or the loss is infinite or NaN before scaling comes in.

## Why it happens
Training has diverged (the learning rate was too high, a bad batch poisoned the weights), or an activation leaves
fp16's range for good, or the loss itself is NaN. Gradients that are NaN stay so at any scale.

## How to recognize it
- DeepSpeed: `OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1`, then `Current loss scale
  already at minimum - cannot decrease scale anymore. Exiting run.`
- fairseq: `overflow detected, setting loss scale to: 0.0001220703125`, then `FloatingPointError: Minimum loss scale
  reached (0.0001). Your loss is probably exploding. Try lowering the learning rate, using gradient clipping or
  increasing the batch size.`
- apex: `Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to 1.0` without an end; ZeroDivisionError
  at last.
- icefall: `grad_scale: 0.0`, `grad_scale is too small, exiting`. insightface: `Fp16 Grad Scale: 0`.
- Megatron: `number of skipped iterations: 1` on every line.
- The losses before it: a climb says divergence, a plausible loss says overflow in the backward pass.

## How to fix it
Go back to a checkpoint from before the first of the skips. Then, in this order: bf16, which needs no scale; a lower
learning rate with warmup and clipping; fp32 for one step on the same batch, to see which module is not finite.

- transformers: `bf16=True, fp16=False`, `max_grad_norm=1.0`, a lower `learning_rate`, `debug="underflow_overflow"`.
- Lightning: `Trainer(precision="bf16-mixed", gradient_clip_val=1.0, detect_anomaly=True)`.
- DeepSpeed: `"bf16": {"enabled": true}`; with fp16, `"initial_scale_power": 16, "hysteresis": 2` only change how soon
  it ends.
- fairseq: `--bf16`, `--lr` lower, `--clip-norm 1.0`; a lower `--min-loss-scale` hides the fault.
- plain torch: look at `scaler.get_scale()` each step and stop below 1.

## When it is a false alarm
Skips at the very beginning, while the scale comes down from 65,536, or one skip every few thousand steps with finite
losses between them, are how dynamic scaling works (SF901).
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.precision.half_range import collapse
from stayfinite.rules.rule import HINT, PROOF, Clue, Clues, Rule


def judge(facts: Facts) -> Clues:
    """Clues: the framework gives up, or steps are skipped at a scale that protects nothing."""
    largest, precision = facts.seen("headroom.largest_scale"), facts.seen("training.precision")
    if largest is not None and precision is not None and precision.value == "fp16" and largest.value < 1:
        yield Clue(f"gradients overflow fp16 at every loss scale above {largest.value:g}", PROOF, largest.where)
    fallen = collapse(facts)
    if fallen is None:
        return
    yield fallen
    seen = facts.symptoms
    if seen.good_losses >= 2:
        yield Clue("the run had been learning before", HINT, seen.at("start"))
    exploding = facts.said(r"loss is probably exploding")
    if exploding is not None:
        yield Clue("the framework itself reports an exploding loss", HINT, exploding.where)


_SMALL = r"\bgrad(?:ient)?[ _]scale is (?:too )?small\W{1,4}(?:\d(?:\.\d+)?e-\d+|0\.0\d+)"
"""icefall's warning, and what it ends with."""

RULE = Rule(
    code="SF106",
    fix=(
        "return to a checkpoint before the skips and continue in bf16 or fp32, with a lower learning rate and clipping"
    ),
    beats=("nan-loss", "loss-collapse", "lr-zero", "loss-diverging", "zero-gradient", "amp-initial-scale-search"),
    says={_SMALL: PROOF},
    observes={
        "headroom.largest_scale": "the largest loss scale at which no gradient overflows fp16 before training",
        "training.precision": "what the training computes in: fp16, bf16 or fp32",
    },
)
