"""Attention scores are not scaled by 1/sqrt(head size).

## What it means
The dot product of two random vectors of d numbers has a standard deviation of `sqrt(d)`. Without the division, scores
of heads of 64 or 128 numbers are 8 to 11 times too large: the softmax is as good as an argmax from the first step on,
its gradient vanishes, and in fp16 the scores overflow.

## Why it happens
A hand-written attention forgets the factor, divides by `d` instead of its root on one path, divides twice, or loses it
when the implementation is exchanged (`scaling` passed to one kernel and not to the other). Some models mean it so (T5
has no scaling and compensates in its initialization).

## How to recognize it
- `q @ k.transpose(-2, -1)` followed by a softmax, with no `sqrt`, `** -0.5` or `scale` between them.
- The entropy of the attention is near 0 at the start; raw scores have a standard deviation far above 1.
- Slow or no learning in a transformer of one's own; with larger heads it gets worse.

## How to fix it
- `F.scaled_dot_product_attention(q, k, v)` scales automatically; its `scale=` takes another factor.
- By hand: `scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5`.
- If scores still grow late in training: normalize queries and keys (QK-norm), or cap the logits.

## When it is a false alarm
T5-like models, models with QK-norm or a learned temperature, and linear attention do not divide.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.numerics.formulas import code_lines, first_line
from stayfinite.rules.rule import FAIR, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.numbers import measured

_PRODUCT = lazy_regex(
    r"\b(?:q|query|queries|Q)\w*\s*(?:@|\.matmul\(|\.bmm\()\s*\(?\s*(?:k|key|keys|K)\w*\.|(?:matmul|bmm|"
    r"einsum)\([^)]*\b(?:q|query|queries)\w*\s*,\s*(?:k|key|keys)\w*",
    re.IGNORECASE,
)
_SCALED = lazy_regex(r"sqrt|\*\*\s*-?\s*0?\.5|scal(?:e|ing)|/\s*\w+|temperature|norm", re.IGNORECASE)
WIDE = 4.0
"""Standard deviation of initial raw scores above which a softmax is nearly an argmax."""


def judge(facts: Facts) -> Clues:
    """Clues: the measured spread of the scores, or a query-key product that nothing scales."""
    spread = measured(facts, "attention.score_std")
    if spread is not None and spread[0] > WIDE:
        text = f"raw attention scores have a standard deviation of {spread[0]:.3g} before training"
        yield Clue(text, STRONG + FAIR, spread[1])
    lines = list(code_lines(facts))
    product = first_line(lines, _PRODUCT, but=_SCALED)
    if product and not any(
        _SCALED.search(text) for _, text in lines if re.search(r"score|attn|attention|\bq\b|head", text, re.IGNORECASE)
    ):
        yield Clue(f"query-key product without scaling: {product.text.strip()[:140]}", STRONG, product.where, risk=True)


RULE = Rule(
    code="SF612",
    severity="warning",
    fix="use F.scaled_dot_product_attention, or multiply the scores by head_size ** -0.5",
    prior=-4.5,
    observes={"attention.score_std": "standard deviation of the attention scores before the softmax, before training"},
)
