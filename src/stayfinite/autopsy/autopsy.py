"""``perform``: trace a step, run the worlds that can separate causes, conclude, and verify the fix."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stayfinite.autopsy.conclusions.conclude import conclude
from stayfinite.autopsy.conclusions.conclusion import Conclusion
from stayfinite.autopsy.inquiry import Inquiry
from stayfinite.autopsy.steps.step import Outcome, Step
from stayfinite.autopsy.steps.trace import trace_step
from stayfinite.autopsy.tracing.origin import Origin
from stayfinite.autopsy.worlds.worlds import Materials, World
from stayfinite.core.source_lines import quoted_line


def origin_record(origin: Origin) -> dict[str, Any]:
    """An origin for autopsy.json."""
    at, forward = origin.where, origin.forward
    place = None if at is None else at.place
    user = None if at is None else at.user_place
    record: dict[str, Any] = {
        "operator": None if at is None else at.operator,
        "forward_operator": None if forward is None else forward.operator,
        "module": "" if at is None else at.module,
        "phase": "forward" if at is None else at.phase,
        "file": None if place is None else place.file,
        "line": None if place is None else place.line,
        "dtype": None if at is None else at.dtype,
        "leaf": origin.leaf or None,
        "called_from": None if user is None else f"{user.file}:{user.line}",
    }
    if (look := origin.look) is not None:
        record["inputs"] = [
            {"shape": list(i.shape), "dtype": i.dtype, "least": i.least, "largest": i.largest, "name": i.name or None}
            for i in look.inputs
        ]
        record["first_bad"] = look.output.first_bad
    return record


def origin_in_words(origin: Origin) -> str:
    """Operator, module, phase and line."""
    at = origin.where
    if origin.leaf:
        return origin.leaf
    if at is None:
        return "an operator"
    forward = f" (gradient of {origin.forward.operator})" if origin.forward is not None else ""
    place = "" if at.place is None else f", {quoted_line(at.place.file, at.place.line)}"
    return f"{at.operator}{forward} in {at.module or 'the loss'}, {at.phase}{place}"


def world_record(world: World, outcome: Outcome) -> dict[str, Any]:
    """A world and its outcome."""
    record: dict[str, Any] = {
        "name": world.name, "change": world.change, "finite": outcome.finite, "loss": _plain(outcome.loss),
        "grad_norm": _plain(outcome.grad_norm), "seconds": round(outcome.seconds, 4),
    }  # fmt: skip
    if outcome.error:
        record["error"] = outcome.error
    return record


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


VERSION = 1
"""Version of autopsy.json."""

DEFAULT_MATERIALS = Materials()

WHATEVER_THE_ROWS = frozenset({
    "hardware", "lr-too-high", "adam-eps-underflow", "pure-fp16-weights", "sdpa-kernel-bug", "upstream-bug",
})  # fmt: skip
"""Causes that are not due to rows of the batch, even if the step is finite without some."""

UNVERIFIED = 0.95
"""Factor of the confidence if no re-run has verified the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autopsy:
    """Worlds of a step, their outcomes, and the cause that they prove."""

    conclusion: Conclusion
    origin: Origin | None
    rows: list[int]
    """Rows of the batch that are bad alone."""
    outcomes: Mapping[str, Outcome]
    worlds: Mapping[str, World]
    verified_by: str
    """World that verifies the fix, two joined by a plus for two faults; empty if none does."""
    also: Sequence[Autopsy] = ()
    """Faults found after the first one was fixed."""
    seconds: float = 0.0

    @property
    def healthy(self) -> bool:
        """Whether there is nothing to explain."""
        return not self.conclusion.cause

    @property
    def fix(self) -> str:
        """The fix in words that match what was verified."""
        name = self.verified_by.partition("+")[0]
        world = self.worlds.get(name)
        return self.conclusion.text(name, "" if world is None else world.remedy or world.change)

    @property
    def why(self) -> str:
        """The verdict without origin and fix."""
        if self.healthy:
            return self.conclusion.why
        words = [f"{self.conclusion.cause} ({self.conclusion.confidence:.0%}): {self.conclusion.why}."]
        words += [f"Second fault: {other.conclusion.cause}, {other.conclusion.why}." for other in self.also]
        return " ".join(words)

    @property
    def verdict(self) -> str:
        """One paragraph for a person."""
        if self.healthy:
            return self.conclusion.why
        words = [self.why]
        if self.origin is not None:
            words.append(f"Origin: {origin_in_words(self.origin)}.")
        proof = ", proved by re-run" if self.verified_by else ", not proved by re-run"
        words.append(f"Fix: {' and '.join(each.fix for each in (self, *self.also))}{proof}.")
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Content of autopsy.json."""
        setting = dict(self.conclusion.setting)
        for other in self.also:
            setting |= other.conclusion.setting
        return {
            "version": VERSION,
            "cause": self.conclusion.cause or None,
            "confidence": self.conclusion.confidence,
            "verdict": self.verdict,
            "why": self.why,
            "origin": None if self.origin is None else origin_record(self.origin),
            "rows": self.rows,
            "chain": [] if self.origin is None else self.origin.chain,
            "worlds": [world_record(self.worlds[name], outcome) for name, outcome in self.outcomes.items()],
            "fix": {
                "text": self.fix,
                "setting": setting,
                "verified": bool(self.verified_by),
                "by": self.verified_by or None,
            },
            "also": [
                {key: other.to_json()[key] for key in ("cause", "confidence", "origin", "rows", "fix")}
                for other in self.also
            ],
            "seconds": round(self.seconds, 3),
        }


def perform(
    step: Step, materials: Materials = DEFAULT_MATERIALS, budget: float = 60.0, only: str | None = None
) -> Autopsy:
    """Explain a bad step.

    Arguments:
        step: the step; model, gradients, buffers and generators are left unchanged.
        budget: seconds after which no further world is started.
        only: run only this world besides the trace.

    Raises:
        UsageError: there is no world of that name for this step.
    """
    start = time.monotonic()
    first = _explain(step, materials, start + budget, only)
    if only is None and not first.verified_by and not first.healthy:
        first = _second_fault(first, materials, start + budget)
    return replace(first, seconds=time.monotonic() - start)


def _explain(step: Step, materials: Materials, deadline: float, only: str | None = None) -> Autopsy:
    trace = trace_step(step)
    inquiry = Inquiry(step, trace, materials, deadline)
    if only is None:
        inquiry.run_all()
    else:
        inquiry.run_one(only)
    conclusion = conclude(inquiry.evidence())
    verified = next((name for name in conclusion.worlds if inquiry.is_good.get(name)), "")
    if conclusion.worlds and not verified:
        conclusion = replace(conclusion, confidence=round(conclusion.confidence * UNVERIFIED, 2))
    return Autopsy(
        conclusion=conclusion,
        origin=trace.origin,
        rows=[] if conclusion.cause in WHATEVER_THE_ROWS else inquiry.rows,
        outcomes=inquiry.outcomes,
        worlds=inquiry.worlds,
        verified_by=verified,
    )


def _second_fault(first: Autopsy, materials: Materials, deadline: float) -> Autopsy:
    """If no fix helped, look for a second fault behind the first."""
    for name in first.conclusion.worlds:
        world = first.worlds.get(name)
        if world is None or time.monotonic() >= deadline or first.outcomes[name].error:
            continue
        second = _explain(world.step, materials, deadline)
        if second.verified_by and _place(second.origin) != _place(first.origin):
            return replace(first, also=(second,), verified_by=f"{name}+{second.verified_by}")
    return first


def _place(origin: Origin | None) -> tuple[Any, ...]:
    at = None if origin is None else origin.where
    if origin is None or at is None:
        return ()
    return origin.leaf, at.module, None if at.place is None else (at.place.file, at.place.line)
