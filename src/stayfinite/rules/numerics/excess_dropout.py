"""Dropout is so high that the signal is lost.

## What it means
Dropout at rate p zeroes that share of the activations and multiplies the rest by `1/(1-p)`. At 0.9 the rest is ten
times larger and nine tenths are gone; several such layers leave noise. At 1.0 nothing is left and the gradient is 0.

## Why it happens
A *keep* probability is passed as a *drop* probability (0.9 for 0.1; TensorFlow 1 had it the other way round), dropout
is applied twice (in the model and in its config), or layer drop, attention, embedding and token dropout add up.

## How to recognize it
- `dropout` of 0.6 or more in the settings (0.1 to 0.3 is usual, 0.5 in wide classifier heads).
- The training loss stays far *above* the evaluation loss of the same step, or hardly moves, while a run with dropout 0
  learns.
- In fp16 the factor `1/(1-p)` overflows.

## How to fix it
- 0.1 for transformers, 0.2 to 0.5 before a classifier's last layer, 0 for fine-tuning with little regularization and in
  reinforcement learning (ratios need the same network twice).
- transformers: `AutoConfig.from_pretrained(name, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)` (T5:
  `dropout_rate`; GPT-2: `resid_pdrop`, `embd_pdrop`, `attn_pdrop`; LoRA: `lora_dropout`).
- Read the library: is it drop or keep?

## When it is a false alarm
A small gap between training and evaluation loss in favor of evaluation is what dropout does. Rates of 0.75 are meant
for masking *inputs* (masked autoencoders).
"""

import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.numbers import measured

DROWNS = 0.95
"""Dropping this share leaves only noise."""
HIGH = 0.6
VERY_HIGH = 0.8
_WRITTEN = lazy_regex(
    r"(\w*?(?:dropout|pdrop|layerdrop|keep_?prob)\w*)(?:['\"]?\s*(?:[(:=]|\b(?:of|is|was|at|to|p|prob|rate)\b)){0,3}[\s(]*"
    r"(?:[\w.]+, )?(?:p\s*=\s*|rate\s*=\s*)?(0?\.\d+)\b(?! ?(?:%|->|→))",
    re.IGNORECASE,
)
"""A rate beside its name: `nn.Dropout(0.9)`, `F.dropout(x, p=0.9)`, `hidden_dropout_prob: 0.7`, `keep_prob=0.1`."""


def judge(facts: Facts) -> Clues:
    """Clues: an extreme rate in a run that does not learn, or that somebody asks about."""
    rates = [(rate, line) for line in facts.lines for rate in _rates(line.text)]
    rate, line = max(rates, default=(0.0, None))
    if line is not None and rate >= HIGH and not facts.symptoms.crash:
        weight = STRONG + HINT if rate >= VERY_HIGH else STRONG if facts.symptoms.trouble else FAIR
        yield Clue(f"dropout {rate:.2g}: {line.text.strip()[:80]}", weight, line.where)
        if facts.symptoms.flat or facts.symptoms.zero_norms:
            yield Clue("the loss does not move", FAIR, facts.symptoms.at("start"))
    largest = measured(facts, "dropout.rate")
    if largest is not None and largest[0] >= DROWNS:
        yield Clue(f"dropout {largest[0]:.4g}", PROOF, largest[1])


def _rates(text: str) -> Iterator[float]:
    for name, number in _WRITTEN.findall(text):
        yield 1.0 - float(number) if "keep" in name.lower() else float(number)


RULE = Rule(
    code="SF614",
    severity="warning",
    fix=(
        "dropout 0.1 (0.2 to 0.5 before a classifier's last layer); check that the value is a drop probability, not "
        "a keep probability"
    ),
    prior=-4.5,
    observes={"dropout.rate": "the largest probability of a value to be dropped, of all dropouts of a model"},
)
