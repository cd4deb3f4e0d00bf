"""The loss is not a scalar, or is a sum instead of a mean.

## What it means
A loss of each element has to become one number. `reduction="none"` leaves a tensor, which backward refuses. `"sum"`
makes loss and gradient grow with batch, length and image size, so that the learning rate means something else for each
batch. A mean over padding makes short rows count less.

## Why it happens
A weighting was added (`reduction="none"`) and the final `.mean()` was not; code from a tutorial sums;
`size_average=False` is the old spelling; DataParallel returns one loss a card; a mean of means over batches of unequal
length.

## How to recognize it
- `grad can be implicitly created only for scalar outputs`, `a Tensor with 32 elements cannot be converted to Scalar`:
  nothing was reduced.
- Losses in the thousands from the first step that scale with the batch size; gradient norms likewise, clipped at every
  step.
- `UserWarning: reduction: 'mean' divides the total loss by both the batch size and the support size` (KL divergence).

## How to fix it
- `loss = (per_element * weight).sum() / weight.sum().clamp_min(1)`.
- `F.cross_entropy(..., reduction="mean", ignore_index=-100)`; `F.kl_div(..., reduction="batchmean")`.
- DataParallel: `loss = loss.mean()` after the forward pass (or DistributedDataParallel, which needs none).
- With accumulation, divide by the number of *tokens* of all micro-batches: transformers does
  (`average_tokens_across_devices=True`).

## When it is a false alarm
A sum is right when the learning rate was chosen for it (many VAE and detection codes). A large first loss that falls is
`high-initial-loss`.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

LARGE = 500.0
"""A mean of cross entropies or standardized squared errors never starts here; a sum does."""


_SUMMED = (
    r"reduction\W{1,3}['\"]?sum\b|size_average\s*=\s*False|\bloss\w*\s*=\s*(?:torch\.sum|tf\.reduce_sum|K\.sum)\(|"
    r"\bloss\w*\s*=\s*\(.*\)\.sum\(\)\s*$|Reduction\.SUM\b"
)


def judge(facts: Facts) -> Clues:
    """Clues: backward's error for a non-scalar, or a sum with accordingly large values."""
    yield from quote(facts.said(r"grad can be implicitly created only for scalar outputs"), PROOF)
    scalar = facts.said(
        r"a tensor with \d+ elements cannot be converted to scalar|"
        r"only one element tensors can be converted to python scalars"
    )
    yield from quote(scalar, STRONG)
    summed = facts.mentioned(_SUMMED)
    first = facts.symptoms.first_loss
    if summed:
        yield Clue(f"the loss is a sum over the batch: {summed.text.strip()[:120]}", FAIR, summed.where, risk=True)
        if first is not None and first > LARGE and facts.symptoms.trouble:
            place = facts.symptoms.at("start")
            yield Clue(f"and the loss starts at {first:.4g}", FAIR if facts.symptoms.explodes else HINT, place)
            if facts.symptoms.explodes or facts.symptoms.bad:
                yield Clue("the learning rate assumes a mean loss; a sum makes steps too large", FAIR, place)
    shape = facts.seen("loss.shape")
    if shape is not None and shape.value not in ([], (), [1], (1,)):
        yield Clue(f"the loss has the shape {shape.value}", PROOF, shape.where)


RULE = Rule(
    code="SF607",
    fix='reduce once: loss.mean(), or (loss * weight).sum() / weight.sum(); reduction="batchmean" for kl_div',
    beats=("nan-loss", "lr-too-high", "loss-diverging"),
    observes={"loss.shape": "the shape of the loss as a list; [] for a scalar"},
    says={
        r"gradient only defined for scalar-output functions": PROOF,
        r"backward\(\) only accepts a scalar tensor": PROOF,
    },
)
