"""The optimizer: missing or duplicate parameters, groups, learning rates, decay, dtypes."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from torch import Tensor

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import names_in_short
from stayfinite.inspection.notes import Notes, Table

COLUMNS = ("lr", "weight_decay", "betas", "momentum", "eps")


def look(bench: Bench, notes: Notes) -> None:
    """Record the optimizer's parameters, groups and settings."""
    groups = bench.optimizer.param_groups
    held = [p for group in groups for p in group["params"]]
    names = {id(p): name for name, p in bench.model.named_parameters()}
    counts = Counter(id(p) for p in held)
    missing = [name for name, p in bench.trainable.items() if id(p) not in counts]
    strangers = [p for p in held if id(p) not in names]
    notes.saw("optimizer.missing_parameters", missing, names_in_short(missing))
    if missing and strangers:
        notes.saw("optimizer.strangers", len(strangers), "param_groups")
    seen = f"{len(bench.trainable)} tensors in {len(groups)} groups"
    if strangers:
        seen += f", and {len(strangers)} that are not the model's"
    notes.check("Optimizer", "parameter coverage", "params-not-in-optimizer", seen=seen)
    twice = [names.get(key, "a parameter that is not the model's") for key, count in counts.items() if count > 1]
    notes.saw("optimizer.twice", twice, "param_groups")
    notes.check("Optimizer", "duplicate parameters", "params-twice", seen=f"{len(counts)} different tensors")
    _look_at_rates(bench, notes)
    _look_at_dtypes(bench, notes)
    notes.tables.append(_table(bench, names))


def _look_at_rates(bench: Bench, notes: Notes) -> None:
    rates = [_number(group.get("lr")) for group in bench.optimizer.param_groups]
    known = [rate for rate in rates if rate is not None and math.isfinite(rate)]
    groups = zip(bench.optimizer.param_groups, rates, strict=True)
    planned = [_number(group.get("initial_lr")) or rate or 0.0 for group, rate in groups]
    if any(rate is not None and not math.isfinite(rate) for rate in rates):
        notes.saw("optimizer.lr_not_finite", [str(rate) for rate in rates], "param_groups")
    if known:
        # A warmup starts at 0 and stores its target.
        notes.saw("optimizer.lr", max(*known, *planned), "param_groups")
    warming = bool(known) and max(known) == 0 < max(planned)
    seen = ", ".join(f"{rate:g}" for rate in dict.fromkeys(known)) + (", warming up from 0" if warming else "")
    notes.check("Optimizer", "learning rate", "lr-zero", "lr-schedule-bug", seen=seen)
    eps = [group["eps"] for group in bench.optimizer.param_groups if isinstance(group.get("eps"), float)]
    if eps:
        notes.saw("optimizer.eps", min(eps), "param_groups")


def _look_at_dtypes(bench: Bench, notes: Notes) -> None:
    held = [p for group in bench.optimizer.param_groups for p in group["params"] if p.requires_grad]
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in held})
    states = {
        str(value.dtype).removeprefix("torch.")
        for state in bench.optimizer.state.values()
        if isinstance(state, dict)
        for value in state.values()
        if isinstance(value, Tensor) and value.dim() and value.is_floating_point()
    }
    if not states and "float16" in dtypes and type(bench.optimizer).__name__.startswith("Adam"):
        states = {"float16"}  # its moments have the parameters' dtype
    if "float16" in states:
        notes.saw("optimizer.state_dtype", "float16", "optimizer.state")
    notes.saw("optimizer.parameter_dtypes", dtypes, "param_groups")
    causes = ("pure-fp16-weights", "double-fp16", "adam-eps-underflow")
    notes.check("Optimizer", "weight dtype", *causes, seen=", ".join(dtypes))


def _table(bench: Bench, names: dict[int, str]) -> Table:
    columns = [name for name in COLUMNS if any(name in group for group in bench.optimizer.param_groups)]
    rows = []
    for number, group in enumerate(bench.optimizer.param_groups):
        first = next((names.get(id(p), "not the model's") for p in group["params"]), "none")
        size = sum(p.numel() for p in group["params"])
        cells = [_cell(group.get(name)) for name in columns]
        rows.append((str(number), f"{len(group['params'])}", f"{size:,}", *cells, first))
    title = f"Parameter groups of {type(bench.optimizer).__name__}"
    return Table(title=title, columns=("group", "tensors", "values", *columns, "first"), rows=tuple(rows))


def _cell(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(_cell(each) for each in value)
    number = _number(value)
    return "" if value is None else f"{number:g}" if number is not None else str(value)


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        return float(value) if value.numel() == 1 and not value.is_meta else None
    return float(value) if isinstance(value, int | float) else None
