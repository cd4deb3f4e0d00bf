"""``stayfinite check --memory``: compare the memory of a training step with a GPU."""

from __future__ import annotations

from stayfinite.inspection.inspection import Inspection, conclude
from stayfinite.inspection.memory.advice import advice
from stayfinite.inspection.memory.columns import Column, columns
from stayfinite.inspection.memory.drawing_up import size, table_of
from stayfinite.inspection.memory.finding_the_model import find_shape
from stayfinite.inspection.memory.installed_transformers import Installed, installed_transformers
from stayfinite.inspection.memory.request import MemoryRequest
from stayfinite.inspection.memory.shape import Shape
from stayfinite.inspection.memory.weights_on_disk import numbers_on_disk
from stayfinite.inspection.notes import Notes
from stayfinite.rules.cards import Card, card_asked_for

_WAYS = {
    "eager": "in plain operators, keeping all scores",
    "math": "sdpa; T5's bias rules out fast kernels, so all scores are kept",
    "efficient": "sdpa; the memory-efficient kernel supports T5's bias",
}


def inspect_memory(request: MemoryRequest) -> Inspection:
    """Estimate a training step's memory from the shape of its model. Raises UsageError for an invalid request."""
    shape = find_shape(request.model)
    request.refuse_for(shape)
    card = card_asked_for(request.gpu) if request.gpu is not None else None
    card = None if card is not None and card.is_none else card
    library = installed_transformers()
    found = columns(shape, request.plan(card, library), card, request.precision, request.checkpointing)
    notes = _notes(shape, found, card)
    if shape.family == "t5" and request.attention != "eager":
        notes.heading("attention", _attention_of(library))
    disagreement = _weights_on_disk(request, found[0])
    if disagreement:
        notes.heading("weights", disagreement)
    return conclude(notes)


def _notes(shape: Shape, found: list[Column], card: Card | None) -> Notes:
    notes = Notes()
    first = found[0].estimate
    notes.heading("model", f"{shape.name}, {first.parameters:,} parameters, {first.trained:,} of them trained")
    peaks = [column.estimate.peak for column in found]
    span = size(min(peaks)) if len(peaks) == 1 else f"{size(min(peaks))} to {size(max(peaks))}"
    notes.check("Memory", "memory of a training step", seen=f"peak {span}")
    if card is None:
        notes.check("Memory", "fits on the GPU", "out-of-memory", skipped="no GPU given: --gpu T4, for example")
    else:
        notes.heading("card", f"{card.name}, {card.memory_gib:g} GiB")
        notes.heading("suggestion", advice(shape, found, card))
        running = [column for column in found if column.runs] or found
        best = min(running, key=lambda column: column.share or 0.0)
        notes.saw("memory.estimate_share", best.share, f"{best.name} on {card.name}")
        notes.check("Memory", "fits on the GPU", "out-of-memory", seen=_seen(found))
    for again in (False, True):
        alike = [column for column in found if column.plan.checkpointing is again]
        if alike:
            notes.tables.append(table_of(shape, alike, card))
    return notes


def _seen(found: list[Column]) -> str:
    runs = [column for column in found if column.runs]
    if not runs:
        return "in memory only: the GPU has no bf16"
    fitting = [column.name for column in runs if column.fits]
    return "as it is" if len(fitting) == len(runs) else f"with {'; '.join(fitting)}"


def _attention_of(library: Installed) -> str:
    known = f"transformers {library.version}" if library.version else "transformers is not installed"
    return f"{_WAYS[library.bias_kernel]} ({known})"


def _weights_on_disk(request: MemoryRequest, column: Column) -> str:
    """A note if the weights next to a config differ in number from it; empty if not."""
    numbers = numbers_on_disk(request.model)
    described = column.estimate.parameters - (column.estimate.trained if request.lora else 0)
    if numbers is None or 0.98 < numbers / described < 1.02:
        return ""
    return f"{numbers:,} numbers on disk, {described:,} in the config, which is used"
