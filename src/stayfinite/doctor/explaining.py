"""Explain the first bad step: replay the user's statements and run the autopsy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.autopsy import WHATEVER_THE_ROWS, Autopsy, perform
from stayfinite.autopsy.conclusions.weights import BEFORE
from stayfinite.autopsy.steps.batch_parts import bad_rows, batch_items, batch_size
from stayfinite.autopsy.steps.changes import weights_from
from stayfinite.autopsy.steps.step import Step, untouched
from stayfinite.autopsy.tracing.origin import Origin, batch_rows
from stayfinite.autopsy.worlds.worlds import Materials
from stayfinite.doctor.frames import is_users, short
from stayfinite.doctor.judges.course import RISEN
from stayfinite.doctor.moments import Backward, whole_model
from stayfinite.doctor.ranks import alone, is_sharded, world_size
from stayfinite.doctor.record import BadStep, Program
from stayfinite.doctor.replay import find_replay
from stayfinite.doctor.slicing import quoted
from stayfinite.doctor.told import PROVED, SEEN, Told, told
from stayfinite.doctor.watching.steps import StepWatcher


def slices_a_data_set(data: Mapping[str, Any], given: Tensor | None) -> bool:
    """Whether the tensors of a step hold more rows than the model was given.

    Arguments:
        given: the model's last training input; None if unknown.
    """
    size = batch_size(data)
    return given is not None and size is not None and size > len(given) and size not in given.shape[:2]


def rows_that_can_be_left_out(data: Mapping[str, Any], given: Tensor | None) -> dict[str, Any]:
    """The tensors whose rows may be blamed or left out.

    Leaving a row out of a sliced data set shifts all later rows, so a finite data set is not among them. One with NaN
    or inf stays: its own bad rows are known.
    """
    if given is None or not slices_a_data_set(data, given):
        return dict(data)
    if rows_with_nan(data):
        return dict(data)
    return {name: value for name, value in data.items() if batch_size({name: value}) == len(given)}


def rows_with_nan(data: Mapping[str, Any]) -> set[int]:
    """Rows in which a tensor of the data holds NaN or inf."""
    size = batch_size(data)
    items = [item for item in batch_items(data).values() if item.is_floating_point()]
    return set() if size is None else {row for item in items for row in bad_rows(item, size)}


def rows_of_the_origin(origin: Origin | None, given: Tensor | None) -> list[int]:
    """Batch rows in which bad values began, from the shape of the first bad tensor; empty if unknown or all."""
    look = None if origin is None else origin.look
    if look is None or given is None or (origin is not None and origin.leaf):
        return []
    rows = batch_rows(look.output.shape, look.output.bad_rows, len(given))
    return rows if len(rows) < len(given) else []


SECONDS = 20.0
"""Time limit for the worlds of one step."""


CONSEQUENCES = {"lr-too-high": 1.7, "exploding-gradient": 1.6, "nan-weights": 1.7}
"""Causes of a bad step that another fault may explain: a flipped loss also makes weights diverge."""


RETURN = "return to"
"""Begins a fix that the worlds with earlier weights do try."""
KNOWN_GOOD, FINITE = "last known-good weights", "last finite weights"
"""The autopsy's words for earlier weights, and those for weights that are finite but no good."""

NOT_REPEATED = "Re-running the step gave a different loss, so the cause is not proved."
OF_ANOTHER_RANK = "This rank's own step is finite. Another rank's gradient is not."


class Explainer:
    """Explains the first bad step while its weights are still there."""

    def __init__(self) -> None:
        self.findings: list[Told] = []
        self.autopsy: Autopsy | None = None
        self.replayed = False
        self.why_not = ""

    def __call__(self, watcher: StepWatcher, bad: BadStep, backward: Backward, optimizer: Any) -> None:
        program = watcher.program
        if optimizer is None:
            main = program.main_optimizer()
            optimizer = None if main is None else main.optimizer
        model = whole_model(program, backward)
        with alone(model), _same_versions(model), _earlier(model, watcher.notes.buffers):
            self._explain(watcher, bad, backward, optimizer, model)

    def _explain(
        self, watcher: StepWatcher, bad: BadStep, backward: Backward, optimizer: Any, model: nn.Module
    ) -> None:
        replay = None if is_sharded(model) else find_replay(backward, model)
        if replay is None:
            self.why_not = "re-running its statements gave a different loss"
            self.findings.append(_unexplained(bad, NOT_REPEATED))
            return
        self.replayed = True
        gradient = math.isfinite(bad.loss)
        given = watcher.notes.given
        in_data_set = slices_a_data_set(replay.batch, given) and bool(rows_with_nan(replay.batch))
        materials = Materials(
            good_weights=_by_name(model, watcher.good),
            optimizer=optimizer,
            trigger="gradient-not-finite" if gradient else "loss-not-finite",
            notes={"rows_of": "data set"} if in_data_set else {},
        )
        batch = rows_that_can_be_left_out(replay.batch, given)
        step = Step(model=model, forward=replay.forward, batch=batch, rng=replay.rng)
        with torch.enable_grad(), untouched(model):
            self.autopsy = perform(step, materials, SECONDS)
        same = self.autopsy.outcomes.get("same")
        if world_size() > 1 and same is not None and same.finite:
            self.replayed, self.why_not = False, "the step of this rank is finite"
            self.findings.append(_unexplained(bad, OF_ANOTHER_RANK))
        else:
            circumstances = Circumstances(watcher.program, sliced=slices_a_data_set(replay.batch, given))
            if circumstances.sliced:
                circumstances.begins_in = rows_of_the_origin(self.autopsy.origin, given)
                circumstances.with_nan = rows_with_nan(replay.batch)
            self.findings.append(_finding(self.autopsy, bad, circumstances))


@contextmanager
def _same_versions(model: nn.Module) -> Iterator[None]:
    """Hide weight changes from autograd's version counters; the weights are restored within."""
    tensors = tuple(t for t in (*model.parameters(), *model.buffers()) if not t.is_inference())
    keep: Any = vars(torch.autograd)["_unsafe_preserve_version_counter"]
    with keep(tensors):
        yield


def _earlier(model: nn.Module, buffers: dict[int, Tensor]) -> AbstractContextManager[None]:
    """Buffers as before the step's forward pass."""
    return weights_from(model, {name: buffers[id(b)] for name, b in model.named_buffers() if id(b) in buffers})


def _by_name(model: nn.Module, weights: dict[int, Any]) -> dict[str, Any] | None:
    tensors = [*model.named_parameters(), *model.named_buffers()]
    found = {name: weights[id(tensor)] for name, tensor in tensors if id(tensor) in weights}
    return found or None


def _unexplained(bad: BadStep, why: str) -> Told:
    return told("nan-loss", [what_happened(bad), why], place=bad.place, confidence=0.6, weight=0.5)


def what_happened(bad: BadStep) -> str:
    """The bad step in one sentence."""
    if not math.isfinite(bad.loss):
        return f"Step {bad.step}: the loss is {bad.loss}."
    return f"Step {bad.step}: the loss is {bad.loss:.4g}, gradients are NaN or inf."


def origin_place(origin: Origin | None) -> tuple[str, int]:
    """File and line in the user's code where bad values began; ("", 0) if unknown."""
    at = None if origin is None else origin.where
    events = [at, None if origin is None else origin.forward]
    for event in events:
        for place in () if event is None else (event.user_place, event.place):
            if place is not None and is_users(place.file):
                return place.file, place.line
    return "", 0


@dataclass(slots=True)
class Circumstances:
    """What the words of a finding depend on besides the autopsy."""

    program: Program
    sliced: bool
    """Whether the step slices a data set, so the autopsy's rows are those of the data set."""
    begins_in: list[int] = field(default_factory=list)
    """Batch rows in which bad values began, if it does."""
    with_nan: set[int] = field(default_factory=set)
    """Rows of the data set with NaN or inf, if it does."""

    def rows_hold(self, autopsy: Autopsy) -> bool:
        """Whether the autopsy's rows can be told: those of a sliced data set only if they hold NaN or inf."""
        return not self.sliced or (bool(autopsy.rows) and self.with_nan.issuperset(autopsy.rows))

    def loss_is_good(self, loss: float) -> bool:
        """Whether a loss is about as good as where the program began. One that is not finite says nothing."""
        losses = self.program.main_loss().finite
        return not losses or not math.isfinite(loss) or loss <= max(losses[0], RISEN * losses[0])


def _finding(autopsy: Autopsy, bad: BadStep, circumstances: Circumstances) -> Told:
    place = origin_place(autopsy.origin)
    evidence = [what_happened(bad)]
    if place[0]:
        evidence.append(quoted(place))
    evidence.append(sentence(autopsy.conclusion.why))
    if autopsy.rows and circumstances.rows_hold(autopsy):
        s = "" if len(autopsy.rows) > 1 else "s"
        what = f"data set hold{s} NaN or inf" if circumstances.sliced else f"batch cause{s} it"
        evidence.append(f"{_rows(autopsy.rows)} of the {what}.")
    elif circumstances.begins_in and autopsy.conclusion.cause not in WHATEVER_THE_ROWS:
        evidence.append(f"It begins in {_rows(circumstances.begins_in).lower()} of the batch.")
    left_out = () if circumstances.rows_hold(autopsy) else ("rows_removed",)
    evidence += _reruns(autopsy, left_out)
    evidence += [f"Second fault: {sentence(each.conclusion.why)}" for each in autopsy.also]
    fix = autopsy.fix
    if autopsy.verified_by in BEFORE and not fix.startswith(RETURN):
        fix += " (re-run: the last update caused it; fix not tested)"
    elif autopsy.verified_by:
        fix += f" (verified by re-run: {_verified(autopsy)})"
    with_good = autopsy.outcomes.get("good_weights")
    if with_good is not None and not circumstances.loss_is_good(with_good.loss):
        evidence = [line.replace(KNOWN_GOOD, FINITE) for line in evidence]
        fix = fix.replace(KNOWN_GOOD, FINITE)
    cause = autopsy.conclusion.cause or "nan-loss"
    proved = bool(autopsy.verified_by) or autopsy.conclusion.confidence >= 0.7
    return told(
        cause,
        evidence,
        known_by=PROVED if proved else SEEN,
        place=place,
        where=f"{short(place)}, step {bad.step}" if place[0] else f"step {bad.step}",
        fix=fix,
        confidence=min(0.99, autopsy.conclusion.confidence),
        severity="error",
        weight=CONSEQUENCES.get(cause, 3.0) if proved else 0.8,
    )


def _rows(rows: list[int]) -> str:
    return f"{'Rows' if len(rows) > 1 else 'Row'} {', '.join(map(str, rows[:8]))}"


def _verified(autopsy: Autopsy) -> str:
    """The change that made the re-run finite, including that for a second fault."""
    name, _, behind = autopsy.verified_by.partition("+")
    changes = [autopsy.worlds[name].change]
    changes += [_verified(other) for other in autopsy.also if behind]
    return " and ".join(changes)


def _reruns(autopsy: Autopsy, left_out: Sequence[str]) -> list[str]:
    """Results of the re-runs, unchanged and with one change each, without some worlds."""
    words: dict[bool, list[str]] = {True: [], False: []}
    for name, outcome in autopsy.outcomes.items():
        if name in left_out:
            continue
        world = autopsy.worlds.get(name)
        words[outcome.finite].append("unchanged" if name == "same" or world is None else world.change)
    told_as = {False: "Still NaN or inf when re-run", True: "Finite when re-run"}
    return [f"{told_as[finite]}: {'; '.join(words[finite])}." for finite in (False, True) if words[finite]]


def sentence(text: str) -> str:
    """Capitalize and add a period."""
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."
