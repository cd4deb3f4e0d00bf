"""The loss does not depend on the input.

## What it means
With all inputs of a batch emptied (zeros, or a single token) the loss is the same to the last bit. Whatever the
model learns, it learns from the labels alone: at best how often each of them occurs.

## Why it happens
- The forward pass uses another tensor than the one it is given: a variable of an outer scope, a cached batch, the
  labels.
- The input is multiplied by a mask that is all zero, or cut to length 0.
- A branch returns a constant: a `torch.zeros_like(x)` that was meant to be filled, a layer whose result is not used.
- Features are normalized with a spread of infinity, or clamped to one value.

## How to recognize it
- The training loss falls to the entropy of the labels (accuracy of the commonest class) and stays there.
- Predictions are the same for every sample.
- `forward(batch)` and `forward(batch with zeros)` give the same number.

## How to fix it
- Follow the input through the forward pass: print its mean and spread after each layer until they no longer depend on
  it.
- Look at masks and lengths first, then at names that are used twice.

## When it is a false alarm
A last layer or gate that starts at zero hides the input in the very first step; the probe therefore looks again with
every weight a little off zero. A model of a prior alone has no input.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF412",
    fix="trace the input through the forward pass: a mask of zeros, a wrong variable, an unused result",
    proofs={
        # Whether the loss is the same to the last bit with all inputs emptied.
        "loss.ignores_input": "the loss is identical when these inputs are zeroed",
    },
)
