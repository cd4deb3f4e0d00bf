"""Why a first step is not finite: its autopsy, as a finding."""

from __future__ import annotations

from stayfinite.autopsy.autopsy import perform
from stayfinite.core.finding import Finding
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.notes import Notes
from stayfinite.rules.registry import rule_of

SECONDS = 15.0
"""After this no further world is begun."""


def explain(bench: Bench, notes: Notes) -> None:
    """Run the step with one thing changed at a time, and note what that has proved."""
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
