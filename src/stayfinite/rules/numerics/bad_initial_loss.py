"""The first loss is far from ln(classes).

## What it means
A classifier that knows nothing gives every class the same probability, and its cross entropy is `ln(classes)`: 0.69 for
2, 2.3 for 10, 6.9 for 1,000, 10.8 for a vocabulary of 50,000. A first loss far above means that the model is
confidently wrong before it has seen anything; far below, that it can see the answer.

## Why it happens
- The last layer's initial weights are too large, its bias ignores the class frequencies, or the inputs are not scaled.
- Labels are shifted, permuted or of another vocabulary, so that a *pre-trained* model looks confidently wrong.
- Pre-trained weights were not loaded (a language model starts at 11 instead of 2).
- The loss is summed, or multiplied by the accumulation steps.
- Far below: labels leak into the input, or the shift by one is missing.

## How to recognize it
Compare the first logged loss with `ln(classes)`; more than twice that, or less than a third, needs an explanation. For
a pre-trained language model on ordinary text 1.5 to 4 is usual.

## How to fix it
- Head: `nn.init.zeros_(head.bias); nn.init.normal_(head.weight, std=0.02)`, or weights of 0 for the last layer; for
  rare positives `bias = log(p / (1 - p))`.
- Check that weights were loaded (the list of newly initialized names) and that tokenizer and model belong together.
- Train on a single batch: it must go to near 0. If it does, the data is the suspect; if not, the model.

## When it is a false alarm
Logs begin after the first `logging_steps`, when the loss has already moved; regression and contrastive losses have
other starts; T5's and mT5's checkpoints begin near 20 to 30 (`high-initial-loss`); summed detector losses have no such
bound.
"""

import math

from stayfinite.rules.facts import Facts
from stayfinite.rules.numerics.first_losses import classes_of, first_loss_far_above
from stayfinite.rules.rule import FAIR, HINT, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.numbers import measured

FAR_ABOVE = 3.0
"""Multiple of ln(classes). Large models at their usual init, and pre-trained ones on other data, start at up to 2."""

_DRAWN = r"\b(?:torch|np\.random)\.randn\b"
"""Weights that the script draws itself: nothing pre-trained explains the first loss."""

BEFORE_ANY_UPDATE = 10.0
"""Times ln(classes), in the very first step: no pre-trained model on other data does that badly."""


def judge(facts: Facts) -> Clues:
    """Clues: a probe's comparison; from logs only if the number of classes is known and the run is in trouble."""
    initial, expected = measured(facts, "loss.initial"), measured(facts, "loss.expected_initial")
    if initial is not None and expected is not None and expected[0] > 0:
        ratio = initial[0] / expected[0]
        text = f"the first loss is {initial[0]:.4g} (untrained {expected[0]:.4g})"
        if ratio > FAR_ABOVE:
            yield Clue(text, STRONG + HINT, initial[1])
        elif ratio < 1 / 3:
            yield Clue(f"{text}; pre-trained weights may start there", HINT, initial[1])
        return
    classes = classes_of(facts)
    first = facts.symptoms.first_loss
    if not classes or classes < 2 or first is None:
        return
    falls = facts.symptoms.last_loss is not None and facts.symptoms.last_loss < math.log(classes)
    times = FAR_ABOVE if falls and facts.mentioned(_DRAWN) is not None else BEFORE_ANY_UPDATE
    far = first_loss_far_above(facts, times, by=1)
    if far is not None:
        yield Clue(far.text, STRONG, far.where)
        return
    if not facts.symptoms.trouble:
        return
    if first > 3 * math.log(classes):
        yield Clue(
            f"the first loss is {first:.4g} (untrained with {classes:.0f} classes: {math.log(classes):.4g})",
            FAIR,
            facts.symptoms.at("start"),
        )


RULE = Rule(
    code="SF610",
    severity="warning",
    fix="start the last layer small (std 0.02, bias 0), check labels and that pre-trained weights were loaded",
    prior=-3.5,
    observes={
        "loss.initial": "the loss of the first batch before any step",
        "loss.expected_initial": "ln(classes), where the loss is a cross entropy",
    },
)
