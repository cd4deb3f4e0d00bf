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

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.numbers import finite, measured

_NAMES = (
    "dropout", "dropout_rate", "hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout",
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "lora_dropout", "classifier_dropout", "drop_rate", "p_dropout",
    "hidden_dropout",
)  # fmt: skip
DROWNS = 0.95
"""Dropping this share leaves only noise."""
HIGH = 0.6


_IN_CODE = lazy_regex(
    r"\b((?:Alpha)?Dropout\d?d?|dropout|keep_?prob)\s*(?:\(\s*(?:p\s*=\s*|rate\s*=\s*)?|=\s*)(0?\.\d+)", re.IGNORECASE
)


def judge(facts: Facts) -> Clues:
    """Clues: an extreme rate in a run that does not learn."""
    for setting in facts.settings.all(*_NAMES):
        rate = finite(setting.value)
        if rate is not None and HIGH <= rate <= 1.0:
            yield Clue(f"{setting.name}: {setting.value}", STRONG if rate >= 0.85 else FAIR, setting.where, risk=True)
            if facts.symptoms.flat or facts.symptoms.zero_norms:
                yield Clue("the loss does not move", FAIR, facts.symptoms.at("start"))
            break
    else:
        yield from _written(facts)
    largest = measured(facts, "dropout.rate")
    if largest is not None and largest[0] >= DROWNS:
        yield Clue(f"dropout {largest[0]:.4g}", PROOF, largest[1])


def _written(facts: Facts) -> Clues:
    """A rate in code: `nn.Dropout(0.9)`, `keep_prob=0.1`."""
    for where, text in facts.settings.notes:
        for name, number in _IN_CODE.findall(text):
            rate = 1.0 - float(number) if "keep" in name.lower() else float(number)
            if HIGH <= rate < 1.0 and facts.symptoms.trouble:
                yield Clue(f"dropout {rate:.2g}: {text.strip()[:80]}", STRONG if rate >= 0.85 else FAIR, where)
                return


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
