"""Backward or optimizer.step() is never called.

## What it means
The loop computes a loss and nothing follows from it: `backward` runs and no `step` does, or steps run on gradients that
no `backward` has made. The weights stay as they were initialized.

## Why it happens
A line was lost in a refactoring, is behind a condition that is never true, or lacks its parentheses:
`loss.backward` and `optimizer.step` are valid Python and do nothing.

## How to recognize it
- The loss of the same batch is the same in every epoch, to the last digit.
- `torch.equal` of a weight before and after an epoch says True.
- `stayfinite doctor train.py` counts both calls.

## How to fix it
`optimizer.zero_grad(); loss.backward(); optimizer.step()`, each with its parentheses, once per batch. Where one is
under a condition, as accumulation has it, count how often that is met.

## When it is a false alarm
A program that only measures gradients, as saliency maps and attacks do, calls `backward` and steps nothing on purpose.
"""

from stayfinite.rules.rule import PROOF, Rule

RULE = Rule(
    code="SF231",
    fix=(
        "call optimizer.zero_grad(), loss.backward() and optimizer.step(), with parentheses; check any `if` around "
        "the step"
    ),
    proofs={
        # Which of backward and step was never called, in words; empty where both were.
        "optimizer.call_missing": "{}",
    },
    beats=("lr-too-low", "zero-gradient", "loss-collapse", "params-not-in-optimizer", "detached-loss"),
    says={
        r"configure_optimizers`? returned `?none|this fit will run with no optimizer": PROOF,
        r"the closure hasn'?t been executed": PROOF,
    },
)
