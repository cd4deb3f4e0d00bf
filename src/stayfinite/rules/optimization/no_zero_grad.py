"""Gradients are never cleared and accumulate.

## What it means
torch adds each backward pass to the gradients that are already there. Without `zero_grad` every update uses the sum
of all gradients since the beginning: the gradient norm grows step by step, old batches pull as hard as the present
one, and the loss climbs or oscillates.

## Why it happens
The call is missing, is outside the loop, belongs to another optimizer, or sits behind a condition that is
never true (accumulation that counts wrongly). A model whose `zero_grad` was overridden, or parameters that are in no
optimizer, keep theirs too.

## How to recognize it
- The gradient norm grows about in proportion to the number of steps, with a loss that first falls and then climbs.
- In the script: `backward()` and `step()` in the loop, and no `zero_grad()`.

## How to fix it
- plain torch: `optimizer.zero_grad(set_to_none=True)` once for each update, before backward or after the step.
- With accumulation: step and zero together, `if (i + 1) % k == 0: optimizer.step(); optimizer.zero_grad()`.
- accelerate: the same; inside `accelerator.accumulate(model)` the prepared optimizer's `zero_grad` waits automatically.
- Lightning: automatic; in manual optimization `opt.zero_grad()` is yours. DeepSpeed: `engine.step()` does it.
- transformers' Trainer does it; an overridden training loop must.

## When it is a false alarm
Accumulating over a few batches by intent is the same thing, bounded. The norm may grow for other reasons: compare two
steps on one batch.
"""

import itertools
import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import in_script
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.optimization.loop_code import BACKWARD, LOOP, STEP, ZERO, calls, learns_nothing, shows_a_loop
from stayfinite.rules.optimization.rates import optimizer_of
from stayfinite.rules.rule import FAIR, HINT, REFUTED, STRONG, Clue, Clues, Rule, quote

ENOUGH, FAR, EVEN = 16, 8, 1.25
"""Points, the last step over the first, and the largest ratio of two slopes, of norms in proportion to the steps."""
_ADAPTIVE = lazy_regex(r"adam|rmsprop|lamb|adafactor|lion", re.IGNORECASE)


def judge(facts: Facts) -> Clues:
    """Clues: a loop without the call, or a gradient that grows by the fresh one each step."""
    done_elsewhere = facts.settings.search(
        r"\bTrainer\(|deepspeed\.initialize|engine\.step|LightningModule|TrainingArguments|"
        r"\bdist(?:ributed)?_autograd\.backward"  # its gradients live for one step
    )
    if shows_a_loop(facts) and done_elsewhere is None and not learns_nothing(facts.settings):
        if any(each.cause == "no-zero-grad" and each.sure for each in facts.settings.code_faults):
            pass  # it is called where it does not help
        elif calls(facts, ZERO):
            yield Clue("the loop clears gradients", REFUTED, calls(facts, ZERO)[0].where)
        else:
            backward, step = calls(facts, BACKWARD)[0], calls(facts, STEP)[0]
            # A quoted line or two omit the obvious; a program does not.
            program = any(in_script(loop.where) for loop in calls(facts, LOOP))
            whole = facts.settings.search(rf"{LOOP.pattern}|\bdef train\w*\(|\benumerate\(") is not None
            if whole:
                text = f"backward ({backward.where}) and step without zero_grad"
                # Adam's steps stay bounded by the rate: it learns, but worse.
                mild = not facts.runs and _ADAPTIVE.search(optimizer_of(facts)) is not None
                yield Clue(text, STRONG + FAIR if program else STRONG + HINT, step.where, mild=mild)
    line = _in_proportion(facts)
    yield from quote(line, STRONG + FAIR) if line is not None else quote(_growth_of_norms(facts), FAIR)


def _in_proportion(facts: Facts) -> Line | None:
    """Norms that are the count of steps times one number: each step adds its gradient to all before it."""
    for run in facts.runs:
        rows = [(step, norm, at) for step, norm, at in run.column("grad_norm") if step > 0 and 0 < norm < math.inf]
        if len(rows) < ENOUGH or rows[-1][0] < FAR * rows[0][0]:
            continue
        slopes = [norm / step for step, norm, _ in rows]
        if max(slopes) <= EVEN * min(slopes):
            text = f"the gradient norm is {slopes[-1]:.3g} times the step, from {rows[0][1]:.3g} to {rows[-1][1]:.4g}"
            return Line(run.where(rows[-1][2]), text)
    return None


def _growth_of_norms(facts: Facts) -> Line | None:
    """A gradient norm proportional to the steps: a log-log slope near 1, almost without a fall."""
    for run in facts.runs:
        rows = [
            (step, value, line) for step, value, line in run.column("grad_norm") if math.isfinite(value) and value > 0
        ]
        if len(rows) < 12:
            continue
        first, last = rows[0], rows[-1]
        falls = sum(later[1] < earlier[1] for earlier, later in itertools.pairwise(rows))
        steps = (last[0] + 1) / (first[0] + 1)
        if steps >= 8 and falls <= len(rows) // 5 and 0.7 <= math.log(last[1] / first[1]) / math.log(steps) <= 1.4:
            return Line(
                run.where(last[2]), f"the gradient norm grows with the steps, from {first[1]:.4g} to {last[1]:.4g}"
            )
    return None


RULE = Rule(
    code="SF208",
    fix="call optimizer.zero_grad() once per update",
    beats=("lr-too-high", "exploding-gradient", "loss-diverging", "nan-loss", "no-clipping"),
)
