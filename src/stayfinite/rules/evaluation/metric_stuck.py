"""A metric stays constant, whatever the model predicts.

## What it means
The metric has one value for every model: before and after training, with good weights and with random ones. It measures
nothing, and whatever is decided by it, the best checkpoint or an early stop, is decided by chance.

## Why it happens
- Class ids are compared with probabilities: `(model(x) == y)` is never true.
- `argmax` over the wrong dimension, or over an output with one column: every prediction is class 0.
- `torch.round` or `int()` of raw scores; a threshold of 0.5 on scores that are not probabilities.
- Predictions or labels are compared with themselves, or the metric reads a model that is not the one trained.
- Integer division: `correct // total` is 0 until everything is right.

## How to recognize it
- The same accuracy in every epoch while the loss falls.
- Print `predictions.unique()` and `labels.unique()`.
- `stayfinite.preflight(model, optimizer, batch, metric=accuracy)` puts the metric to models with other weights.

## How to fix it
Compare like with like: `logits.argmax(1) == y` for classes, `(logits.squeeze(1) > 0) == y.bool()` for one score.

## When it is a false alarm
A model that always answers the commonest class has that class's share as its accuracy until it learns more.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: a metric that is equal for different models, or at every evaluation."""
    yield from quote(facts.symptoms.contradicted("nothing right"), PROOF, "{}: the accuracy is computed wrongly")
    yield from quote(facts.symptoms.contradicted("right by chance"), FAIR + HINT)
    name = facts.symptoms.still_score
    values = facts.metric(name) if name else []
    if values:
        yield Clue(f"{name} is {values[0][0]:g} at all {len(values)} evaluations", STRONG, values[0][1])


RULE = Rule(
    code="SF832",
    fix="compare matching values: logits.argmax(1) == y for classes, (logits.squeeze(1) > 0) == y.bool() for one score",
    proofs={
        # The metric and its one value, in words; empty where it moves.
        "metric.stuck": "{}",
    },
)
