"""Weight decay shrinks parameters without a gradient.

## What it means
Parameters change from step to step although their gradients are exactly zero: only decoupled weight decay moves them,
toward zero. What had been learned fades, without any sign in the loss at first.

## Why it happens
A part of the model gets no gradient (a detached branch, labels that are all masked, experts that no token is sent to,
a frozen input, an fp16 gradient that underflowed), but its parameters are in the optimizer, and AdamW decays all of
them at each step. Momentum left over from earlier steps moves them in the same way for a while.

## How to recognize it
- The norm of a parameter falls by the factor `1 - lr * weight_decay` each step, and its gradient is 0 or None filled
  with zeros.
- Evaluation gets slowly worse while the training loss is 0 or flat.

## How to fix it
The missing gradient is the fault; decay only makes it costly. Find out why it is zero: SF302 (labels), SF401
(detached loss), SF402 (frozen), SF404 (unused), SF105 (underflow).

- plain torch: `optimizer.zero_grad(set_to_none=True)`: a gradient of None is skipped, decay included; zeros are
  not.
- Freeze what shall rest: `requires_grad_(False)` before the optimizer is built.
- Groups: `{"params": head, "weight_decay": 0.0}` for embeddings, norms, biases and rarely used experts.
- transformers: `weight_decay=0.0` while searching. DeepSpeed fills absent gradients with zeros: leave such parameters
  out.

## When it is a false alarm
Rows of an embedding whose tokens are rare get zero gradients in most batches and decay in all of them: that is usual,
and small.
"""

from itertools import pairwise

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, Clue, Clues, Rule

ENOUGH, SHRUNK = 6, 0.95
"""Norms in a row, and the last over the first, that no rounding explains."""


def judge(facts: Facts) -> Clues:
    """Clues: parameters that change without a gradient, one by one or by the norm of all."""
    moved = facts.seen("update.without_gradient")
    if moved is not None and moved.value:
        named = moved.value if isinstance(moved.value, int) else len(moved.value)
        yield Clue(f"{named} parameters change while their gradients are exactly zero", PROOF, moved.where)
    for name in ("param_norm", "params_norm", "weight_norm"):
        norms = facts.metric(name)
        values = [value for value, _ in norms]
        falls = len(values) >= ENOUGH and all(later < earlier for earlier, later in pairwise(values))
        if falls and facts.symptoms.zero_norms >= len(values) and values[-1] < SHRUNK * values[0]:
            text = f"{name} shrinks from {values[0]:.4g} to {values[-1]:.4g} while the gradient is exactly 0"
            yield Clue(text, PROOF, norms[0][1])


RULE = Rule(
    code="SF212",
    severity="warning",
    fix="find out why the gradient is zero; zero_grad(set_to_none=True), freeze the part, or set its weight_decay to 0",
    prior=-5.0,
    observes={
        "update.without_gradient": "the names (or the number) of parameters that changed though their gradient was zero"
    },
)
