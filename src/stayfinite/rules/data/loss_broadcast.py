"""Prediction and target differ in shape or dtype.

## What it means
Some losses refuse such a pair; others compare each prediction with every target and say little.

A prediction of shape (N, 1) against a target of shape (N) is not an error in torch: both are stretched to (N, N), and
the loss is the mean over all pairs. Its minimum is reached when every prediction is the mean of the targets. The loss
falls, then stays, and the model predicts one constant.

## Why it happens
- A last layer `nn.Linear(h, 1)` gives (N, 1); the labels from a table or a DataLoader are (N).
- Slicing keeps or drops an axis: `y[:, 0]` against `y[:, :1]`; `out[-1]` of a sequence; `squeeze()` that also drops a
  batch of 1.
- A wrong `view` or `reshape` merges the batch into one row.
- One-hot rows, or a column (N, 1), go to cross entropy, which needs N class numbers of dtype long.
- Class numbers of dtype long, or float64 values from numpy, go to MSE or BCE, which need the prediction's dtype.

## How to recognize it
- `UserWarning: Using a target size (torch.Size([64])) that is different to the input size (torch.Size([64, 1])). This
  will likely lead to incorrect results due to
  broadcasting.` It comes once, at the first step, from `mse_loss`, `l1_loss`, `smooth_l1_loss` or `huber_loss`.
- `binary_cross_entropy` and `binary_cross_entropy_with_logits` refuse instead:
  `Target size ... must be the same as input size`.
- `1D target tensor expected, multi-target not supported`, `Expected input batch_size (320) to match target batch_size
  (32)`, `expected scalar type Long but found Float`, `Found dtype Double but expected Float`, Keras: `Shapes (None, 1)
  and (None, 10) are incompatible`.
- A hand-written loss (`((pred - y) ** 2).mean()`) says nothing at all.
- All predictions end near the mean of the targets; R2 is near 0.

## How to fix it
- `loss = F.mse_loss(pred.squeeze(-1), y)`, or `y.unsqueeze(-1)`: give both the same shape, and name the axis in
  `squeeze`.
- Cross entropy: `F.cross_entropy(logits, y.view(-1).long())`; one-hot rows: `y.argmax(-1)`. MSE, BCE: `y.float()`.
- `assert pred.shape == y.shape` before the loss, above all before one of your own.
- transformers: `num_labels=1` and float labels of shape (N) for regression; the model squeezes automatically.
- Make the warning an error while developing: `warnings.filterwarnings("error", message="Using a target size")`.

## When it is a false alarm
Broadcasting on purpose (one target for several heads, a weight per class) is fine when the result is what was meant;
write it out with `expand_as`.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, STRONG, Clue, Clues, Rule, error_of

_SIZES = lazy_regex(r"torch\.Size\(\[([\d, ]*)\]\)")


_OTHER_SHAPE = (
    r"multi-?target not supported|\d ?d target tensor expected|only batches of spatial targets supported|"
    r"expected input batch_size ?\(\d+\) to match target batch_size|"
    r"(?:logits|outputs?|predictions?|y_pred|preds?|inputs?) and (?:labels?|targets?|y_true) (?:must|should|do not|"
    r"have)\b.{0,40}(?:shape|size|dimension|rank|match|broadcast)|"
    r"shapes \(none.{1,20}\) and \(none.{1,20}\) are incompatible|expected target size .{1,24}, got|"
    r"input and target have different (?:number|sizes?)|classification metrics can'?t handle a mix of|"
    r"inconsistent numbers? of samples|weight tensor should be defined either for all"
)
"""Errors of torch, Keras and scikit-learn for a target of the wrong shape."""
_OTHER_KIND = (
    r"expected floating point type for target|"
    r"expected (?!.*(?:half|bfloat))(?:object of )?(?:scalar )?(?:d?type )(?:torch\.)?(?:Long|Double|Float|Byte)"
    r"(?:Tensor)? but (?:got|found)(?: scalar)?(?: d?type)?|found dtype (?:double|long|int) but expected \w+|"
    r"not implemented for '(?:int|long|bool|byte|short)'|"
    r"result type (?:float|double|half|bfloat16) can'?t be cast to (?:the desired output type )?(?:long|int|byte|bool)"
)
"""Errors of a loss for integers instead of floats, or floats instead of class numbers."""


def judge(facts: Facts) -> Clues:
    """Clues: the loss's own warning, or observed shapes."""
    warned = facts.said(
        r"using a target size .{0,60}different to the input size|lead to incorrect results due to broadcasting"
    )
    if warned is not None and not _harmless(warned.text):
        yield Clue(warned.text, PROOF, warned.where)
    refused = facts.said(r"target size .{0,60}must be (?:the )?same as (?:the )?input size")
    if refused is not None:
        shapes = [[part.strip() for part in text.split(",") if part.strip()] for text in _SIZES.findall(refused.text)]
        alike = len(shapes) == 2 and [n for n in shapes[0] if n != "1"] == [n for n in shapes[1] if n != "1"]
        yield Clue(refused.text, PROOF if alike else STRONG, refused.where)
    elif (other := facts.said(_OTHER_SHAPE)) is not None:
        text = error_of(other.text)
        fix = _PER_ROW if re.search(r"batch_size|number of samples", text, re.IGNORECASE) else ""
        yield Clue(f"the loss does not accept the target's shape: {text[:160]}", 5.0, other.where, fix=fix)
    kind = facts.said(_OTHER_KIND)
    if kind is not None and (_of_the_loss(facts) or re.search(r"target|label|dtype double", kind.text, re.IGNORECASE)):
        yield Clue(f"the loss does not accept the target's dtype: {error_of(kind.text)[:160]}", 5.0, kind.where)


_PER_ROW = (
    "print both shapes: each prediction needs one target; for sequences, logits.view(-1, classes) and target.view(-1)"
)
"""The fix where the numbers of rows differ, which no squeeze changes."""


def _of_the_loss(facts: Facts) -> bool:
    """Whether the traceback ends in a loss."""
    return (
        facts.said(
            r"\b(?:nll_loss|cross_entropy|mse_loss|bce_loss|binary_cross_entropy\w*|l1_loss|criterion\()|"
            r"^\s*\w*loss\w* = \w+\("
        )
        is not None
    )


def _harmless(text: str) -> bool:
    """Whether no element meets a wrong one.

    Broadcasting enlarges nothing, as with (1,) and () or (1, 64) and (64,), or compares all pairs on purpose, as with
    (32, 64, 1) and (32, 1, 64).
    """
    shapes = [[int(part) for part in size.split(",") if part.strip()] for size in _SIZES.findall(text)]
    if len(shapes) != 2:
        return False
    width = max(map(len, shapes))
    one, two = ([1] * (width - len(shape)) + shape for shape in shapes)
    if math.prod(map(max, one, two)) == math.prod(one) == math.prod(two):
        return True
    ones = [[axis for axis, size in enumerate(shape) if size == 1] for shape in (one, two)]
    return len(shapes[0]) == len(shapes[1]) >= 3 and bool(ones[0]) and bool(ones[1]) and ones[0] != ones[1]


RULE = Rule(
    code="SF316",
    fix=(
        "match prediction and target: pred.squeeze(-1) for MSE and BCE; target.long(), one class a row, for cross "
        "entropy"
    ),
    proofs={
        # The unequal shapes that a loss was given, a list of two; empty when they agree.
        "loss.broadcast_shapes": "the loss compares shapes {}",
    },
    prior=-3.5,
    beats=("loss-collapse", "wrong-reduction", "lr-too-low", "environment"),
)
