"""The first step fails with an error.

## What it means
Forward or backward pass raised an exception on a real batch. Training would stop at the same place.

## Why it happens
Anything that a program can do wrong: shapes that do not fit, an argument that the model does not take, a dtype that
meets another, a batch that was put together differently from what the model expects. Where the error's words name a
known cause, that cause is listed first.

## How to recognize it
The error itself, with the place where it was raised: `forward` or `backward`.

## How to fix it
- Read the last line of the error and the innermost line of your own code in the traceback: run
  `forward(batch).backward()` by hand to see it whole.
- Shapes: print those of the batch (the banner has them) and of the layer that refuses.
- On CUDA, run the same on the CPU: errors of kernels come late and without their line.

## When it is a false alarm
A forward function that needs more than the batch (a global step, a state that the loop sets up) fails when it is called
on its own; give `preflight` one that does not.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import STRONG, Clue, Clues, Rule


def judge(facts: Facts) -> Clues:
    """Clues: an error in a probe. Weaker than any rule that knows the message."""
    error = facts.seen("step.error")
    if error is not None and error.value:
        yield Clue(str(error.value), STRONG + 0.5, error.where)


RULE = Rule(
    code="SF509",
    fix="run forward(batch).backward() by hand and fix the error in its last line",
    observes={"step.error": "the error that the first forward or backward pass raised"},
)
