"""Schemas by name."""

import difflib
from dataclasses import fields
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.core.run_status import HealthWord, RunStatus
from stayfinite.core.schema_names import PRINTED, VERSION, WRITTEN, tag
from stayfinite.diagnosis.diagnosis import Diagnosis
from stayfinite.errors import UsageError
from stayfinite.inspection.files.comparison import Comparison
from stayfinite.inspection.inspection import Inspection
from stayfinite.readers.checkpoints.result import Scanned, ScanResult
from stayfinite.rules.differential import Differential
from stayfinite.schemas import records
from stayfinite.schemas.deriving import Deriver, Shape

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_NUMBERS = ("minutes", "done", "loss", "grad_norm", "lr", "loss_scale", "rate", "eta_seconds", "quiet_seconds")
SHAPES: dict[type, Shape] = {
    Diagnosis: Shape(keys=("verdict", "findings", "trouble", "refused", "differential", "sources")),
    Differential: Shape(
        keys=("remaining", "try", "key", "outcomes"), typed={"try": str, "key": str, "outcomes": dict[str, str]}
    ),
    Finding: Shape(optional=("place",)),
    Inspection: Shape(
        keys=("verdict", "findings", "checks", "banner", "tables", "ignored"),
        named={"checks": "lines"},
        typed={"banner": dict[str, str]},
    ),
    Comparison: Shape(keys=("same", "left", "right", "training", "other", "one_sided", "equal")),
    ScanResult: Shape(
        keys=("verdict", "findings", "newest_good", "poison_entered", "checkpoints"),
        typed={"newest_good": dict[str, Any] | None},
    ),
    Scanned: Shape(
        keys=("path", "kind", "step", "files", "bytes", "tensors", "not_finite", "state"),
        typed={
            "path": str, "kind": str, "step": int | None, "files": int, "bytes": int, "tensors": int,
            "not_finite": int | None,
        },
    ),
    RunStatus: Shape(
        keys=(
            "name", "path", "health", "reason", "fix", "state", "ended", "step", "total_steps", "minutes", "done",
            "seen", "refused", "loss", "grad_norm", "lr", "loss_scale", "rate", "eta_seconds", "quiet_seconds",
            "happenings",
        ),
        typed={"health": HealthWord, "reason": str, "fix": str}
        | dict.fromkeys(_NUMBERS, records.PlainNumber | None),
    ),
}  # fmt: skip
"""How the plain data of a dataclass differs from its fields."""


def schema(name: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) by name.

    Raises:
        UsageError: no such name.
    """
    if name not in PRINTED and name not in WRITTEN:
        close = difflib.get_close_matches(name, [*PRINTED, *WRITTEN], n=1)
        raise UsageError(
            f"no schema {name!r}",
            fix=f"stayfinite schema{f' {close[0]}' if close else ''}",
        )
    root = _type_of(name)
    deriver = Deriver(SHAPES | (_demo_shapes() if name == "demo" else {}))
    found = deriver.fields_of(root) if isinstance(root, type) else deriver.schema(root)
    if name in PRINTED and "properties" in found:
        says = {"const": tag(name), "description": "This schema's name; only at the top level."}
        found["properties"] = {"schema": says, **found["properties"]}
    about = {"$schema": DIALECT, "$id": f"urn:stayfinite:{name}:{VERSION}", "title": tag(name)}
    return about | found | ({"$defs": deriver.definitions} if deriver.definitions else {})


def _type_of(name: str) -> Any:
    if name == "demo":
        from stayfinite.demo.result import DemoResult  # loads torch

        return DemoResult
    own: dict[str, Any] = {
        "diagnosis": Diagnosis,
        "check": Inspection,
        "diff": Comparison,
        "scan": ScanResult,
    }
    called = f"{name.title().replace('_', '')}Record"
    return (own | records.ROOTS).get(name) or getattr(records, called)


def _demo_shapes() -> dict[type, Shape]:
    """Shapes of the demo's result: non-finite numbers are null."""
    from stayfinite.demo.result import DemoResult, LaneResult

    keys = ("version", *(each.name for each in fields(DemoResult)), "why")
    numbers = ("held_out_loss", "exact", "exact_items", "non_finite_weights", "seconds")
    return {
        DemoResult: Shape(keys=keys, typed={"version": int, "why": str}),
        LaneResult: Shape(typed=dict.fromkeys(numbers, float | None)),
    }
