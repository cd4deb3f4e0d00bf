"""The optimizer (missing or duplicate parameters, groups, rates, dtypes), and its schedule, run ahead and restored."""

import math
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import names_in_short
from stayfinite.inspection.notes import Notes, Table
from stayfinite.inspection.probes.loader import length_of

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


GROUP = "Schedule"
TITLE = "learning-rate schedule"
MOST = 1_000  # steps to run ahead
FAR = 100.0  # a rate that grows by this factor runs away


def look_at_schedule(bench: Bench, notes: Notes) -> None:
    """Record the upcoming rates."""
    schedule = bench.scheduler
    reason = _obstacle(schedule)
    if reason:
        notes.check(GROUP, TITLE, "lr-schedule-bug", skipped=reason)
        return
    owner = getattr(schedule, "optimizer", None)
    if owner is not None and owner is not bench.optimizer:
        notes.saw("schedule.breaks_shape", "it sets the rate of another optimizer", type(schedule).__name__)
        notes.check(GROUP, TITLE, "lr-schedule-bug", seen="built for another optimizer")
        return
    epoch = length_of(bench.loader) if bench.loader is not None else None
    rates = _rates(schedule, bench.optimizer, min(MOST, max(100, epoch or 0)))
    wrong = _wrong(rates, max((float(rate) for rate in getattr(schedule, "base_lrs", [])), default=0.0))
    if wrong:
        notes.saw("schedule.breaks_shape", wrong, type(schedule).__name__)
    marks = {1: "", 10: "after 10 steps", 100: "after 100"} | ({epoch: "after an epoch of them"} if epoch else {})
    shown = [f"{rates[at - 1]:.3g} {words}".strip() for at, words in sorted(marks.items()) if 0 < at <= len(rates)]
    notes.check(GROUP, TITLE, "lr-schedule-bug", seen=", ".join(shown))


def _obstacle(schedule: Any) -> str:
    if schedule is None:
        return "no scheduler given"
    if not all(hasattr(schedule, name) for name in ("step", "state_dict", "load_state_dict")):
        return f"{type(schedule).__name__} is not a torch scheduler"
    if type(schedule).__name__ == "ReduceLROnPlateau":
        return "it follows validation, which has not run"
    return ""


def _rates(schedule: Any, optimizer: Any, steps: int) -> list[float]:
    """The rates of the first steps, starting with the current one."""
    rates: list[float] = []
    with _kept(schedule, optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            rate = max((group["lr"] for group in optimizer.param_groups), key=abs)
            rates.append(math.nan if isinstance(rate, complex) else float(rate))
            try:
                schedule.step()
            except Exception:  # past its end, as OneCycleLR reports
                break
    return rates


@contextmanager
def _kept(schedule: Any, optimizer: Any) -> Iterator[None]:
    state = schedule.state_dict()
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    try:
        yield
    finally:
        schedule.load_state_dict(state)
        for group, before in zip(optimizer.param_groups, groups, strict=True):
            group.update(before)


def _wrong(rates: list[float], base: float) -> str:
    bad = next((number for number, rate in enumerate(rates) if not math.isfinite(rate) or rate < 0), None)
    if bad is not None:
        return f"the rate is {rates[bad]:.3g} after {bad} steps"
    if len(rates) >= 100 and max(rates) == 0:
        return f"the rate is 0 in all of the first {len(rates):,} steps"
    if base > 0 and max(rates) > FAR * base:
        return f"the rate rises from {rates[0]:.3g} to {max(rates):.3g} in {rates.index(max(rates))} steps"
    return ""
