"""The graph: unregistered parameters, ignored inputs, leaks between samples or from later tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.batch_parts import batch_size
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import emptied, has_graph, inputs_of, with_inputs
from stayfinite.inspection.bench.names import names_in_short
from stayfinite.inspection.bench.still_pass import still_pass
from stayfinite.inspection.bench.watch import Seen
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes.causality import causal_leak
from stayfinite.inspection.probes.sample_leak import leak_between_samples
from stayfinite.inspection.probes.stuck import nudge
from stayfinite.state.parts import unwrapped


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
    inputs = inputs_of(bench.few, base.seen.losses)
    other = with_inputs(bench.few, inputs, emptied)
    if not inputs or all(torch.equal(emptied(item), item) for item in inputs.values()):
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
    names = names_in_short([name.removeprefix("batch.") for name in inputs])
    notes.saw("loss.ignores_input", ignored, names)
    notes.check("Graph", IGNORED, "input-ignored", seen=f"emptied {names}")


def _look_at_samples(bench: Bench, notes: Notes) -> None:
    inputs = list(inputs_of(bench.few, bench.still.seen.losses))
    why_not = ""
    if (batch_size(bench.few) or 0) < 2 or not inputs:
        why_not = "one row only, or rows cannot be told apart"
    elif has_graph(bench.batch) or any(isinstance(m, nn.RNNBase) and not m.batch_first for m in bench.model.modules()):
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
