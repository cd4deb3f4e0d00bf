"""The loss or gradient is NaN or inf; cause unknown.

## What it means
From some step on the loss, the gradient norm or the evaluation loss is not a finite number. An optimizer step with such
a gradient makes every weight that it touches NaN, and the run never comes back. This is a symptom; it is reported on
its own when no cause could be told from what was given.

## Why it happens
The four that are common, in this order: a number left fp16's range (65,504); the learning rate is too high and the
weights ran away; a row of the data holds NaN or nothing at all; a formula was evaluated at its edge (`log(0)`,
`sqrt(0)` in backward, `0/0`, a softmax over a row of minus infinity).

## How to recognize it
Ask in this order, each question halves the field:
1. At the first step, or after a healthy time? First step: precision, weights or labels. Later: learning rate, one
   batch, a formula.
2. Did loss or gradient norm climb before? A climb means divergence (`lr-too-high`); none means one batch or one
   formula.
3. Does the same batch fail in fp32? If not, it is precision. Does it fail with the pre-trained weights? If not, the
   weights were already NaN or inf.
4. Which operator is the first to return NaN? `torch.autograd.set_detect_anomaly(True)` names the backward one;
   transformers' `DebugUnderflowOverflow(model)` the forward one.

## How to fix it
Stop the damage first, then look:
- Keep the weights: refuse the step when loss or gradient norm is not finite (this toolkit's `Guard` does), and go back
  to the last checkpoint that is finite (`stayfinite scan`).
- transformers: `logging_nan_inf_filter=False` so that the log shows the truth, `max_grad_norm=1.0`, `bf16=True` instead
  of `fp16=True`.
- Lightning: `Trainer(detect_anomaly=True, gradient_clip_val=1.0)` for the search.
- Give this command more to look at: the config or script, and more lines of the log around the first bad
  step.

## When it is a false alarm
A gradient norm of NaN or infinity in the first few steps of fp16 with a scaler is the scaler looking for its scale. A
perplexity of infinity is an `exp` of a large but finite loss.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import Clues, Rule, quote
from stayfinite.rules.signs.witness import not_finite

LAST_RESORT = 2.4
"""Enough to be reported if no rule knows better, too little to outrank one."""


def judge(facts: Facts) -> Clues:
    """Clues: anything non-finite, unless a scaler is settling."""
    if not facts.symptoms.settles:
        yield from quote(not_finite(facts), LAST_RESORT)


RULE = Rule(
    code="SF616",
    fix=(
        "return to the last finite checkpoint, run the first bad batch in fp32 with "
        "torch.autograd.set_detect_anomaly(True), and diagnose again with the config"
    ),
)
