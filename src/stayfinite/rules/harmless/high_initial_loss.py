"""The first loss is high but falls: harmless.

## What it means
The first losses are far above those that one is used to and sink quickly. That is the model's start, not a fault.

## Why it happens
- mT5's and T5's span-corruption checkpoints were trained with another target format: fine-tuning starts near 20 to 30.
- An untrained model with a large vocabulary starts at `ln(vocabulary)` (10.8 for 50,000) or above.
- Losses that are summed over tokens, accumulation steps or loss terms (detectors add five to twenty of them).
- Regression in raw units.

## How to recognize it
- The loss falls from the first lines on, and halves within a small part of the log; gradient norms fall with it.
- No line is NaN and no step is skipped for long.

## How to fix it
Nothing needs to be done. To be sure, compare with the expected start: `ln(classes)` for cross entropy, the variance of
the target for a mean squared error.

## When it is a false alarm
If it does not fall, see `bad-initial-loss` and `lr-too-low`; if it rises, `lr-too-high`.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import STRONG, Clue, Clues, Rule

HIGH = 12.0
"""ln of the largest vocabularies: a higher start raises questions."""


def judge(facts: Facts) -> Clues:
    """Clues: high at first, much lower later, and no other trouble."""
    symptoms = facts.symptoms
    first, best, last = symptoms.first_loss, symptoms.best_loss, symptoms.last_loss
    if symptoms.trouble or first is None or best is None or last is None or symptoms.points < 3:
        return
    if first > HIGH and last < 0.7 * first and best > 0:
        yield Clue(f"the loss starts at {first:.4g} and falls to {last:.4g}", STRONG + STRONG, symptoms.at("start"))


RULE = Rule(code="SF903", severity="info", fix="nothing to do")
