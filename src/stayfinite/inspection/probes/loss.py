"""The loss: computable, finite, attached, scalar; the inputs of loss functions; the starting value."""

from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.core.finding import Finding
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.watch import out_of_range
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes import loss_readings as readings
from stayfinite.rules.registry import rule_of
from stayfinite.state.parts import unwrapped

SECONDS = 15.0  # no further experiment starts after this


def explain(bench: Bench, notes: Notes) -> None:
    """Rerun the step with one change at a time, and record what that proves."""
    if notes.proved:
        return
    found = perform(bench.step, budget=SECONDS)
    rule = rule_of(found.conclusion.cause or "nan-loss")
    notes.proved.append(
        Finding(
            code=rule.code,
            cause=rule.slug,
            severity=rule.severity,
            confidence=min(0.99, found.conclusion.confidence) if found.conclusion.cause else 0.6,
            where="the first step",
            title=rule.title,
            evidence=(found.verdict,),
            fix=found.fix or rule.fix,
        )
    )


FAR_FROM_UNIT = 100.0
"""Mean or standard deviation of the first layer's input above which it dominates the weights."""
START = "initial loss"
HIGH_FAMILIES = ("t5", "mt5", "umt5", "longt5", "switch_transformers", "pop2piano")
OF_ONE_STEP = (
    "step-fails", "device-mismatch", "token-id-out-of-range", "position-out-of-range", "label-out-of-range",
    "environment", "wrong-mode", "out-of-memory", "autocast-missing", "upstream-bug", "architecture-mismatch",
)  # fmt: skip
"""Causes of a failing forward pass."""


def look(bench: Bench, notes: Notes) -> None:
    """Record the loss of the first pass."""
    items = batch_items(bench.batch)
    if items and all(item.dim() and not item.shape[0] for item in items.values()):
        notes.saw("data.rows", 0, "the batch")
        notes.check("Loss", "batch size", "empty-batch")
        return
    _look_at_calls(bench, notes)
    error = bench.first.forward_error
    if error is not None:
        told_error(notes, error)
        if not any(notes.observed.get(name) and notes.observed[name].value for name in EXPLAINS):
            notes.saw("step.error", f"{type(error).__name__}: {error}"[:400], "forward")
    notes.check("Loss", "forward pass", *OF_ONE_STEP, seen=f"{bench.first.seconds:.2g} s with backward")
    if error is not None:
        notes.check("Loss", "loss value", skipped="the forward pass failed")
        return
    _look_at_value(bench, notes, bench.first.loss)


EXPLAINS = ("device.mixed", "data.token_ids_out_of_range", "data.positions_out_of_range", "data.labels_out_of_range",
            "loss.input_outside_unit")  # fmt: skip
"""Facts that explain a failing forward pass."""


def told_error(notes: Notes, error: Exception) -> None:
    """Record an error as a log would show it."""
    notes.told += f"{type(error).__name__}: {error}".splitlines()[:12]


def checkpointing_warnings(bench: Bench) -> list[str]:
    """torch's warnings that checkpointing got nothing to differentiate."""
    return [text for text in bench.first.warned if "None of the inputs have requires_grad=True" in text]


def note_checkpointing(bench: Bench, notes: Notes) -> None:
    """Record torch's warning that checkpointing got nothing to differentiate, which explains missing gradients."""
    warned = checkpointing_warnings(bench)
    if warned:
        notes.saw("checkpointing.warned", warned[0], "the first step")


def _look_at_value(bench: Bench, notes: Notes, loss: Any) -> None:
    if isinstance(loss, Tensor):
        notes.saw("loss.shape", list(loss.shape), "the first step")
        notes.check("Loss", "scalar loss", "wrong-reduction", seen=f"shape {list(loss.shape)}")
    if bench.trainable:
        attached = bench.first.reaches_parameters
        cuts = bench.first.seen.cuts or list(bench.first.seen.cut_off.values())[:1]
        where = cuts[-1] if cuts and not attached and not checkpointing_warnings(bench) else "the first step"
        notes.saw("loss.requires_grad", attached, where)
        if not attached:
            note_checkpointing(bench, notes)
    notes.check("Loss", "graph of the loss", "detached-loss", "params-frozen", "gradient-checkpointing-no-input-grad")
    values = loss.detach().float() if isinstance(loss, Tensor) else torch.tensor(float(loss))
    finite = bool(values.isfinite().all())
    if not finite and not notes.observed["weights.nonfinite"].value:
        explain(bench, notes)
    shown = f"{float(values):.4g}" if values.numel() == 1 else f"{values.numel()} values"
    notes.check(
        "Loss", "finite loss", "nan-loss", "nan-weights", "bad-data-row", "all-labels-masked",
        "loss-formula-singularity", "fp16-overflow", "naive-exp", "attention-fully-masked-row", "where-nan-branch",
        seen=shown,
    )  # fmt: skip


def _look_at_calls(bench: Bench, notes: Notes) -> None:
    seen = bench.first.seen
    tables = {"data.positions_out_of_range": True, "data.token_ids_out_of_range": False}
    for name, of_positions in tables.items():
        bad = {table: ids for table, ids in seen.bad_ids.items() if is_of_positions(table) is of_positions}
        if bad:
            notes.saw(name, next(iter(bad.values())), next(iter(bad)))
    calls = [call for call in seen.losses if call.learns]
    for call in calls:
        bad_labels = out_of_range(call.name, call.input, call.target, call.settings)
        if bad_labels:
            notes.saw("data.labels_out_of_range", bad_labels, call.place)
        if readings.gets_probabilities(call):
            notes.saw("loss.input_is_probability", True, call.place)
        if readings.normalised_over_rows(call):
            notes.saw("softmax.rows_sum_to_one", False, call.place)
        elif readings.gets_scores(call):
            notes.saw("loss.input_outside_unit", True, call.place)
    if seen.unequal:
        first, second, place = seen.unequal[0]
        notes.saw("loss.broadcast_shapes", [first, second], place)
    notes.check(
        "Loss", "loss function inputs", "softmax-before-cross-entropy",
        "probability-loss-on-logits", "loss-broadcast", "softmax-axis", "flipped-sign",
        seen=", ".join(dict.fromkeys(call.name for call in seen.losses)) or "no torch loss function called",
    )  # fmt: skip
    shares = [share for call in calls if (share := readings.supervised_share(call)) is not None]
    if shares:
        notes.saw("labels.supervised_share", max(shares), "the batch")
        seen_share = f"{max(shares):.0%} of the labels are used"
        notes.check("Loss", "labels", "label-out-of-range", "all-labels-masked", seen=seen_share)
    loss = bench.first.loss
    if len(calls) == 1 and bench.first.scalar and readings.negated(calls[0], bench.uphill * loss):
        notes.saw("loss.negated", True, calls[0].place)
    if seen.input_scale is not None and seen.input_scale > FAR_FROM_UNIT:
        notes.saw("data.input_scale", seen.input_scale, "what the first layer is given")
    scale = "" if seen.input_scale is None else f"values of about {seen.input_scale:.2g} at the first layer"
    notes.check("Loss", "input scale", "unscaled-input", seen=scale)
    starts = [start for call in calls if (start := readings.start_of(call)) is not None]
    if not starts:
        notes.check("Loss", START, skipped="no cross entropy over classes")
        return
    initial, expected, place = max(starts, key=lambda start: start[0] / start[1])
    text = f"{initial:.4g}; an untrained model has ln(classes) = {expected:.4g}"
    if _starts_high(bench.model) and initial > expected:
        notes.check("Loss", START, seen=f"{text}; this family starts higher by design")
        return
    notes.saw("loss.initial", initial, place)
    notes.saw("loss.expected_initial", expected, place)
    notes.check("Loss", START, "bad-initial-loss", "high-initial-loss", seen=text)


def is_of_positions(table: str) -> bool:
    """Whether an embedding of this name holds positions."""
    return "pos" in table.lower() or "wpe" in table.lower().split(".")


def _starts_high(model: nn.Module) -> bool:
    """Whether this model family normally starts with large logits: T5's head is not scaled."""
    config = getattr(unwrapped(model), "config", None)
    return str(getattr(config, "model_type", "")) in HIGH_FAMILIES
