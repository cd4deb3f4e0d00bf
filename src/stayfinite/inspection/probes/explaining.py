"""Explain a non-finite first step by its autopsy."""

from __future__ import annotations

from stayfinite.autopsy.autopsy import perform
from stayfinite.core.finding import Finding
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.notes import Notes
from stayfinite.rules.registry import rule_of

SECONDS = 15.0  # no further experiment starts after this


def explain(bench: Bench, notes: Notes) -> None:
    """Rerun the step with one change at a time, and record what that proves."""
    if notes.proved:
        return
    found = perform(bench.step, budget=SECONDS)
    rule = rule_of(found.conclusion.cause or "nan-loss")
    notes.proved.append(
        Finding(
            code=rule.code,
            cause=rule.slug,
            severity=rule.severity,
            confidence=min(0.99, found.conclusion.confidence) if found.conclusion.cause else 0.6,
            where="the first step",
            title=rule.title,
            evidence=(found.verdict,),
            fix=found.fix or rule.fix,
        )
    )
