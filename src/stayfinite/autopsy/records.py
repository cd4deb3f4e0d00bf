"""An autopsy as JSON and in words."""

from __future__ import annotations

import math
from typing import Any

from stayfinite.autopsy.steps.step import Outcome
from stayfinite.autopsy.tracing.origin import Origin
from stayfinite.autopsy.worlds.worlds import World
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
    look = None if origin.event is None else origin.event.close_look
    if look is not None:
        record["inputs"] = [
            {"shape": list(i.shape), "dtype": i.dtype, "least": i.least, "largest": i.largest, "name": i.name or None}
            for i in look.inputs
        ]
        if look.output is not None:
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
