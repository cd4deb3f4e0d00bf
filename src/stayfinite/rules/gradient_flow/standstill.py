"""Detect a flat loss from few points: with a remark that explains it, two are enough."""

from __future__ import annotations

from stayfinite.rules.facts import Facts


def stands_still(facts: Facts) -> bool:
    """Whether no loss is more than 1 % below the first."""
    symptoms = facts.symptoms
    first, best = symptoms.first_loss, symptoms.best_loss
    return symptoms.points >= 2 and first is not None and best is not None and best > 0.99 * first > 0
