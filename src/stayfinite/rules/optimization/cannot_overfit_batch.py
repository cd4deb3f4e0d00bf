"""The loss of a single batch does not fall at any learning rate.

## What it means
Some steps of the real optimizer were taken on one batch, with the same random numbers, and its loss did
not go down: not at the planned learning rate, and at none of ever smaller parts of it. The gradient says that it
should. Something between the gradient and the loss is wrong, and no amount of data fixes it.

## Why it happens
- A backward pass of one's own (`torch.autograd.Function`, a hook on a tensor or a parameter) that returns a wrong
  gradient, most often one of the wrong sign.
- The loss that is differentiated is not the one that is returned: a term is detached, or scaled by -1 for a gradient
  reversal that was meant for one part only.
- The optimizer updates other tensors than the forward pass reads: a copy of the weights, a cached product of them, an
  average that is loaded back.
- A step that undoes itself: weights tied by copying, a constraint that projects every update away.

## How to recognize it
- The loss of one batch, trained on alone, stays where it is or climbs, at every learning rate.
- `torch.autograd.gradcheck` fails for a function of one's own.
- The gradient times the update is well below 0 and the loss does not follow.

## How to fix it
- `torch.autograd.gradcheck(function, inputs_in_float64)` for every backward that you wrote yourself.
- Take hooks off, one by one: `register_hook`, `register_full_backward_hook`, gradient reversal layers.
- Compare a finite difference: `(loss(w + h * d) - loss(w - h * d)) / (2 * h)` against `(grad * d).sum()`.
- Recompute in the forward pass whatever depends on weights, and read `model.parameters()` after the optimizer was made.

## When it is a false alarm
Adversarial training has a part that is meant to climb: look at one player at a time. A loss with random numbers from a
generator of its own changes between passes; the test reports it. A batch that is learned already cannot fall
further.
"""

from collections.abc import Callable
from typing import Any

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, REFUTED, Clue, Clues, Rule

MOST = 0.5
"""Share of lost updates that explains everything."""


def judge(facts: Facts) -> Clues:
    """Clues: the learning test, unless something simpler explains why the weights stay."""
    steps = facts.seen("learning.falls")
    if steps is None or steps.value or facts.seen("learning.falls_at") is not None:
        return
    text = f"the loss of one batch does not fall ({steps.where}), at any learning rate tried"
    yield Clue(text, PROOF, "the learning test")
    for name, still, reason in PLAINER:
        seen = facts.seen(name)
        if seen is not None and still(seen.value):
            yield Clue(reason, REFUTED, seen.where)


PLAINER: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("optimizer.lr", lambda rate: rate == 0, "the learning rate is 0"),
    ("optimizer.missing_parameters", bool, "parameters are not in the optimizer"),
    ("update.lost_share", lambda share: share > MOST, "the updates round to 0"),
    ("optimizer.parameter_dtypes", lambda dtypes: "float16" in str(dtypes), "the weights are in fp16"),
)
"""Simpler explanations for weights that stay or do not follow."""


RULE = Rule(
    code="SF223",
    fix=(
        "check custom backward functions and hooks (torch.autograd.gradcheck), and that the optimizer holds the "
        "weights used in forward"
    ),
    observes={
        "learning.falls": "whether some steps on one batch bring its loss down",
        "learning.falls_at": "the share of the learning rate at which they do, where they do not at the planned one",
        "optimizer.lr": "the learning rate that the optimizer uses",
        "optimizer.missing_parameters": "names of trainable parameters that the optimizer does not hold, a list",
        "optimizer.parameter_dtypes": "the dtypes of the parameters that the optimizer updates, as text or list",
        "update.lost_share": "the share of weights with a gradient that a step leaves bit for bit unchanged, 0 to 1",
    },
)
