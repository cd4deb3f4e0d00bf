"""Gradients are cleared before the optimizer uses them.

## What it means
`zero_grad` is called between `backward` and `step`, or `step` before `backward`. Every step finds gradients of 0 or
none at all. The weights never change, or change by weight decay alone.

## Why it happens
Three lines have one right order and five wrong ones. A refactoring moves one of them, a copy puts `zero_grad` at the
end of the wrong block, a helper clears gradients that the caller still needs.

## How to recognize it
- The loss does not move from the first step, and no error is raised.
- `print(next(model.parameters()).grad)` right before `optimizer.step()` shows None or zeros, and after `backward` it
  does not.
- `stayfinite doctor train.py` counts the steps that found nothing, and names the line that cleared.

## How to fix it
`optimizer.zero_grad(); loss.backward(); optimizer.step()`, in this order, once a batch. Under accumulation `zero_grad`
comes right after `step`.

## When it is a false alarm
Another optimizer's backward may leave gradients that are cleared on purpose, as the generator's does in the
discriminator of a GAN. That is fine as long as each step finds fresh gradients.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF230",
    fix="optimizer.zero_grad(), then loss.backward(), then optimizer.step()",
    proofs={
        # How many steps found no gradient though backward had just made some.
        "optimizer.steps_without_gradient": "{} steps found no gradient, although backward had run",
    },
    beats=("lr-too-low", "zero-gradient", "decay-only-updates", "loss-collapse"),
)
