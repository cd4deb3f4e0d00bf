"""An inf or NaN unrelated to training: harmless.

## What it means
Some number in the log or in a tensor is infinite or NaN, and the training does not depend on it.

## Why it happens
- Attention masks hide keys with minus infinity; `DebugUnderflowOverflow` and hand-written checks report it.
- A perplexity is `exp(loss)`: a loss of 800, or a sum of losses, makes it infinite while the loss is finite.
- Length limits and best-so-far values start at infinity (`best_loss: inf`, `early stopping ... improved from inf`).
- The mean of nothing is NaN: the reward before an episode has ended, the AP of a class without an example, an AUC with
  one class.
- `log(0)` behind a mask whose input was made safe first.

## How to recognize it
- Loss and gradient norm are finite at every step, and fall.
- The infinite number is a mask, a perplexity, a "best" or a ratio over an empty set.

## How to fix it
Nothing needs to be done. For quieter logs: `torch.finfo(dtype).min` instead of `-inf` in masks;
`math.exp(min(loss, 20))` for perplexities.

## When it is a false alarm
It is *not* harmless if a whole row of attention scores is minus infinity (`attention-fully-masked-row`), or if the
infinity is the loss.
"""

import math
import re
from collections.abc import Sequence

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, STRONG, Clue, Clues, Rule, quote

_MEANT = lazy_regex(r"ppl|perplex|best|min|ratio|patience|threshold|mask|length", re.IGNORECASE)
_WORDS = (
    r"\b(?:improved|best|from|since)\b.{0,40}(?<!\w)-?inf(?:inity)?\b(?!\s*loss)|(?:mask|masked_fill|"
    r"-inf).{0,40}\bis expected\b|\bppl\W{1,3}inf"
)


_STATISTIC = lazy_regex(
    r"(?:^|[_/ ])(?:ap|map|auc|auroc|iou|f1|recall|precision|rew\w*|return|len\w*|mean|success)", re.IGNORECASE
)

GROWN = 4.0
"""A loss that grew by this factor is not harmless."""


def judge(facts: Facts) -> Clues:
    """Clues: a non-finite number other than a loss, in an otherwise healthy run."""
    symptoms = facts.symptoms
    if symptoms.trouble or symptoms.loss_growth >= GROWN:
        return
    for run in facts.runs:
        for name, track in run.metrics.items():
            at = next((line for value, line in zip(track.values, track.lines, strict=True) if math.isinf(value)), None)
            if at is not None and _MEANT.search(name) and "loss" not in name:
                yield Clue(f"{name} is infinite and every loss is finite", STRONG + FAIR, run.where(at))
                return
            empty = _over_nothing(name, track.values)
            if empty and symptoms.good_losses:
                at = next(line for value, line in zip(track.values, track.lines, strict=True) if math.isnan(value))
                yield Clue(f"{name} is NaN {empty}, and every loss is finite", STRONG + FAIR, run.where(at))
                return
    if symptoms.good_losses:
        yield from quote(facts.said(_WORDS), STRONG + FAIR, "{:.140}")


def _over_nothing(name: str, values: Sequence[float]) -> str:
    """Why a statistic is NaN in a healthy run: no data yet, or a class without examples."""
    if not any(map(math.isnan, values)) or "loss" in name:
        return ""
    first = next((index for index, value in enumerate(values) if not math.isnan(value)), None)
    if first is not None and first > 0 and all(map(math.isfinite, values[first:])):
        return "until there is something to average"
    return "without an example" if _STATISTIC.search(name) else ""


RULE = Rule(code="SF904", severity="info", fix="nothing to do")
