"""A loss on probabilities or log-probabilities gets raw logits.

## What it means
`BCELoss` takes the log of its input and of 1 minus it, so the input has to lie between 0 and 1; `NLLLoss` and
`KLDivLoss` expect log-probabilities. Raw scores make the log of a negative number, a loss below 0, or an assertion on
the device.

## Why it happens
The sigmoid or log-softmax was forgotten or removed on one path (train or evaluation), `BCELoss` was meant to be
`BCEWithLogitsLoss`, or targets are outside 0 to 1 (class ids, -100, pixel values up to 255). A NaN prediction trips the
same check.

## How to recognize it
- `all elements of input should be between 0 and 1`, `Assertion input_val >= zero && input_val <= one failed`
  (the same of `target` means labels that are out of range: see SF305).
- Keras: `categorical_crossentropy` without `from_logits=True` behind a last layer without activation, and a loss that
  stays at 1.1921e-07, the bound that probabilities are clipped to.
- `NLLLoss` or `nll_loss` with a negative loss that keeps falling.
- `binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast`: the same pair under mixed precision.

## How to fix it
- `nn.BCEWithLogitsLoss()` (or `F.binary_cross_entropy_with_logits`) on raw scores, and no sigmoid before it. It is safe
  in fp16, too.
- `F.cross_entropy(logits, y)` instead of `F.nll_loss(logits, y)`; `F.kl_div(F.log_softmax(a, -1), F.log_softmax(b, -1),
  log_target=True, reduction="batchmean")`.
- Targets: `y.float()` in [0, 1]; images divided by 255.
- If the prediction is NaN, this check is the messenger: look for what made it NaN (run that batch with anomaly
  detection).

## When it is a false alarm
If the log shows NaN before the assertion, the cause is earlier. A negative loss is right for densities, for SI-SNR
and for policies.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.numerics.formulas import code_lines, first_line
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, error_of, quote

_REFUSAL = (
    r"all elements of input should be between 0 and 1|input_val >= zero && input_val <= one|"
    r"assertion `?(?:\*?input|x) >= 0\.? && (?:\*?input|x) <= 1"
)
_FED = lazy_regex(
    r"(?:BCELoss\(\)|binary_cross_entropy|nll_loss|NLLLoss\(\))\s*\(\s*(?!log_)\w*(?:logit|score|raw)\w*", re.IGNORECASE
)
_LAYERS = lazy_regex(r"\bnn\.(?:Linear|Conv\w+|LSTM|GRU|RNN|Embedding|Transformer\w*)\b")
"""The model is in the script, so its last layer would be visible."""
_TURNED = lazy_regex(r"log_?softmax|sigmoid", re.IGNORECASE)

_LISTED = r"\bDense(?:Layer)?\b|\bLinear\b|\bFullyConnected\b"
"""A model is described layer by layer."""
_OF_LOG_PROBABILITIES = r"\bctc(?:_?loss)?\b|\bNLLLoss\b|\bnll_loss\b"
FAR_BELOW = -1.0
"""No rounding makes a loss of probabilities so small."""
FLOOR = 1.1921e-07
"""-log(1 - 1e-7) in fp32: Keras's cross entropy for a "probability" clipped to its upper bound."""


def judge(facts: Facts) -> Clues:
    """Clues: an error message, or code that passes logits to a loss on probabilities."""
    refusal = facts.said(_REFUSAL)
    if refusal:
        yield Clue(error_of(refusal.text)[:200], PROOF, refusal.where)
        squashed = facts.mentioned(r"\bsigmoid\b") if facts.mentioned(r"\bno (?:\w+ )?sigmoid") is None else None
        if squashed is not None and facts.symptoms.crash is not None:
            yield Clue(f"after a sigmoid only NaN is outside: {squashed.text.strip()[:80]}", AGAINST, squashed.where)
    yield from quote(facts.said(r"bceloss are unsafe to autocast"), STRONG + FAIR, "{:.200}")
    fed = first_line(code_lines(facts), _FED)
    if fed:
        # The name alone is a guess: log-probabilities are often called logits.
        shown = facts.settings.search(_LAYERS) is not None and facts.settings.search(_TURNED) is None
        weight = STRONG + HINT if facts.runs or shown else HINT
        yield Clue(f"raw scores in: {fed.text.strip()[:140]}", weight, fed.where)
    negative = facts.symptoms.contradicted("negative loss")
    if negative is not None and fed is None:
        yield Clue(negative.text, FAIR + HINT / 2, facts.symptoms.at("start"))
        layers, turned = facts.mentioned(_LISTED), facts.mentioned(r"softmax")
        if layers is not None and turned is None:
            yield Clue(f"no softmax among the layers ({layers.text.strip()[:60]})", FAIR, layers.where)
    told, likelihood = facts.symptoms.said("negative loss"), facts.mentioned(_OF_LOG_PROBABILITIES)
    below = facts.symptoms.best_loss is not None and facts.symptoms.best_loss < FAR_BELOW
    if (told is not None or below) and likelihood is not None and facts.symptoms.contradicted("negative loss") is None:
        text = f"the loss is negative, so its input is not log_softmax output: {likelihood.text.strip()[:80]}"
        yield Clue(text, STRONG + FAIR, likelihood.where)
    yield from _keras(facts)


def _keras(facts: Facts) -> Clues:
    """Keras's cross entropies expect probabilities unless `from_logits=True`."""
    loss = facts.mentioned(r"(?:sparse_)?(?:categorical|binary)_?crossentropy")
    if loss is None or facts.mentioned(r"from_logits\s*=\s*True") is not None:
        return
    if facts.symptoms.healthy and facts.symptoms.last_loss is not None and facts.symptoms.last_loss > FLOOR * 2:
        return
    bare = facts.mentioned(r"activation\W{1,3}(?:None|null|linear)\b")
    last = list(code_lines(facts))[::-1]
    outer = next((line for line in last if re.search(r"\b(?:Dense|Activation)\(", line.text)), None)
    if outer is not None and facts.symptoms.trouble and re.search(r"activation\W{1,3}(?:tanh|relu|elu)\b", outer.text):
        yield Clue(f"an output below 0 has no logarithm: {outer.text.strip()[:80]}", STRONG + HINT, outer.where)
        return
    dense = next(
        (text for _, text in reversed(list(code_lines(facts))) if re.search(r"\b(?:Dense|Conv2D)\(", text)), None
    )
    squashed = facts.mentioned(r"Activation\(|softmax") is not None
    if bare is None and dense is not None and "activation" not in dense and not squashed:
        bare = Line(loss.where, dense)
    if bare is not None:
        yield Clue(f"raw logits ({bare[1].strip()[:80]}) go into {loss.text.strip()[:60]}", STRONG + HINT, bare[0])


RULE = Rule(
    code="SF606",
    fix="use BCEWithLogitsLoss (or cross_entropy) on the raw logits and remove the sigmoid; targets between 0 and 1",
    proofs={
        # Whether a loss on probabilities was given values outside 0 to 1.
        "loss.input_outside_unit": "a loss on probabilities gets values outside 0 to 1",
    },
    beats=("nan-loss", "label-out-of-range", "flipped-sign", "loss-collapse"),
    says={
        r"y_prob contains values (?:greater than 1|less than 0|lower than 0)": PROOF,
    },
)
