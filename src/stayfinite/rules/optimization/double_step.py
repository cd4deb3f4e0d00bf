"""Backward or step runs twice on one batch.

## What it means
The optimizer is stepped twice on the same gradients, or the same graph is walked backwards twice. Adam then counts
two steps and moves nearly twice as far; the schedule runs at double speed; or torch stops, because the graph has been
freed or the scaler has been used up.

## Why it happens
A framework steps, and the script does too (DeepSpeed's engine, Lightning's automatic optimization, accelerate).
Several losses each call `backward()` on a graph they share; a recurrent state is carried from batch to batch without
`detach()`, so that the second backward reaches into the first graph; a GAN's discriminator loss reaches into the
generator.

## How to recognize it
- `Trying to backward through the graph a second time`: two walks over one graph.
- `step() has already been called since the last update()`, `unscale_() has already been called on this optimizer
  since the last update()`.
- The optimizer's own step count grows by two for each batch.

## How to fix it
- Add the losses, then one `(a + b).backward()`. `retain_graph=True` hides the matter, and costs memory.
- Recurrent state: `h = h.detach()` between batches. GAN: `discriminator(fake.detach())`.
- DeepSpeed: `engine.backward(loss); engine.step()` and nothing else; its `step` steps the schedule, too.
- Lightning: no `optimizer.step()` unless `self.automatic_optimization = False`.
- GradScaler: one `unscale_` and one `step` for each optimizer, then one `update` for all.

## When it is a false alarm
Two optimizers with one step each, sharpness-aware and look-ahead methods, and second-order methods step or walk twice
by design.
"""

import itertools
import re

from stayfinite.rules.facts import Facts
from stayfinite.rules.optimization.loop_code import STEP, calls
from stayfinite.rules.rule import HINT, PROOF, STRONG, Clue, Clues, Rule, quote

TWICE_SCALED = (
    r"step\(\) has already been called since the last update|unscale_?\(\) has already been called on this optimizer"
)
TWICE_WALKED = (
    r"trying to backward through the graph a second time|saved (?:intermediate values|tensors).{0,40}already been freed"
)
BY_DESIGN = r"\bSAM\b|first_step|second_step|lookahead|LBFGS|closure"


def judge(facts: Facts) -> Clues:
    """Clues: torch's error, or the same call twice in a row in the script."""
    yield from quote(facts.said(TWICE_SCALED), PROOF)
    yield from quote(facts.said(TWICE_WALKED), STRONG + HINT)
    design = facts.settings.search(BY_DESIGN)
    steps = calls(facts, STEP)
    for earlier, later in itertools.pairwise(steps):
        if later.order - earlier.order == 1 and _callee(earlier.text) == _callee(later.text) and design is None:
            yield Clue(f"{_callee(later.text)} is called twice in a row", STRONG, later.where, risk=True)
            break


def _callee(text: str) -> str:
    found = re.search(r"[\w.]+\.step\(", text)
    return f"{found.group()})" if found else text


RULE = Rule(
    code="SF209",
    fix="one backward on the summed losses and one step per batch; detach state carried to the next batch",
    beats=("lr-too-high", "nan-loss", "environment"),
    says={
        r"gradient computed twice for this partition|has already been reduced": PROOF,
    },
)
