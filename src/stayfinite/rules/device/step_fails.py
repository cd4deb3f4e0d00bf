"""A step fails with an error.

## What it means
Forward or backward pass raised an exception on a real batch. Training would stop at the same place.

## Why it happens
Anything that a program can do wrong: shapes that do not fit, an argument that the model does not take, a dtype that
meets another, a batch that was put together differently from what the model expects. Where the error's words name a
known cause, that cause is listed first.

## How to recognize it
The error itself, with the place where it was raised: `forward` or `backward`. In a log the shapes of two tensors that
one operation cannot join name no other cause: `mat1 and mat2 shapes cannot be multiplied`, `operands could not be
broadcast together`, `expected input to have 3 channels, but got 1`.

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
from stayfinite.rules.rule import STRONG, Clue, Clues, Rule, quote

_SHAPES = (
    r"\b(?:shapes|sizes|operands|dimensions|input|tensors?)\b.{0,60}"
    r"\b(?:cannot be (?:multiplied|broadcast)|could not be broadcast|must match (?:except|the size of)|not aligned)|"
    r"size mismatch, m1|matrix size-incompatible|incompatible shapes|is invalid for input of size|"
    r"expanded size of the tensor .{0,40}must match|expected input.{0,40} to have \d+ (?:channels|dimensions)|"
    r"expected \d(?:d| ?-?dim\w*)\b.{0,80}\bgot\b|expected .{0,40}input.{0,40}\bbut got (?:input of size|\d ?-?d)|"
    r"must be equal to input_size|is incompatible with the layer|mat1 dim \d must match|"
    r"stack expects each tensor to be equal size|kernel size can'?t be greater|shape (?:mismatch|inconsistent)|"
    r"number of dimensions .{0,40}does not match"
)
"""Two shapes that one operation cannot join."""
_OF_PYTHON = (
    r"\bmissing \d+ required (?:positional|keyword)|\btakes (?:from )?\d+ (?:to \d+ )?positional arguments?|"
    r"(?<!')\bobject (?:has no attribute|is not (?:callable|iterable|subscriptable))|unsupported operand type|"
    r"list index out of range|^(?:KeyError|NameError|UnboundLocalError)\b|local variable '\w+' referenced"
)
"""What Python itself refuses: names, attributes and arguments that are not there."""


def judge(facts: Facts) -> Clues:
    """Clues: an error in a probe, or shapes that do not fit. Weaker than any rule that knows the message."""
    if not facts.symptoms.healthy:
        yield from quote(facts.said(_SHAPES), STRONG + 0.5)
        if facts.symptoms.crash is not None:
            yield from quote(facts.said(_OF_PYTHON), STRONG + 0.5)
    error = facts.seen("step.error")
    if error is not None and error.value:
        yield Clue(str(error.value), STRONG + 0.5, error.where)


RULE = Rule(
    code="SF509",
    fix="fix the error in the last frame of your code",
    observes={"step.error": "the error that the first forward or backward pass raised"},
)
