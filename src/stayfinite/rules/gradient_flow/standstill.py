"""A loss that stands still, told from few points: beside a remark that says why, two are enough."""

from __future__ import annotations

from stayfinite.rules.facts import Facts


def stands_still(facts: Facts) -> bool:
    """Whether no loss is seen below the first, or by a hundredth at most."""
    symptoms = facts.symptoms
    first, best = symptoms.first_loss, symptoms.best_loss
    return symptoms.points >= 2 and first is not None and best is not None and best > 0.99 * first > 0
