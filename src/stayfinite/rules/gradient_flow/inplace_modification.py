"""A tensor needed by backward was modified in place.

## What it means
Autograd keeps some results of the forward to compute gradients with. One of them was changed in place before backward
came to use it. Every tensor counts its changes, so torch notices and refuses: the gradient would have been that of
other numbers.

## Why it happens
- `x += y`, `x /= norm`, `x[mask] = 0`, `x.clamp_()`, `nn.ReLU(inplace=True)` after an operation that keeps its output
  (sigmoid, tanh, exp, sqrt, softmax, normalization).
- Two losses and two optimizers, as in GANs and actor-critic: `opt_a.step()` changes weights that the second backward
  still needs.
- A recurrent state or a buffer that is written while the graph of the last step is still alive; BatchNorm statistics
  when a model is called twice before backward under DDP (`broadcast_buffers`).
- In-place changes of a parameter itself: `a leaf Variable that requires grad is being used in an in-place operation`.
- Writing into a view: `Output 0 of SplitBackward is a view and is being modified inplace`.

## How to recognize it
- `one of the variables needed for gradient computation has been modified by an inplace operation:
  [torch.cuda.FloatTensor [64, 128]], which is output 0 of ReluBackward0, is at version 2; expected version 1
  instead`. The shape and the operation say which tensor it is.
- `torch.autograd.set_detect_anomaly(True)` adds the traceback of the *forward* line that made it.

## How to fix it
- Write out of place: `x = x / norm`, `x = x.masked_fill(mask, 0)`, `torch.where(mask, 0, x)`, `nn.ReLU()` without
  `inplace=True`; `x = x.clone()` before the assignment where it has to be one.
- Two losses: compute both, call both backwards, then step; or `.detach()` what the second loss must not train.
- Parameters: `with torch.no_grad(): weight.copy_(new)`.
- DDP: `DistributedDataParallel(model, broadcast_buffers=False)`, or one forward a step.
- A recurrent state over steps: `state = state.detach()` at the head of each.

## When it is a false alarm
There is none: the gradient would be wrong. `retain_graph=True` does not help, it only keeps the broken graph.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import HINT, PROOF, Clue, Clues, Rule, quote

_REFUSED = (
    r"modified (?:by an )?in-?place|needed for gradient computation|\bin-?place\b.{0,60}\bleaf variable|"
    r"leaf variable (?:that requires grad\b.{0,40}\bin-?place|has been moved into the graph interior)|"
    r"\bversion \d+\b.{0,24}\bexpected version|view (?:was|of a leaf).{0,80}in-?place"
)


def judge(facts: Facts) -> Clues:
    """Clues: torch's error, which is proof."""
    refused = facts.said(_REFUSED)
    if refused is None:
        return
    yield Clue(refused.text, PROOF, refused.where)
    written = facts.mentioned(
        r"inplace ?= ?True|\b\w+\[[^\]]{0,60}\] ?[-+*/]?= |\b\w+ ?[-+*/]= |"
        r"\b(?:clamp|relu|add|mul|div|copy|fill|masked_fill|normal|zero)_\("
    )
    yield from quote(written, HINT, "written in place: {:.100}")


RULE = Rule(
    code="SF406",
    fix=(
        "write out of place (x = x / n, masked_fill, clone before assigning, ReLU without inplace=True), and step "
        "only after all backward passes"
    ),
    beats=("environment", "upstream-bug"),
)
