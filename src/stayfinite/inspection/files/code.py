"""Faults of the training loop and the loss that are visible in scripts and notebooks."""

from __future__ import annotations

from stayfinite.core.finding import Finding
from stayfinite.core.settings import Settings
from stayfinite.inspection.files.plan import Plan
from stayfinite.inspection.notes import Notes
from stayfinite.rules.facts import Facts
from stayfinite.rules.ranking import rank
from stayfinite.rules.registry import rule_of

CAUSES = (
    "clip-before-unscale", "no-zero-grad", "double-step", "accumulation-unscaled", "softmax-before-cross-entropy",
    "probability-loss-on-logits", "softmax-axis", "flipped-sign", "where-nan-branch", "loss-formula-singularity",
    "naive-exp", "wrong-reduction", "attention-unscaled", "params-not-in-optimizer",
)  # fmt: skip
"""Rules that read code. They explain failures; before a launch only near certainty counts."""

CERTAIN = 0.7


def look_at_code(plan: Plan, notes: Notes) -> list[Finding]:
    """Run the rules that read code; return their findings and add a check list line."""
    lines = sum(len(source.settings.notes) for source in plan.scripts)
    notes.check(
        "Code",
        "training loop and loss",
        *CAUSES,
        seen=f"{lines} lines of loop and loss",
        skipped="" if lines else "no training loop or loss in these files" if plan.scripts else "no script given",
    )
    if not lines:
        return []
    settings = sum((source.settings for source in plan.scripts), Settings())
    found = rank(Facts(settings=settings), [rule_of(slug) for slug in CAUSES])
    return [finding for finding in found if finding.confidence >= CERTAIN]
