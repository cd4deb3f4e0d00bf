"""Labels are shuffled separately from their inputs.

## What it means
Inputs and labels were put in different orders. Each row has the label of another one, and there is nothing to learn
but how often each label occurs.

## Why it happens
- Two calls of `randperm` or `shuffle`, one for the inputs and one for the labels.
- Two loaders with `shuffle=True` that are read side by side.
- A sort, a filter or a `drop_duplicates` on one of two arrays.

## How to recognize it
- The loss stops at the entropy of the labels (`ln(classes)` where they are balanced), on the training data as well.
- With labels in the stored order the same model learns at once.
- Print ten inputs with their labels, as the model gets them.

## How to fix it
One permutation for both: `order = torch.randperm(len(x)); x, y = x[order], y[order]`. Better: one
`TensorDataset(x, y)` and `DataLoader(..., shuffle=True)`, which keeps rows whole.

## When it is a false alarm
Random labels as a test of capacity, and augmentations such as mixup, permute labels on purpose.
"""

from stayfinite.rules.rule import Rule

RULE = Rule(
    code="SF331",
    fix="shuffle both with one permutation: order = torch.randperm(len(x)); x, y = x[order], y[order]",
    proofs={
        # How labels got an order of their own, in words; empty where they have none.
        "labels.own_order": "{}",
    },
    beats=("lr-too-low", "cannot-overfit-batch"),
)
