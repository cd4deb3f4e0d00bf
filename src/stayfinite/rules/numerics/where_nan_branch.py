"""The unused branch of torch.where has a NaN or inf gradient.

## What it means
`torch.where(x > 0, torch.log(x), 0)` has a healthy value for every x. In backward both branches are computed: where the
condition is false the gradient of the unused branch is multiplied by 0, and 0 x infinity is NaN. The loss is finite,
the gradient is not.

## Why it happens
Selecting *after* a dangerous operation looks like a guard and is none. The same holds for its relatives: `masked_fill`
on the result, `result[~isnan(result)].mean()`, `torch.nan_to_num(log(x))`, multiplying by a mask of zeros,
`torch.clamp` of an infinite result. All of them fix the forward pass only.

## How to recognize it
- `grad_fn=<WhereBackward0>` on a finite tensor whose gradient is NaN at the masked places.
- Anomaly detection blames `LogBackward0`, `SqrtBackward0`, `DivBackward0` or `PowBackward0` on a line with a `where` or
  a mask.
- The loss is finite at the step in which the gradient norm becomes NaN, in fp32 as well.

## How to fix it
Mask the *input* first, then compute, then select (the double where):

    safe = torch.where(x > 0, x, torch.ones_like(x))
    y = torch.where(x > 0, torch.log(safe), torch.zeros_like(x))

- Boolean selection before the operation does the same: `y = torch.log(x[x > 0])`.
- For norms add the eps inside the root: `(x * x).sum(-1).add(1e-12).sqrt()`.
- In place of `nan_to_num` after the fact, clamp the input: `torch.log(x.clamp_min(1e-6))`.

## When it is a false alarm
`torch.where` between two harmless branches, or with a constant, cannot do this. A `where` in code that has no gradient
(metrics, sampling) does not matter.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.numerics.formulas import GUARD, anomaly, code_lines, first_line, lost
from stayfinite.rules.rule import FAIR, STRONG, Clue, Clues, Rule, quote

_RISKY = (
    r"(?:\blog2?\(|\blog10\(|\blog1p\(|sqrt\(|\bpow\(|acos\(|asin\(|\bexp\(|norm\(|\*\*|\w\s*/\s*\w|reciprocal\(|"
    r"\.log\(|"
    r"\.sqrt\()"
)
_WHERE = lazy_regex(rf"\bwhere\(.{{1,160}}{_RISKY}", re.IGNORECASE)
_MENDED_AFTER = lazy_regex(
    rf"nan_to_num\(.{{0,80}}{_RISKY}|\[\s*~?\s*(?:torch\.)?(?:nan_?mask|isnan|isfinite)[^\]]*\]\s*\.(?:mean|sum)|"
    rf"masked_fill\(.{{0,60}}isnan|"
    r"\)\s*\[\s*~?\s*(?:[\w.]*mask\w*|valid\w*|ok|(?:torch\.)?(?:isnan|isfinite)\()|"
    r"\bloss\w*\s*\[\s*~?\s*\w*(?:mask|valid|nan)\w*|\bloss\w*\s*\*=?\s*~?\s*(?:\w*(?:mask|valid)\w*|\(?~?torch\.is)|"
    r"(?:mask|valid)\w*(?:\.float\(\))?\s*\*\s*\(?(?:loss\w*\b|torch\.(?:log|sqrt|square))|"
    r"masked_select\(|nanmean\(|nansum\(",
    re.IGNORECASE,
)
_SELECTED = lazy_regex(rf"{_RISKY}[^()]*\)\s*\[[^\]]*(?:[<>]|[=!]=|isfinite|isnan|mask|valid)[^\]]*\]", re.IGNORECASE)
"""`log(x)[x > 0]`: the excluded rows are computed too."""
_DOUBLE = lazy_regex(r"where\([^()]*,\s*[^(),]+,\s*torch\.(?:ones|full|tensor)", re.IGNORECASE)


_ASSIGNED = lazy_regex(r"^\s*(?:self\.)?(\w+)\s*=(?!=)\s*(.+)$")
_EDGED = lazy_regex(_RISKY, re.IGNORECASE)
_VALUE_IS_FINE = (
    r"tensor\(\[*\s*-?\d[^n]*grad_fn=<(?:S?Where|NanToNum|MaskedFill|MaskedSelect|Index|Clamp\w*|Minimum|Maximum)"
)
_GRADIENT_IS_NOT = r"\b(?:grad|grads|gradients?)\b\W{0,4}\s*(?:is |=|:)?\s*(?:tensor\()?\[*\s*(?:-?[\d.]+,\s*)*nan\b"


def judge(facts: Facts) -> Clues:
    """Clues: an unsafe operation inside a `where`, and a NaN gradient."""
    bad = lost(facts)
    blamed = anomaly(facts)
    missing = facts.mentioned(r"=\s*~?\s*(?:torch\.|np\.)?(?:isnan|isfinite)\(|float\(['\"]nan['\"]\)")
    unsafe = (each for each in code_lines(facts) if _WHERE.search(each.text) or _SELECTED.search(each.text))
    line = next((each for each in unsafe if not _DOUBLE.search(each.text)), None)
    mended = first_line(code_lines(facts), _MENDED_AFTER)
    if bad or blamed:
        if line:
            yield Clue(f"torch.where after an unsafe operation: {line[1].strip()[:140]}", STRONG + FAIR, line[0])
        elif mended:
            told = missing is not None or re.search(r"nan|isfinite", mended.text, re.IGNORECASE) is not None
            yield Clue(f"masked too late: {mended.text.strip()}", STRONG if told else FAIR, mended.where)
            if missing is not None and missing.text != mended.text:
                yield Clue(f"rows that are NaN from the start: {missing.text.strip()[:100]}", FAIR, missing.where)
        fine, gradient = facts.said(_VALUE_IS_FINE), facts.said(_GRADIENT_IS_NOT)
        if fine and gradient:
            text = (
                f"the value is finite but its gradient is not: {fine.text.strip()[:80]}; {gradient.text.strip()[:60]}"
            )
            yield Clue(text, STRONG, gradient.where)
        yield from quote(
            _apart(facts) if not line and not mended else None,
            STRONG + FAIR,
            "computed first, selected afterwards: {:.120}",
        )
    if blamed:
        operator, text, where = blamed
        if re.match(r"S?Where", operator, re.IGNORECASE):
            yield Clue(text, STRONG, where)
    if bad:
        yield from quote(facts.said(r"<S?WhereBackward"), FAIR, "{:.120}")


def _apart(facts: Facts) -> Line | None:
    """The line that selects from results that an earlier line computed unsafely."""
    computed: set[str] = set()
    for where, text in facts.settings.notes:
        used = next((name for name in computed if _chooses(text, name)), None)
        if used is not None:
            return Line(where, text)
        found = _ASSIGNED.match(text)
        if found and _EDGED.search(found.group(2)) and not GUARD.search(found.group(2)):
            computed.add(found.group(1))
    return None


def _chooses(text: str, name: str) -> bool:
    """Whether a line replaces parts of a result: `where(ok, name, 0)`, `name[bad] = 0`, `nan_to_num(name)`."""
    word = rf"(?<![\w.]){re.escape(name)}"
    return (
        re.search(
            rf"\bwhere\([^,]+,[^,]*{word}\b|\bwhere\([^,]+,[^,]+,\s*{word}\b|"
            rf"{word}\s*\[[^\]]+\]\s*=(?!=)|{word}\.(?:masked_fill_?|nan_to_num_?)\(|nan_to_num\(\s*{word}\b|"
            rf"{word}\s*\[[^\]]*(?:mask|valid|~|[<>]|[=!]=|isfinite|isnan)[^\]]*\]|"
            rf"{word}\s*\*=?\s*\(?~?\s*\w*(?:mask|valid)\w*\b|\b\w*(?:mask|valid)\w*(?:\.float\(\))?\s*\*\s*{word}\b",
            text,
        )
        is not None
    )


RULE = Rule(
    code="SF602",
    fix="mask the input before the operation: torch.where(ok, f(torch.where(ok, x, 1.0)), other)",
    prior=-4.5,
    beats=("nan-loss", "loss-collapse", "loss-formula-singularity"),
)
