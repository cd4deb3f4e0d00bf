"""Prediction and target have different shapes, and the loss compares each with every other.

## What it means
A prediction of shape (N, 1) against a target of shape (N) is no error in torch: both are stretched to (N, N), and the
loss is the mean over all pairs. Its minimum is reached when every prediction is the mean of the targets. The loss
falls, then stays, and the model predicts one constant.

## Why it happens
- A last layer `nn.Linear(h, 1)` gives (N, 1); the labels from a table or a DataLoader are (N).
- Slicing keeps or drops an axis: `y[:, 0]` against `y[:, :1]`; `out[-1]` of a sequence; `squeeze()` that also drops a
  batch of 1.
- A wrong `view` or `reshape` merges the batch into one row.

## How to recognise it
- `UserWarning: Using a target size (torch.Size([64])) that is different to the input size (torch.Size([64, 1])). This
  will likely lead to incorrect results due to
  broadcasting.` It comes once, at the first step, from `mse_loss`, `l1_loss`, `smooth_l1_loss` or `huber_loss`.
- `binary_cross_entropy` and `binary_cross_entropy_with_logits` refuse instead:
  `Target size ... must be the same as input size`.
- A hand-written loss (`((pred - y) ** 2).mean()`) says nothing at all.
- All predictions end near the mean of the targets; R2 is near 0.

## How to fix it
- `loss = F.mse_loss(pred.squeeze(-1), y)`, or `y.unsqueeze(-1)`: give both the same shape, and name the axis in
  `squeeze`.
- `assert pred.shape == y.shape` before the loss, above all before one of your own.
- transformers: `num_labels=1` and float labels of shape (N) for regression; the model squeezes by itself.
- Make the warning an error while developing: `warnings.filterwarnings("error", message="Using a target size")`.

## When it is a false alarm
Broadcasting on purpose (one target for several heads, a weight per class) is fine when the result is what was meant;
write it out with `expand_as`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, STRONG, Clue, Rule

_SIZES = re.compile(r"torch\.Size\(\[([\d, ]*)\]\)")

_COLUMN_AND_ROW = (
    r"[\[(]\s*(\d+|n|b|batch\w*)\s*,\s*1\s*[\])].{0,50}[\[(]\s*\1\s*,?\s*[\])]|"
    r"[\[(]\s*(\d+|n|b|batch\w*)\s*,?\s*[\])].{0,50}[\[(]\s*\2\s*,\s*1\s*[\])]"
)
"""(64, 1) beside (64,): their difference is (64, 64)."""


def judge(facts: Facts) -> Iterator[Clue]:
    """The loss's own warning, or shapes that a probe saw."""
    warned = facts.said(
        r"using a target size .{0,60}different to the input size|lead to incorrect results due to broadcasting"
    )
    if warned is not None and not _pairwise(warned.text):
        yield Clue(warned.text, PROOF, warned.where)
    refused = facts.said(r"target size .{0,60}must be (?:the )?same as (?:the )?input size")
    if refused is not None:
        shapes = [[part.strip() for part in text.split(",") if part.strip()] for text in _SIZES.findall(refused.text)]
        alike = len(shapes) == 2 and [n for n in shapes[0] if n != "1"] == [n for n in shapes[1] if n != "1"]
        yield Clue(refused.text, PROOF if alike else STRONG, refused.where)
    written = facts.mentioned(_COLUMN_AND_ROW)
    regresses = facts.mentioned(r"mse|l1_?loss|\bmae\b|smooth_?l1|huber|regress|bce")
    if warned is None and refused is None and written is not None and regresses is not None:
        yield Clue(f"a column is compared with a row: {written[1].strip()[:100]}", STRONG + 0.5, written[0])
    seen = facts.seen("loss.broadcast_shapes")
    if seen is not None and seen.value:
        yield Clue(f"the loss compares shapes {seen.value}", PROOF, seen.where)


def _pairwise(text: str) -> bool:
    """Whether the shapes are of a comparison of each with every other on purpose: (32, 64, 1) with (32, 1, 64)."""
    shapes = [[int(part) for part in size.split(",") if part.strip()] for size in _SIZES.findall(text)]
    if len(shapes) != 2 or len(shapes[0]) != len(shapes[1]) or len(shapes[0]) < 3:
        return False
    ones = [[axis for axis, size in enumerate(shape) if size == 1] for shape in shapes]
    return bool(ones[0]) and bool(ones[1]) and ones[0] != ones[1]


RULE = Rule(
    code="SF316",
    slug="loss-broadcast",
    severity="error",
    title="Prediction and target have different shapes, and the loss compares each with every other.",
    fix=(
        "give both the same shape before the loss: pred.squeeze(-1) or target.unsqueeze(-1), and assert pred.shape "
        "== target.shape"
    ),
    judge=judge,
    page=__doc__,
    prior=-3.5,
    beats=("loss-collapse", "wrong-reduction", "lr-too-low", "environment"),
    observes={
        "loss.broadcast_shapes": "the unequal shapes that a loss was given, a list of two; empty when they agree"
    },
)
