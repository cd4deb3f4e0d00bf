"""Validation text has characters that training text never has.

## What it means
Characters that are common in the validation data never occur in the training data. The model has not learned a single
token of them, so the score measures how the two files were prepared, not what was learned.

## Why it happens
- One file went through a normalization that the other did not: NFKC turns subscripts into digits (`u₂` into `u2`),
  ligatures into letters, full-width forms into ASCII; a cleaning step removed accents, quotes or emoji on one side.
- The two come from different editions, exports or scrapers, with curly quotes here and straight ones there.
- The validation set is of another language, script or domain.

## How to recognize it
- `stayfinite check --data train.csv --val val.csv` names the characters and the share of rows that hold them.
- `set(validation_text) - set(training_text)`, counted: single rare characters are normal, common ones are not.
- A validation loss far above the training loss from the first evaluation on, and a share of unknown tokens on one side
  only.

## How to fix it
- Prepare both with one function: `unicodedata.normalize("NFKC", text)` (or `"NFC"`), the same replacement of quotes,
  dashes and gaps, in one script that writes all splits.
- Split after cleaning, not before: `dataset.map(clean)` and then `dataset.train_test_split(...)`.
- Do the same to what the model gets later, at inference.

## When it is a false alarm
Where the validation set is another language or domain on purpose (zero-shot transfer), it should be so.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, STRONG, Clue, Clues, Rule


def judge(facts: Facts) -> Clues:
    """Clues: a comparison of the two files."""
    share, characters = facts.seen("data.foreign_rows_share"), facts.seen("data.foreign_characters")
    if share is not None and characters is not None and share.value > 0.01:
        named = " ".join(characters.value)
        text = f"{share.value:.0%} of the validation rows hold characters no training row has: {named}"
        yield Clue(text, PROOF if share.value > 0.1 else STRONG, share.where)


RULE = Rule(
    code="SF317",
    severity="warning",
    fix='clean both splits with one function, such as unicodedata.normalize("NFKC", text), before splitting',
    observes={
        "data.foreign_characters": "characters common in the validation data and absent from the training data, a list",
        "data.foreign_rows_share": "the share of validation rows with the commonest of them, 0 to 1",
    },
)
