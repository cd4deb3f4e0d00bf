"""Padding is part of the labels, so the model learns to predict it.

## What it means
The labels of short rows are filled with the padding's id, and the loss counts those positions like words. The loss
falls fast, because most of what is predicted is padding; what matters has a small share of the gradient.

## Why it happens
The loss of transformers' models leaves out the id -100, not the padding. `tokenizer(..., padding="max_length")` and
`pad_sequence(labels, padding_value=tokenizer.pad_token_id)` fill labels with the padding's own id, and nothing
replaces it before the model gets them.

## How to recognize it
- `(labels == tokenizer.pad_token_id).any()` is true for a batch, and `(labels == -100).any()` is false.
- The loss is far below that of published runs, and drops when batches have more padding.
- Answers are short or empty, and repeat the padding.

## How to fix it
- `labels[labels == tokenizer.pad_token_id] = -100`; by `attention_mask == 0` where padding and end token are one.
- `pad_sequence(labels, batch_first=True, padding_value=-100)`.
- Leave padding to `DataCollatorForSeq2Seq`, which fills labels with -100, and tokenize without `padding`.
- A loss of your own: `nn.CrossEntropyLoss(ignore_index=tokenizer.pad_token_id)`.

## When it is a false alarm
The loss leaves the padding out elsewhere, or rows have no padding because texts are packed.
"""

from stayfinite.rules.rule import PROOF, Rule

RULE = Rule(
    code="SF334",
    severity="warning",
    fix="labels[labels == tokenizer.pad_token_id] = -100 before the model gets them",
    plans={"plan.padding_learned": PROOF},
)
