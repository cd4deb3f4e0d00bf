"""A softmax runs over the wrong axis, or over a single output.

## What it means
Probabilities have to add up to 1 over the classes (or the keys) of one example. Over axis 0 they add up over the batch:
each example's output then depends on the others in the batch, the model learns something else, and evaluation with
another batch size gives other answers.

## Why it happens
`nn.Softmax()` and `F.softmax(x)` without `dim` choose an axis by an old rule (0 for 1- and 3-dimensional inputs, else
1) and warn. `dim=0` was right for a single example and stayed when batches came. `dim=1` is the classes of a
`(batch, classes)` tensor, and the length of a `(batch, length, classes)` one. Over one output, as of `Linear(n, 1)`, a
softmax is always 1 and its cross entropy always 0: nothing is learned.

## How to recognize it
- `UserWarning: Implicit dimension choice for softmax has been deprecated`.
- `softmax(dim=0)` or `nn.Softmax(0)` in the model.
- Rows that do not add up to 1; results that change with the batch size.

## How to fix it
- `x.softmax(dim=-1)` wherever the classes or keys are last, and say so everywhere; images `(batch, classes, h, w)`:
  `dim=1`.
- Assert it once: `torch.testing.assert_close(p.sum(-1), torch.ones_like(p.sum(-1)))`.
- The same holds for `log_softmax`, `argmax`, `logsumexp` and `normalize`.

## When it is a false alarm
Normalizing over the batch is meant in contrastive losses (both axes of a similarity matrix), in Sinkhorn steps and in
slot attention.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: an error about probabilities that do not sum to 1, or axis 0 in the code."""
    complaint = facts.said(
        r"\b(?:should|must|need to|do(?:es)? not|don't) (?:all )?(?:sum|add)(?: up)? to (?:1|one)\b|"
        r"\brows? (?:do(?:es)? not|don't) (?:sum|add)(?: up)? to"
    )
    yield from quote(complaint, STRONG, "probabilities do not sum to 1: {:.120}")
    axis = facts.mentioned(
        r"softmax\w*\((?:[^()]*,\s*)?(?:dim|axis)\s*=\s*0\s*\)|nn\.(?:Log)?Softmax\(\s*0\s*\)|\.softmax\(\s*0\s*\)|"
        r"softmax\((?:[^()]|\([^()]*\))*,\s*0\s*\)|softmax\((?:[^()]|\([^()]*\))*(?:dim|axis)\s*=\s*0\s*\)"
    )
    yield from quote(axis, STRONG, "a softmax over the batch: {:.140}", risk=True)
    if facts.symptoms.bad_losses and not facts.symptoms.good_losses:
        yield Clue("a wrong softmax axis does not cause NaN", -STRONG - FAIR)
    seen = facts.seen("softmax.rows_sum_to_one")
    if seen is not None and seen.value is False:
        yield Clue("the probabilities of an example do not sum to 1", PROOF, seen.where)


RULE = Rule(
    code="SF609",
    severity="warning",
    fix="write softmax(dim=-1) over the classes or keys; dim=1 for (batch, classes, height, width)",
    prior=-4.5,
    beats=("zero-gradient", "loss-collapse"),
    observes={"softmax.rows_sum_to_one": "whether the class probabilities of each example add up to 1"},
)
