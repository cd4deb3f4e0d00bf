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

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, Clue, Rule


def judge(facts: Facts) -> Iterator[Clue]:
    """Clues: steps without gradients right after a backward pass."""
    seen = facts.seen("optimizer.steps_without_gradient")
    if seen is not None and seen.value:
        yield Clue(f"{seen.value} steps found no gradient, although backward had run", PROOF, seen.where)


RULE = Rule(
    code="SF230",
    slug="cleared-before-step",
    severity="error",
    title="Gradients are cleared before the optimizer uses them.",
    fix="optimizer.zero_grad(), then loss.backward(), then optimizer.step()",
    judge=judge,
    page=__doc__,
    beats=("lr-too-low", "zero-gradient", "decay-only-updates", "loss-collapse"),
    observes={
        "optimizer.steps_without_gradient": "how many steps found no gradient though backward had just made some",
    },
)
