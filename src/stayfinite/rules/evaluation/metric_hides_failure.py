"""A logged value hides a NaN or inf.

## What it means
Somewhere between the model and the log a NaN is replaced: by 0, by a constant, by the last good value, or by being left
out of a mean. The curves look fine, or merely odd, while every update is lost.

## Why it happens
- transformers leaves NaN and infinite losses out of the logged mean by default (`logging_nan_inf_filter=True`):
  `loss: 0.0` with `grad_norm: nan` is a NaN loss.
- `torch.nan_to_num(loss)`, `if torch.isnan(loss): loss = 0` or `continue` in the loop: the step is silently worth
  nothing. A counter is missing.
- `nanmean` over validation batches; unparsable answers counted as 0.0 (or as right); `zero_division=1` in scikit-learn.
- A gradient norm that is clipped before it is logged, or a "best" metric that starts at 0 and never gets worse.

## How to recognize it
- A loss of exactly 0.0, or the same digits again and again, with a gradient norm that is NaN or 0.
- Training losses that are finite in every line and gradient norms that are not in any.
- `nan_to_num`, `isnan(...)` with `continue` in the code of the loop.

## How to fix it
- transformers: `logging_nan_inf_filter=False`. Log the gradient norm *before* clipping.
- Count what you skip, log the count with the metric, and stop when it is more than a few in a row. This toolkit's
  `Guard` refuses such steps and records each.
- Report evaluated, unparsable and failed samples apart from the score.
- Then look for what makes the NaN: see `nan-loss`.

## When it is a false alarm
Skipping a rare bad batch on purpose, counted and logged, is sound. A loss that is truly 0 comes with a gradient norm
near 0 and finite (GRPO's first steps: the loss is 0 by construction, and the gradient is not).
"""

import math

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, Clues, Rule, quote

_REPLACED = (
    r"nan_to_num\(\s*(?:\w*loss|grad|\w+\.grad)|(?:loss|grad\w*)\s*=\s*torch\.nan_to_num|"
    r"if\b.{0,30}\b(?:is_?nan|isinf|not\s+(?:torch|math|np)\.isfinite)\b.{0,30}loss.{0,60}\b(?:loss\s*=|return 0)|"
    r"torch\.where\(\s*(?:torch\.)?isnan\(\s*\w*loss|zero_division\s*=\s*1|"
    r"\b(?:nan|inf(?:inite|inity)?|non-?finite|invalid)\b.{0,40}\b(?:sett?ing|set|replac\w+|treat\w*|report\w*|"
    r"count\w*|us(?:e|ing)|clamp\w*)\b.{0,40}\b(?:to|with|by|as|instead)\b \(?(?:0(?:\.0+)?|zero|1e\d+|\d+\.0)\b"
)


def judge(facts: Facts) -> Clues:
    """Clues: code that replaces NaN, or losses and gradient norms that contradict each other."""
    symptoms = facts.symptoms
    yield from quote(facts.mentioned(_REPLACED), STRONG + HINT, "the NaN is replaced: {:.160}")
    repeated = _repeated(facts)
    if repeated and symptoms.bad_norms:
        yield Clue(f"the loss repeats {repeated[0]:.6g} while the gradient norm is NaN or inf", FAIR, repeated[1])
    if (
        symptoms.points >= 3
        and symptoms.bad_norms == symptoms.points
        and symptoms.bad_losses == 0
        and symptoms.good_losses
    ):
        yield Clue("every loss is finite, but no gradient norm is", HINT, symptoms.at("first_bad"))


def _repeated(facts: Facts) -> tuple[float, str] | None:
    """A nonzero loss that is logged with the same digits at least four times in a row."""
    for run in facts.runs:
        count, before = 0, math.nan
        for _, value, line in run.column("loss"):
            count = count + 1 if math.isfinite(value) and value == before else 1
            before = value
            if count >= 4 and value != 0:
                return value, run.where(line)
    return None


RULE = Rule(
    code="SF806",
    severity="warning",
    fix=(
        "logging_nan_inf_filter=False, no nan_to_num on losses, count and log every skipped batch; then find the "
        "source of the NaN"
    ),
    prior=-4.5,
    beats=("loss-collapse", "nan-loss"),
)
