"""Samples of a batch influence each other.

## What it means
With one row of the input changed, the outputs of other rows change as well, in evaluation mode. What the model says of
a sample then depends on its neighbors in the batch: it learns from company that it will not have later, and its
results depend on the batch size.

## Why it happens
- Batch and time are swapped: `nn.MultiheadAttention` and `nn.Transformer` without `batch_first=True` are given
  (batch, time, features) and attend over the batch.
- `view` or `reshape` where `transpose` or `permute` was meant: features of one sample end up in another.
- A mean, a softmax or a norm over dimension 0.
- A broadcast of (batch, 1) against (batch).

## How to recognize it
- Backpropagate from the output of one sample alone: the gradient at the other inputs must be zero.
- Evaluation with a batch of 1 gives other results than with a batch of 32.
- Training looks better than it should, validation does not follow.

## How to fix it
- `batch_first=True`, or `x.transpose(0, 1)` before and after.
- `permute` to reorder dimensions, `reshape` only to join or split neighboring ones.
- Name the dimension in every reduction: `x.mean(dim=1)`.

## When it is a false alarm
BatchNorm in training mode, contrastive losses within the batch, mixtures of experts with a capacity, graphs whose nodes
are the rows, and retrieval over the batch mix samples on purpose. The probe looks in evaluation mode, and skips outputs
with a value for each pair of samples.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.numbers import measured

SEEN = 0.01
"""Change of other rows over the row's own change; smaller is rounding."""


def judge(facts: Facts) -> Clues:
    """Clues: a probe that changed one row and compared the others."""
    leak = measured(facts, "samples.leak")
    if leak is not None and leak[0] > SEEN:
        text = f"changing one row changes other rows by {leak[0]:.0%} as much"
        yield Clue(text, PROOF if leak[0] > 10 * SEEN else STRONG + 1.0, leak[1])


RULE = Rule(
    code="SF413",
    severity="warning",
    fix="batch_first=True, permute instead of view, no reduction over dimension 0",
    observes={"samples.leak": "the change of other rows' outputs over that of the one row whose input was changed"},
    warns={
        r"does not handle cross-sample decontamination": STRONG + FAIR,
    },
)
