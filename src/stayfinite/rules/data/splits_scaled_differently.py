"""Validation inputs are scaled differently from training inputs.

## What it means
The model is trained on inputs of one mean and spread and judged on inputs of another. Its score measures the
difference in preparation, not what was learned.

## Why it happens
- `Normalize` in the training transform only, or with other numbers in the other one.
- Division by 255 on one path; `ToTensor` here and a raw array there.
- A scaler that is fitted and applied to the training rows, while the validation rows stay raw.

## How to recognize it
- Mean and standard deviation of one batch of each side: `x.mean(), x.std()`.
- A validation accuracy below a tenth of the training accuracy.
- A training loss that falls and a validation loss that is far above it from the first evaluation on.
- `stayfinite doctor train.py` compares what the model is given with and without gradients.

## How to fix it
Prepare both with one function: fit the scaler on the training rows, `transform` all others; give both transforms the
same `Normalize`, and augment in the training one only.

## When it is a false alarm
A shift that belongs to the task, as between seasons of a time series or between domains on purpose, is fine.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: mean and standard deviation of both splits; an evaluation far below the training."""
    yield from quote(
        facts.symptoms.contradicted("evaluation far off"), FAIR + HINT, "{}: validation inputs are scaled differently"
    )


RULE = Rule(
    code="SF330",
    fix="apply the training data's normalization, with its mean and std, to the validation data",
    proofs={
        # Mean and spread of both sides in words, where they differ; empty where they agree.
        "data.splits_scaled": "{}",
    },
    beats=("wrong-mode", "metric-stuck"),
    says={
        r"training env not being wrapped the same way as the evaluation env": PROOF,
    },
)
