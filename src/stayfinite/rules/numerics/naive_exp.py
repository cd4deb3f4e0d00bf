"""An exp overflows.

## What it means
`exp(x)` leaves fp32 and bf16 at x = 88.7 and fp16 at x = 11.1. Infinity alone is one bad number; divided by another
infinity, or subtracted from it, it is NaN.

## Why it happens
- A softmax, a log-sum-exp or a sigmoid written out: `exp(x) / exp(x).sum()`, `log(1 + exp(x))`, `log(exp(a) + exp(b))`.
- An `exp` of something that the model is free to make large: `exp(logvar)` of a VAE or a Gaussian head,
  `exp(-energy / temperature)` with a small temperature, a box decoder's `exp(dw)`, importance ratios
  `exp(logp_new - logp_old)` in policy optimization, a learned logit scale (`logit_scale.exp()`).
- The perplexity `math.exp(loss)` of a large loss, which raises `OverflowError: math range error`.

## How to recognize it
- Anomaly detection blames `ExpBackward0`; numpy warns `overflow encountered in exp`.
- The loss is `inf` first and NaN later; the bad step has larger logits than the steps before.
- `torch.exp(` in the code without a subtraction of the maximum.

## How to fix it
- `torch.logsumexp(x, dim)`, `F.log_softmax`, `F.softplus(x)`, `F.logsigmoid(x)`, `torch.logaddexp(a, b)`,
  `F.cross_entropy` instead of formulas written out.
- By hand: subtract the maximum first, `(x - x.amax(dim, keepdim=True)).exp()`.
- Bound what the model may ask for: `logvar.clamp(-10, 10)`, `dw.clamp(max=math.log(1000 / 16))` (as torchvision's box
  coder does), `logit_scale.clamp(max=math.log(100))` (as CLIP does), a clipped log-ratio.
- Compute this part in fp32: `with torch.autocast("cuda", enabled=False):`.
- Perplexity: `math.exp(loss) if loss < 100 else float("inf")`.

## When it is a false alarm
torch's own softmax, log-softmax and attention subtract the maximum. A perplexity of infinity in the log does not touch
the training.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.numerics.formulas import anomaly, assigned, code_lines, first_line, lost
from stayfinite.rules.rule import FAIR, HINT, REFUTED, STRONG, Clue, Clues, Rule, quote

_EXP = lazy_regex(
    r"(?:torch|np|numpy|tf|K|math|tf\.math)\.exp\(|(?<![\w.])exp\(|\.exp\(\)|\bexpm1\(|\b(?:math|np|numpy)\.e\s*\*\*|"
    r"\bsinh\(|\bcosh\(|"
    r"\bpow\(\s*(?:math\.e|np\.e|10\.?)\s*,",
    re.IGNORECASE,
)
_BOUNDED = lazy_regex(
    r"clamp|clip|amax|\bmax\(|logsumexp|softmax|log_?1p|- ?\w*max|minimum|tanh|sigmoid|\bppl\b|perplex|\blr\b|decay|"
    r"exp\(\s*-\s*(?:[\w.\[\]]*(?:dist|sq|square|abs|norm|time|step|epoch|d2|r2)\w*|.*\*\*\s*2|.*\.(?:pow|square|"
    r"abs)\(|"
    r"\(.*\)\s*\*\*|\d[\d.]*\s*\*|torch\.(?:abs|square|cdist|norm)|\w\b\s*[/)])|"
    r"\blog\(\s*(?:\w+\.)?exp\([^()]*\)\s*-",
    re.IGNORECASE,
)
"""The exponent is bounded, negative by construction, or only printed."""
_SPREAD = lazy_regex(
    r"log_?(?:var|std|sigma|scale|alpha)\w*|logvar|log_?variance|\balpha\b|\bw\b|[tT][hw]\b|delta", re.IGNORECASE
)
_NAMED_EXPONENT = lazy_regex(
    r"\bexp\(\s*[-(]?\s*(?:[\d.]+\s*\*\s*)?(?:self\.)?(\w+)|(?:^|[^\w.])(?:self\.)?(\w+)\.exp\(\)"
)
_BOUND = lazy_regex(r"clamp|clip|minimum|tanh|sigmoid|hardtanh|- ?[\w.()]*max|amax", re.IGNORECASE)
_BOUNDED_TOO_LATE = lazy_regex(
    r"(?:clamp|clip|minimum|nan_to_num)\w*\(\s*(?:[\w.]+\.exp\(\)|(?:torch|np|tf|jnp|math|K)\.exp\()|"
    r"\.exp\(\)\s*\.(?:clamp|clip)\w*\(|\bexp\([^()]*\)\.(?:clamp|clip)\w*\(|\blog\(\s*1\.?0?\s*\+\s*.{0,40}exp\(|"
    r"\bexp\([^()]*\)\s*/\s*\(?.{0,30}\bsum\(|/\s*\(?\s*1\.?0?\s*\+\s*(?:torch|np|math)?\.?exp\(",
    re.IGNORECASE,
)
"""The result is clamped but not the exponent: the gradient is 0 times infinity."""
_SHIFTED = lazy_regex(r"\bexp\([^()]*\)\s*/\s*\(?.{0,30}\bsum\(", re.IGNORECASE)
"""A softmax in its own words."""
_SPREAD_IN_WORDS = lazy_regex(r"log_{0,2}var|reparam\w*tri[sz]", re.IGNORECASE)
_LIVES_ON_EXP = r"log_{0,2}var|\breparam\w*tri[sz]|\bvae\b|\btemperature\b\W+0?\.0\d|\blogit_scale\b"

_FLOWS = r"\bglow\b|\breal-?nvp\b|\bmaf\b|\bnormali[sz]ing[-_ ]flows?\b|\bcoupling layers?\b|--flow\b"
"""Models with an exp of a log-scale in every layer."""
ORDINARY = 1e3


def judge(facts: Facts) -> Clues:
    """Clues: a library's overflow warning, or an unbounded `exp` in a non-finite run."""
    blamed = anomaly(facts)
    if blamed and re.match(r"exp", blamed[0], re.IGNORECASE):
        yield Clue(blamed[1], STRONG + FAIR, blamed[2])
    warned = facts.said(
        r"overflow encountered in (?:exp|scalar power|power|cosh|sinh)|OverflowError: (?:math range error|\(34)|"
        r"cannot be converted to type (?:float|double)(?:32|64)? without overflow"
    )
    yield from quote(warned, STRONG + FAIR)
    bad = lost(facts)
    sigmoid = facts.said(r"\b1(?:\.0*)? ?/ ?\(1(?:\.0*)? ?\+ ?(?:\w+\.)?exp\(")
    if warned and bad is None and sigmoid is not None:
        yield Clue("a sigmoid, which is 0 where its exp is infinite", REFUTED, sigmoid.where)
        return
    if warned and bad is None and facts.symptoms.healthy:
        yield Clue("the numbers are finite", REFUTED, facts.symptoms.at("start"))
        return
    if bad or warned:
        lines = list(code_lines(facts))
        bounded = assigned([text for _, text in lines], _BOUND)
        unbounded = (each for each in lines if _EXP.search(each.text) and not _BOUNDED.search(each.text))
        code = next((each for each in unbounded if not _bounded_before(each.text, bounded)), None)
        late = first_line(lines, _BOUNDED_TOO_LATE)
        if late and _bounded_before(late.text, bounded) and _SHIFTED.search(late.text):
            text = "the maximum is subtracted before exp: it overflows only where the scores already have"
            yield Clue(f"{text} ({late.text.strip()[:100]})", REFUTED, late.where)
        elif late:
            yield Clue(
                f"the exp is bounded, but its exponent is not: {late.text.strip()[:140]}", STRONG + HINT, late.where
            )
        elif code:
            weight = STRONG + (0.5 if _SPREAD.search(code[1]) else 0.0)
            yield Clue(f"an unbounded exp: {code[1].strip()[:140]}", weight, code[0], risk=True)
        elif (flow := facts.mentioned(_FLOWS)) is not None:
            text = f"the flow applies exp() to an unbounded network output: {flow.text.strip()[:100]}"
            yield Clue(text, 3.5, flow.where, risk=True)
        elif (lives := facts.mentioned(_LIVES_ON_EXP)) is not None:
            weight = FAIR + HINT if _SPREAD_IN_WORDS.search(lives.text) else HINT
            yield Clue(f"the model relies on exp(): {lives.text.strip()[:120]}", weight, lives.where, risk=True)
        first = facts.symptoms.first_bad
        if first is not None and first.loss is not None and math.isinf(first.loss):
            yield Clue("the loss is infinite before it is NaN", HINT, facts.symptoms.at("first_bad"))


def _bounded_before(text: str, names: frozenset[str]) -> bool:
    """Whether an earlier line bounds the exponent."""
    return any((first or second) in names for first, second in _NAMED_EXPONENT.findall(text))


RULE = Rule(
    code="SF604",
    fix="use logsumexp, log_softmax, softplus or logaddexp; or clamp the exponent (logvar.clamp(-10, 10)) and "
    "subtract the maximum first",
    beats=("nan-loss", "loss-collapse", "loss-formula-singularity", "lr-too-high", "bad-data-row"),
)
