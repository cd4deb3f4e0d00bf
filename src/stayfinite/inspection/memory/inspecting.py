"""``stayfinite check --memory``: what a training step takes, against a card."""

from __future__ import annotations

from typing import Any, get_args

from stayfinite.errors import UsageError
from stayfinite.inspection.inspection import Inspection, conclude
from stayfinite.inspection.memory.advice import advice
from stayfinite.inspection.memory.columns import Column, columns
from stayfinite.inspection.memory.drawing_up import size, table_of
from stayfinite.inspection.memory.finding_the_model import find_shape
from stayfinite.inspection.memory.installed_transformers import installed_transformers
from stayfinite.inspection.memory.optimizers import optimizer_named
from stayfinite.inspection.memory.plan import PRECISIONS, AttentionChoice, BaseChoice, Plan
from stayfinite.inspection.memory.shape import Shape
from stayfinite.inspection.memory.weights_on_disk import numbers_on_disk
from stayfinite.inspection.notes import Notes
from stayfinite.rules.cards import Card, card_asked_for

HOPPER = (9, 0)

_WAYS = {
    "eager": "written out, with all scores kept",
    "math": "sdpa; T5's bias rules out its fast kernels, so all scores are kept",
    "efficient": "sdpa; the memory-efficient kernel takes T5's bias",
}


def inspect_memory(
    model: str,
    *,
    batch: int = 1,
    seq: int = 512,
    target_seq: int | None = None,
    optimizer: str = "adamw",
    lora: int | None = None,
    gpu: str | None = None,
    precision: str | None = None,
    checkpointing: bool | None = None,
    attention: str | None = None,
    padded: bool = False,
    base: str = "full",
    accumulate: bool = False,
) -> Inspection:
    """Estimate a training step's memory from the shape of its model.

    Arguments:
        model: a directory, a config.json, or a well-known name.
        batch: rows in a batch.
        seq: tokens in a row.
        target_seq: tokens in a row of the decoder; as `seq` by default.
        optimizer: its name; see `optimizers.OPTIMIZERS`.
        lora: the rank of adapters, when only they are trained.
        gpu: the card that it is held against.
        precision: the one that is meant: fp32, bf16, fp16, pure-bf16; all of them by default.
        checkpointing: whether gradient checkpointing is on; both by default.
        attention: sdpa, or eager; by default as transformers chooses.
        padded: whether rows have different lengths.
        base: how frozen weights are stored: full, 8bit, 4bit.
        accumulate: whether gradients of several batches are added up.

    Raises:
        UsageError: the model, the card, the optimizer or a number cannot be what it is said to be.
    """
    _check("--batch", batch)
    _check("--seq", seq)
    _check("--target-seq", target_seq)
    _check("--lora", lora)
    _one_of("--attention", attention, get_args(AttentionChoice))
    _one_of("--base", base, get_args(BaseChoice))
    _one_of("--precision", precision, tuple(PRECISIONS))
    if base != "full" and not lora:
        raise UsageError(f"--base {base} weights cannot be trained themselves", fix="add --lora 16, say")
    shape = find_shape(model)
    if shape.positions and seq > shape.positions:
        raise UsageError(
            f"--seq {seq} is longer than the {shape.positions} positions of {shape.name}",
            fix=f"--seq {shape.positions} at most",
        )
    if lora and lora > shape.width:
        raise UsageError(
            f"--lora {lora} is a rank above the width of {shape.name}, {shape.width}", fix="--lora 16, say"
        )
    card = card_asked_for(gpu) if gpu is not None else None
    library = installed_transformers()
    plan = Plan(
        batch=batch,
        seq=seq,
        target_seq=target_seq or seq,
        precision=PRECISIONS["fp32"],
        attention="eager" if attention == "eager" else "sdpa",
        bias_kernel=library.bias_kernel,
        padded=padded,
        optimizer=optimizer_named(optimizer).name,
        lora=lora or 0,
        base="8bit" if base == "8bit" else "4bit" if base == "4bit" else "full",
        accumulate=accumulate,
        flash=card is None or card.flash_attention_2,
        hopper=card is None or card.capability >= HOPPER,
    )
    found = columns(shape, plan, card, precision, checkpointing)
    notes = _notes(shape, found, card)
    if shape.family == "t5" and attention != "eager":
        known = f"transformers {library.version}" if library.version else "no transformers is installed to look at"
        notes.heading("attention", f"{_WAYS[library.bias_kernel]} ({known})")
    numbers, described = numbers_on_disk(model), found[0].estimate.parameters - found[0].estimate.trained * bool(lora)
    if numbers is not None and not 0.98 < numbers / described < 1.02:
        text = f"{numbers:,} numbers lie on disk; the config describes {described:,}, and is believed"
        notes.heading("weights", text)
    return conclude(notes)


def _notes(shape: Shape, found: list[Column], card: Card | None) -> Notes:
    notes = Notes()
    first = found[0].estimate
    notes.heading("model", f"{shape.name}, {first.parameters:,} parameters, {first.trained:,} of them trained")
    peaks = [column.estimate.peak for column in found]
    span = size(min(peaks)) if len(peaks) == 1 else f"{size(min(peaks))} to {size(max(peaks))}"
    notes.check("Memory", "A training step, part by part", seen=f"at most {span} at once")
    if card is None:
        notes.check("Memory", "It fits on the card", "out-of-memory", skipped="no card was named: --gpu T4, say")
    else:
        notes.heading("card", f"{card.name}, {card.memory_gib:g} GiB")
        notes.heading("suggestion", advice(shape, found, card))
        running = [column for column in found if column.runs] or found
        best = min(running, key=lambda column: column.share or 0.0)
        notes.saw("memory.estimate_share", best.share, f"{best.name} on {card.name}")
        notes.check("Memory", "It fits on the card", "out-of-memory", seen=_seen(found))
    for again in (False, True):
        alike = [column for column in found if column.plan.checkpointing is again]
        if alike:
            notes.tables.append(table_of(shape, alike, card))
    return notes


def _seen(found: list[Column]) -> str:
    runs = [column for column in found if column.runs]
    if not runs:
        return "as far as memory goes; bf16 is not in the card's hardware"
    fitting = [column.name for column in runs if column.fits]
    return "as it is" if len(fitting) == len(runs) else f"with {'; '.join(fitting)}"


def _check(flag: str, value: Any) -> None:
    if value is not None and not 1 <= value <= 1 << 24:
        raise UsageError(f"{flag} should be a whole number from 1 to {1 << 24:,}, not {value}")


def _one_of(flag: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise UsageError(f"{flag} should be one of {', '.join(allowed)}, not {value!r}")
