"""Cross entropy gets probabilities instead of logits.

## What it means
`CrossEntropyLoss` applies a log-softmax itself. Given probabilities, it applies a second softmax to numbers between 0
and 1: the result can never be sharp, gradients are tiny, and the loss cannot fall below `ln(e + C - 1) - 1` (0.31 for 2
classes, 0.74 for 4, 1.46 for 10, 5.91 for 1,000), however right the model is.

## Why it happens
The model ends in `nn.Softmax` because other frameworks need it, or the loop calls `softmax` for a metric and hands
the result to the loss as well. It trains, slowly, so it goes unnoticed.

## How to recognize it
- The loss starts at `ln(C)` and sticks a little above that floor while accuracy still rises.
- `softmax` on the way between the last layer and `nn.CrossEntropyLoss` or `F.cross_entropy`.
- Only training *or* only validation does it: then one of the two losses sits on the floor and the other falls.

## How to fix it
- Hand over the raw output of the last linear layer: `loss = F.cross_entropy(logits, y)`; take `logits.softmax(-1)` only
  for metrics, after the loss.
- If the model must return probabilities: return `log_softmax` and use `F.nll_loss`.
- transformers, Lightning: pass `labels=` and let the model compute the loss from its logits.

## When it is a false alarm
A softmax for a metric, for sampling, for attention or for a soft *target* is right. Distillation takes softmax of the
teacher and log-softmax of the student.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import in_script
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.numerics.first_losses import classes_of
from stayfinite.rules.numerics.formulas import code_lines, first_line
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.numbers import finite

_READ = lazy_regex(r"^cross entropy is given probabilities: ")
"""The script reader's note after following names."""
_FED = lazy_regex(
    r"cross_?entropy\w*\s*(?:\([^()]*\)\s*)?\(\s*(?:[\w.]*softmax\(|\w*prob\w*\s*,)|"
    r"softmax\(.{0,60}\).{0,80}\bcross_?entropy\w*\s*(?:\([^()]*\)\s*)?\(\s*\w*(?:prob|soft|out|pred)\w*",
    re.IGNORECASE,
)
_FED_BY_NAME = lazy_regex(r"\b(?:criterion|loss_f(?:n|unc\w*)?)\(\s*(?:(?:[\w.]*\.)?softmax\(|(\w+)\b)", re.IGNORECASE)
_WORDS = lazy_regex(
    r"softmax\b.{0,60}\b(?:before|then|and|into|\+|->|followed by|last layer|final layer|"
    r"output layer)\b.{0,40}\bcross[-_ ]?entropy|double softmax",
    re.IGNORECASE,
)
_LAST_LAYER = lazy_regex(
    r"nn\.Softmax\(|activation\W{1,4}softmax|output_activation\W{1,4}softmax|return\s+(?:F\.|torch\.)?softmax\(|"
    r"=\s*(?:F\.|torch\.)softmax\(",
    re.IGNORECASE,
)
_RETURNED = lazy_regex(
    r"return\s+(?:\w+\.)*\w*softmax\w*\(|softmax\(\s*(?:dim\s*=\s*)?-?\d?\s*\)\s*,?\s*\)\s*$|"
    r"\b(?:last|final|output) (?:layer|activation)\W{1,4}.{0,12}softmax",
    re.IGNORECASE,
)
_LOSS = lazy_regex(r"(?<!binary_)(?<!binary)(?<!categorical_)cross_?entropy(?:loss)?(?!_with_logits)", re.IGNORECASE)


_NAMED = lazy_regex(r"\b(\w+)\s*=\s*(?:[\w.]+\.)?(?:softmax|Softmax)\(", re.IGNORECASE)
_LOSS_OF = lazy_regex(r"(?<!binary_)\bcross_?entropy\w*\s*(?:\([^()]*\)\s*)?\(\s*(\w+)\b", re.IGNORECASE)


_KERAS_LOGITS = lazy_regex(r"crossentropy\w*\(.{0,60}from_logits\s*=\s*True", re.IGNORECASE)
_KERAS_OUTPUT = lazy_regex(
    r"\b(?:Dense|Conv2D|Activation|Softmax)\(.{0,80}?(?:softmax|sigmoid)|\bSoftmax\(\)|tf\.nn\.(?:softmax|sigmoid)\(",
    re.IGNORECASE,
)
_LOGIT_LOSS = lazy_regex(
    r"BCEWithLogits|binary_cross_entropy_with_logits|sigmoid_cross_entropy|sigmoid_focal_loss", re.IGNORECASE
)
_SIGMOID_OUT = lazy_regex(
    r"return\s+(?:[\w.]+\.)?sigmoid\(|"
    r"(?:with_?logits\w*|criterion|loss_f\w*)\s*(?:\([^()]*\))?\s*\(\s*(?:[\w.]+\.)?sigmoid\(",
    re.IGNORECASE,
)
_SIGMOID_LAST = lazy_regex(r"nn\.Sigmoid\(\)\s*,?\s*\)?\s*,?\s*\)\s*$", re.IGNORECASE)
_GATE = lazy_regex(r"gate|attn|attention|excit|\bse\b|\bse_|mask|alpha|squeeze", re.IGNORECASE)
_SIGMOIDED = lazy_regex(r"\b(\w+)\s*=\s*(?:[\w.]+\.)?sigmoid\(|\b(\w+)\s*=\s*[\w.()]+\.sigmoid\(\)", re.IGNORECASE)
_LOSS_CALL = lazy_regex(
    r"\b(?:\w*with_?logits\w*(?:\([^()]*\))?|criterion|loss_f\w*|bce\w*)\s*\(\s*(?:input\s*=\s*)?(\w+)", re.IGNORECASE
)


_UNWRAPPED = r"received `?from_logits=True`?, but the `?output`? argument was produced by a (?:softmax|sigmoid)"
"""Keras on TensorFlow says so where it takes the logits in front of the activation."""
LOWEST = 0.3132
"""The loss of a certain, correct answer under a second sigmoid, or softmax over two classes."""


def judge(facts: Facts) -> Clues:
    """Clues: code that applies softmax before the loss, or a loss at the resulting floor."""
    lines = list(code_lines(facts))
    read = first_line(lines, _READ)
    yield from quote(read, PROOF, "{:.160}, which a softmax returns")
    if not facts.runs:
        # In scripts, names were followed without a finding: a softmax in `predict`, a gate or a metric is fine.
        lines = [line for line in lines if not in_script(line.where)]
    names = {found.group(1) for _, text in lines for found in _NAMED.finditer(text)}
    crossed = any(_LOSS.search(text) for _, text in lines)
    fed = next((each for each in lines if _fed(each.text, names, crossed) or _WORDS.search(each.text)), None)
    if fed and not read:
        yield Clue(f"probabilities go into cross entropy: {fed[1].strip()[:160]}", PROOF, fed[0])
    elif not read:
        last = first_line(lines, _LAST_LAYER)
        loss = first_line(lines, _LOSS)
        if last and loss:
            returned = any(_RETURNED.search(text) for _, text in lines)
            stuck = bool(facts.symptoms.flat) or not facts.symptoms.healthy
            yield Clue(
                f"a softmax ({last.text.strip()[:80]}) beside cross entropy ({loss.text.strip()[:80]})",
                STRONG + HINT if returned else STRONG if stuck else FAIR,
                last.where,
            )
    unwrapped = facts.symptoms.healthy and facts.said(_UNWRAPPED) is not None
    twice = [*_twice_in_keras(lines, unwrapped=unwrapped), *_twice_sigmoid(lines, learns=facts.symptoms.healthy)]
    yield from twice
    yield from quote(facts.symptoms.contradicted("softmax twice"), PROOF)
    lowest = facts.symptoms.best_loss
    told = facts.mentioned(r"\b\d+ classes\b")
    counted = re.search(r"\b(\d+) classes\b", told.text, re.IGNORECASE) if told is not None else None
    classes = finite(facts.settings.value("num_classes", "num_labels", "n_classes", "classes", "nb_classes"))
    classes = classes or (float(counted[1]) if counted is not None else classes_of(facts))
    if classes and classes >= 2 and lowest is not None and facts.symptoms.points >= 2:
        floor = math.log(math.e + classes - 1) - 1
        if (
            floor * 0.999 <= lowest <= floor * (1.15 if facts.symptoms.points >= 5 else 1.02)
            and facts.symptoms.bad == 0
        ):
            yield Clue(
                f"the loss never falls below {lowest:.4g}; with {classes:.0f} classes a second softmax allows "
                f"{floor:.4g}",
                FAIR + HINT,
            )


def _twice_in_keras(lines: list[Line], *, unwrapped: bool) -> Clues:
    """An output layer that returns probabilities, and a loss that expects logits."""
    loss = first_line(lines, _KERAS_LOGITS)
    output = first_line(reversed(lines), _KERAS_OUTPUT)
    if loss and output and not unwrapped:
        text = f"from_logits=True, but the output is probabilities: {output.text.strip()[:100]}"
        yield Clue(text, STRONG + HINT, output.where)


def _twice_sigmoid(lines: list[Line], *, learns: bool) -> Clues:
    """A sigmoid before a loss that applies one itself."""
    loss = first_line(lines, _LOGIT_LOSS)
    if loss is None:
        return
    names = {first or second for _, text in lines for first, second in _SIGMOIDED.findall(text)}
    for where, text in lines:
        called = _LOSS_CALL.search(text)
        last = not learns and _SIGMOID_LAST.search(text) and not _GATE.search(text)
        if last or _SIGMOID_OUT.search(text) or (called and called.group(1) in names):
            yield Clue(f"a sigmoid before a loss that applies one: {text.strip()[:120]}", STRONG + HINT, where)
            return


def _fed(text: str, names: set[str], crossed: bool) -> bool:
    """Whether a line passes a softmax, or a name assigned from one, to cross entropy."""
    if _FED.search(text):
        return True
    loss = _LOSS_OF.search(text)
    if loss is not None and loss.group(1) in names:
        return True
    named = _FED_BY_NAME.search(text) if crossed else None
    return named is not None and (named.group(1) is None or named.group(1) in names)


RULE = Rule(
    code="SF605",
    severity="warning",
    fix="give cross entropy the raw logits (remove the softmax); use softmax only for metrics",
    proofs={
        # Whether the rows given to cross entropy are non-negative and sum to 1.
        "loss.input_is_probability": "the rows given to cross entropy are non-negative and sum to 1",
    },
    beats=("lr-too-low", "bad-initial-loss", "vanishing-gradient"),
    warns={
        r"received `?from_logits=true`?, but the `?output`? argument was produced by a (?:softmax|sigmoid)": PROOF,
    },
)
