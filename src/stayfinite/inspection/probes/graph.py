"""The graph: unregistered parameters, ignored inputs, leaks between samples or from later tokens."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.batch_parts import batch_items, batch_size
from stayfinite.inspection.bench import inputs as bench_inputs
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.passes import StillPass, still_pass
from stayfinite.inspection.bench.watch import LossCall, Seen
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes.gradients import nudge
from stayfinite.state.parts import unwrapped

NOTHING = 1e-6  # relative changes below this are rounding


@dataclass(frozen=True, slots=True)
class Leak:
    """How far a change spreads to other rows."""

    share: float
    """Largest change elsewhere over the largest change in the row itself."""
    where: str
    """The affected output."""
    rows: int
    """Number of positions compared."""


def leak_between_samples(bench: Bench, inputs: list[str], *, fresh: bool = False) -> Leak | None:
    """The leak between the first and last row; None if no output has one row per sample, or none changes.

    ``inputs`` names the tensors to change; ``fresh``: the weights differ from those of the shared passes.
    """
    base = still_pass(bench.step, bench.few) if fresh else bench.still
    items = batch_items(bench.few)
    rows = batch_size(bench.few) or 0
    changed = [name for name in inputs if _has_rows(items[name], rows)]
    if rows < 2 or not changed:
        return None
    scores = [call.input for call in bench.first.seen.losses if call.input.dim() > 1]
    classes = {int(each.shape[1]) for each in scores if each.shape[0] != each.shape[1]}
    leaks = []
    for row in (0, rows - 1):
        other = still_pass(
            bench.step, bench_inputs.with_inputs(bench.few, changed, partial(bench_inputs.with_other_row, row=row))
        )
        leaks.append(_compared(base, other, row, rows, classes))
        # Both directions: if time is the first dimension, only the past affects the future.
        if leaks[-1] is None or leaks[-1].share < NOTHING:
            break
    return min((leak for leak in leaks if leak is not None), key=lambda leak: leak.share, default=None)


def _compared(base: StillPass, other: StillPass, row: int, rows: int, classes: set[int]) -> Leak | None:
    pairs = {f"output {name}": (item, other.outputs.get(name)) for name, item in base.outputs.items()}
    if not any(_has_rows(item, rows) for item, _ in pairs.values()):
        calls = zip(base.seen.losses, other.seen.losses, strict=False)
        pairs = {f"the input of {a.name}": (a.input, b.input) for a, b in calls}
    found = []
    for name, (before, after) in pairs.items():
        if after is None or before.shape != after.shape or not _has_rows(before, rows):
            continue
        if rows in before.shape[1:2] and rows not in classes:
            continue  # a value per pair of samples is not an output of one sample
        change = (after.float() - before.float()).abs().reshape(rows, -1).amax(1)
        own = float(change[row])
        others = max(float(value) for index, value in enumerate(change) if index != row)
        if own > NOTHING * float(before.float().abs().amax()) and own > 0:
            found.append(Leak(others / own, name, rows))
    return max(found, key=lambda leak: leak.share, default=None)


def _has_rows(item: Tensor, rows: int) -> bool:
    return item.dim() > 0 and item.shape[0] == rows


SHIFTED = 0.95  # share of labels that must equal the next token


def causal_leak(bench: Bench) -> Leak | None:
    """The leak from a token to earlier predictions; None if the model does not predict the next token.

    Such a model is recognized by its data: cross-entropy labels are the embedding's ids, shifted by one. The token is
    changed at the embedding, so the labels stay the same.
    """
    base = bench.still
    found = _next_token(base.seen)
    if found is None:
        return None
    call, number = found
    ids = base.seen.ids[call]
    length = ids.shape[1]
    place = length - max(1, length // 4)

    def change(current: int, given: Tensor) -> Tensor:
        if current != call or given.shape != ids.shape:
            return given
        given = given.clone()
        # A different token that occurs in the batch, so that the embedding has a row for it.
        others = ids.flatten()[ids.flatten() != given[0, place]]
        given[:, place] = torch.where(given[:, place] == others[0], ids[0, place], others[0])
        return given

    other = still_pass(bench.step, bench.few, change)
    before, after = (_by_position(one.seen.losses[number], ids) for one in (base, other))
    if before is None or after is None or before.shape != after.shape:
        return None
    moved = (after.float() - before.float()).abs().amax(-1).amax(0)
    own = float(moved[place:].max()) if moved[place:].numel() else 0.0
    if own <= NOTHING * float(before.float().abs().amax()):
        return None
    return Leak(float(moved[:place].max()) / own, f"the input of {base.seen.losses[number].name}", place)


def _next_token(seen: Seen) -> tuple[int, int] | None:
    """Indices of the embedding call and of the loss whose labels are the next tokens."""
    for number, loss in enumerate(seen.losses):
        if loss.name not in ("cross_entropy", "nll_loss") or loss.target.is_floating_point():
            continue
        ignored = loss.settings.get("ignore_index", -100)
        for call, ids in enumerate(seen.ids):
            if ids.dim() != 2 or ids.shape[1] < 4 or ids.unique().numel() < 4:
                continue
            labels = _rows_of(loss.target, ids)
            if labels is None:
                continue
            labels = labels[:, : ids.shape[1] - 1]
            counted = labels != ignored
            if int(counted.sum()) < 4:
                continue
            shifted = float((labels == ids[:, 1:])[counted].float().mean())
            if shifted >= SHIFTED and float((labels == ids[:, :-1])[counted].float().mean()) < SHIFTED:
                return call, number
    return None


def _rows_of(target: Tensor, ids: Tensor) -> Tensor | None:
    """Labels by row and position, if there is one per token, or per token but the last."""
    rows, length = ids.shape
    for positions in (length, length - 1):
        if target.numel() == rows * positions:
            return target.reshape(rows, positions)
    return None


def _by_position(loss: LossCall, ids: Tensor) -> Tensor | None:
    """Logits by row, position and class."""
    labels = _rows_of(loss.target, ids)
    if labels is None:
        return None
    scores = loss.input
    if scores.dim() == 3:
        scores = scores.movedim(1, -1)
    return scores.reshape(*labels.shape, -1) if scores.dim() >= 2 else None


def unregistered(model: nn.Module, leaves: frozenset[int]) -> list[str]:
    """Tensors in plain lists, dicts and attributes that the loss depends on but parameters() lacks.

    ``leaves``: the ``id`` of every leaf tensor of the loss.
    """
    known = {id(p) for p in model.parameters()} | {id(b) for b in model.buffers()}
    modules = {id(module) for module in model.modules()}
    found: dict[int, str] = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            for where, tensor in _tensors(value, f"{path}.{name}" if path else name, modules, 3):
                if tensor.requires_grad and tensor.is_leaf and id(tensor) in leaves and id(tensor) not in known:
                    found.setdefault(id(tensor), where)
    return list(found.values())


def made_anew(first: Seen, again: Seen, leaves: frozenset[int]) -> list[str]:
    """Parameters that every pass creates again: layers built inside ``forward``.

    A second network, such as a discriminator, keeps its parameters between passes.
    """
    lasting = first.strangers.keys() & again.strangers.keys()
    anew = [each for key, each in first.strangers.items() if key in leaves and key not in lasting]
    if len(again.strangers) == len(lasting):
        return []
    return [f"one of shape {list(tensor.shape)} is created in each pass, used at {where}" for tensor, where in anew]


def _tensors(value: Any, where: str, modules: set[int], depth: int) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield where, value
    elif isinstance(value, nn.Module):
        if id(value) not in modules:
            for name, p in value.named_parameters():
                yield f"{where}.{name}", p
    elif isinstance(value, list | tuple) and depth:
        for index, each in enumerate(value):
            yield from _tensors(each, f"{where}.{index}", modules, depth - 1)
    elif isinstance(value, dict) and depth:
        for key, each in value.items():
            yield from _tensors(each, f"{where}.{key}", modules, depth - 1)


IGNORED, LEAK, AHEAD = (
    "loss depends on the input",
    "samples are independent",
    "no future-token leak",
)


def look(bench: Bench, notes: Notes) -> None:
    """Record what the loss depends on."""
    hidden = unregistered(bench.model, bench.first.leaves)
    if bench.first.worked and bench.first.seen.strangers:
        hidden += made_anew(bench.first.seen, bench.still.seen, bench.first.leaves)
    notes.saw("modules.unregistered", hidden, type(unwrapped(bench.model)).__name__)
    notes.check("Graph", "parameters outside the model", "unregistered-module")
    if bench.first.forward_error is not None or not bench.first.scalar:
        for title in (IGNORED, LEAK, AHEAD):
            notes.check("Graph", title, skipped="no loss")
        return
    _look_at_input(bench, notes)
    _look_at_samples(bench, notes)
    _look_at_tokens(bench, notes)


def _look_at_input(bench: Bench, notes: Notes) -> None:
    base = bench.still
    inputs = bench_inputs.inputs_of(bench.few, base.seen.losses)
    other = bench_inputs.with_inputs(bench.few, inputs, bench_inputs.emptied)
    if not inputs or all(torch.equal(bench_inputs.emptied(item), item) for item in inputs.values()):
        notes.check("Graph", IGNORED, skipped="inputs cannot be told from labels and masks")
        return
    try:
        ignored = _same(still_pass(bench.step, other).loss, base.loss)
        if ignored:
            # A zero-initialized last layer or gate hides the input from the loss, but only at the start.
            with bench.kept.undone():
                nudge(bench)
                ignored = _same(still_pass(bench.step, other).loss, still_pass(bench.step, bench.few).loss)
    except Exception as error:  # not every model accepts an empty input
        notes.check("Graph", IGNORED, seen=f"forward fails without it: {type(error).__name__}")
        return
    names = bench_inputs.names_in_short([name.removeprefix("batch.") for name in inputs])
    notes.saw("loss.ignores_input", ignored, names)
    notes.check("Graph", IGNORED, "input-ignored", seen=f"emptied {names}")


def _look_at_samples(bench: Bench, notes: Notes) -> None:
    inputs = list(bench_inputs.inputs_of(bench.few, bench.still.seen.losses))
    why_not = ""
    if (batch_size(bench.few) or 0) < 2 or not inputs:
        why_not = "one row only, or rows cannot be told apart"
    elif bench_inputs.has_graph(bench.batch) or any(
        isinstance(m, nn.RNNBase) and not m.batch_first for m in bench.model.modules()
    ):
        why_not = "rows of this batch may belong together"
    elif not all(p.is_floating_point() for p in bench.model.parameters()):
        why_not = "quantized layers round over the whole batch"
    if why_not:
        notes.check("Graph", LEAK, skipped=why_not)
        return
    try:
        leak = leak_between_samples(bench, inputs)
        if leak is None:  # a zero-initialized output shows nothing
            with bench.kept.undone():
                nudge(bench)
                leak = leak_between_samples(bench, inputs, fresh=True)
    except Exception as error:  # not every model accepts another row
        notes.check("Graph", LEAK, skipped=f"forward fails with another row: {type(error).__name__}")
        return
    if leak is None:
        notes.check("Graph", LEAK, skipped="no output has one row per sample")
        return
    notes.saw("samples.leak", leak.share, leak.where)
    notes.check("Graph", LEAK, "samples-leak", seen=f"one of {leak.rows} rows changed, in evaluation mode")


def _look_at_tokens(bench: Bench, notes: Notes) -> None:
    try:
        leak = causal_leak(bench)
    except Exception as error:  # not every model accepts another token
        notes.check("Graph", AHEAD, skipped=f"forward fails with another token: {type(error).__name__}")
        return
    if leak is None:
        return  # the model does not predict the next token
    notes.saw("tokens.leak", leak.share, leak.where)
    notes.check("Graph", AHEAD, "causal-leak", seen=f"one token changed; {leak.rows} earlier positions compared")


def _same(first: Any, second: Any) -> bool:
    return (
        isinstance(first, Tensor)
        and isinstance(second, Tensor)
        and bool(second.isfinite().all())
        and torch.equal(first, second)
    )
