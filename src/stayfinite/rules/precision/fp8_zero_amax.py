"""An fp8 scale is infinite: it was computed from zeros.

## What it means
The scale of an fp8 tensor, or of one of its rows, is fp8's largest number over the largest value (amax). For a tensor
or row of zeros that is a division by 0. The scale is infinite, and 0 times infinity is NaN. A tiny amax does the same:
448 / 1e-37 leaves fp32.

## Why it happens
- A cast of one's own without a lower bound: `scale = 448 / x.abs().max()`.
- Rowwise scales of activations with rows of zeros: padding, a dead unit, an adapter that starts at 0, a gradient that
  does not reach a row.
- Inference kernels that training goes through: their scales have no lower bound unless one is given.

## How to recognize it
- NaN at the first step that has such a row, often the very first.
- `(x.abs().amax(-1) == 0).any()` before the cast is True.

## How to fix it
- `scale = 448 / x.abs().amax(-1, keepdim=True).clamp_min(1e-12)`.
- torchao, for a float8 base under adapters: `Float8DynamicActivationFloat8WeightConfig(granularity=PerRow(),
  activation_value_lb=1e-12)`. `convert_to_float8_training` has the bound.
- Transformer Engine: newer than 1.6, which bounds the scale.

## When it is a false alarm
A library's own training cast is bounded; NaN there has another cause.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.fp8_loss import lost
from stayfinite.rules.signs.going_bad import began_well, remark

_DIVIDED = lazy_regex(
    r"(?:448(?:\.0)?|57344(?:\.0)?|\b\w*(?:fp8|e4m3|e5m2|float8)\w*(?:\([^()]*\))?(?:\.max)?|"
    r"finfo\([^()]*float8\w*\)\.max)"
    r"\s*/\s*\(?[\w.\[\]]*(?:amax|abs\(\)\.(?:a?max)\b)|"
    r"(?:amax|\bmax)\b[^=/]{0,40}/\s*(?:448|57344|\w*(?:fp8|e4m3|e5m2|float8)_?max)",
    re.IGNORECASE,
)
"""`448 / x.abs().max()`, `fp8_max / amax`, or the inverse as a divisor."""
_BOUNDED = lazy_regex(r"clamp|clip\(|maximum\(|\beps\b|1e-\d|where\(|\+ ?\w*eps", re.IGNORECASE)
_SAID = (
    r"\bamax\b.{0,30}\b(?:is|are|of|=|==) ?(?:0|zero|all zeros?)\b|"
    r"\bscales?(?: factors?)? (?:is |of |= ?|becomes? )?(?:0|zero)\b|"
    r"\b(?:all[- ]zeros?|zeroed|zero activation) (?:token )?(?:tensors?|rows?|blocks?|channels?|inputs?)\b"
)
_EIGHT = r"\b(?:fp8|float8)"
_UNBOUNDED_CONFIG = r"\bFloat8DynamicActivationFloat8Weight\w*\("


def judge(facts: Facts) -> Clues:
    """Clues: a cast whose scale has no lower bound, and NaN."""
    sign = lost(facts)
    broken = sign is not None and facts.symptoms.trouble
    for where, text in facts.statements:
        if _DIVIDED.search(text) and not _BOUNDED.search(text):
            fix = "clamp amax: .clamp_min(1e-12) before the division"
            yield Clue(f"a scale without a lower bound: {text.strip()[:100]}", STRONG, where, risk=True, fix=fix)
            break
    if sign is None or not broken:
        return
    if facts.context.eight_bits is not None or facts.mentioned(_EIGHT):
        yield from quote(remark(facts, _SAID), STRONG)
    config = facts.mentioned(_UNBOUNDED_CONFIG)
    if config is not None and "activation_value_lb" not in config.text:
        yield Clue(
            f"activations are cast without a lower bound ({config.text.strip()[:80]})", FAIR + HINT, config.where
        )
        yield sign
        if began_well(facts) is None:
            yield Clue("no step was finite", HINT, sign.where)


RULE = Rule(
    code="SF120",
    fix="clamp amax before the division, .clamp_min(1e-12); torchao: activation_value_lb=1e-12",
    beats=("nan-loss", "fp8-saturation", "loss-collapse"),
)
