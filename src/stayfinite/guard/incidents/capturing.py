"""Copy the training at an incident to the host: batch, generators, weights, optimizer, history."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from stayfinite.autopsy.incidents import incident_files as files
from stayfinite.autopsy.incidents.batch_form import BatchForm, take_apart, tensors_of
from stayfinite.autopsy.steps import surroundings
from stayfinite.core.decision import Decision
from stayfinite.core.records import decision_record, step_record
from stayfinite.errors import StateError
from stayfinite.guard.incidents.passes import Pass
from stayfinite.guard.recovering.saving import CHECKPOINTS
from stayfinite.guard.telling.groups import Described, text_of
from stayfinite.guard.telling.journal import now
from stayfinite.measure.batch import batch_in_words
from stayfinite.state import shelf
from stayfinite.state.moments import survey_optimizer
from stayfinite.state.parts import TrainingParts
from stayfinite.state.shards import is_spread
from stayfinite.state.snapshots import Snapshot
from stayfinite.state.training import scaler_state
from stayfinite.state.tree import encode

MODEL = "model."
MOST_ROWS, MOST_TEXT = 256, 2000
"""Most described rows in an incident, and characters per row."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A refused step as seen by this rank."""

    decision: Decision
    trigger: str
    """Code of the problem, whatever was done about it."""
    guilty: Pass
    passes: int
    """Number of forward passes in the step."""
    sure: bool
    """Whether the bad pass is known; otherwise it is the last one."""
    scale: float
    """Factor of the loss before backward: loss scale times the share of one batch."""
    precision: str | None
    """The guard's precision at that step."""
    history: list[Decision]
    """Decisions on the steps before it."""
    spike_limit: Mapping[str, float] | None
    good: Snapshot | None
    """The last known-good state."""
    later: int
    """Steps taken since, so the weights are newer. -1 if the bad step itself changed them."""
    rank: int = 0
    rows: Sequence[str] = ()
    """Description of each batch row."""
    notes: Mapping[str, Any] = field(default_factory=dict)


def draft_of(case: Case, parts: TrainingParts, run_dir: Path, limit: int) -> files.Draft:
    """Copy what an incident contains; the rest is left to the writer thread.

    Arguments:
        run_dir: run directory; its newest checkpoint is named if the weights are too large.
        limit: most bytes of weights, of optimizer state and of the batch.
    """
    form = take_apart(case.guilty.batch)
    trees: dict[str, Any] = {files.RNG: files.rng_tree(case.guilty.rng)}
    tensors: dict[str, Mapping[str, Tensor]] = {}
    batch_fits = form.nbytes <= max(limit, 1 << 20)
    if batch_fits:
        trees[files.BATCH] = form.tree
        tensors[files.BATCH_TENSORS] = _copied(form.tensors)
    about_weights = _weights(case, parts, run_dir, limit, tensors)
    _optimizer(parts, limit, trees, tensors)
    record = _record(case, parts, form, about_weights, batch_fits=batch_fits)
    good = case.good if case.good is not None and _good_weights(case.good, limit) else None
    if good is not None:
        tensors[files.GOOD] = _good_weights(good, limit)
        if good.state.memory is not None:
            # Nothing can fail from here on, so it will be released.
            good.state.memory.hold()
    return files.Draft(
        step=case.decision.step,
        record=record,
        trees=trees,
        tensors=tensors,
        ready=lambda: None if good is None else good.state.wait(),
        done=lambda: None if good is None or good.state.memory is None else good.state.memory.release(),
    )


def rows_in_words(describe: Callable[[Any], Described] | None, batch: Any) -> tuple[str, ...]:
    """Describe each row of a batch with the user's function; if it fails, return the error instead."""
    if describe is None:
        return ()
    try:
        return tuple(text_of(row)[:MOST_TEXT] for row in list(describe(batch))[:MOST_ROWS])
    except Exception as error:  # user code may raise anything
        return (f"describe(batch) failed: {type(error).__name__}: {error}"[:MOST_TEXT],)


def is_sharded(model: nn.Module) -> bool:
    """Whether no rank has all weights: ``fully_shard``, ZeRO-3, or the older FSDP wrapper."""
    return any(is_spread(each) or hasattr(each, "ds_tensor") for each in model.parameters()) or any(
        type(module).__name__ == "FullyShardedDataParallel" for module in model.modules()
    )


def good_weights(snapshot: Snapshot) -> dict[str, Tensor]:
    """Parameters and buffers of a snapshot by model name, without sharded ones."""
    state = snapshot.state
    return {
        name.removeprefix(MODEL): tensor
        for name, tensor in state.tensors.items()
        if name.startswith(MODEL) and name not in state.shards
    }


def _good_weights(snapshot: Snapshot, limit: int) -> dict[str, Tensor]:
    held = good_weights(snapshot)
    return held if not snapshot.state.shards and _size(held.values()) <= limit else {}


def _weights(
    case: Case, parts: TrainingParts, run_dir: Path, limit: int, tensors: dict[str, Mapping[str, Tensor]]
) -> dict[str, Any]:
    live = parts.parameters() | parts.buffers()
    live = {name: tensor for name, tensor in live.items() if not name.startswith("optimizer.extra.")}
    size = _size(live.values())
    about: dict[str, Any] = {"bytes": size, "later": case.later, "file": None, "checkpoint": None, "why": ""}
    if left_out := parts.left_out():
        about["left_out"] = list(left_out)
    if case.later < 0:
        about |= {"later": 0, "why": "the bad step was taken, so the weights have changed"}
    elif is_sharded(parts.model):
        about["why"] = "the weights are sharded over ranks"
    elif size > limit:
        about["why"] = f"the weights take {size:,} bytes; Policy.incident_megabytes allows {limit:,}"
    else:
        tensors[files.WEIGHTS] = _copied(live)
        return about | {"file": files.WEIGHTS}
    saved = shelf.finished(run_dir / CHECKPOINTS)
    if saved:
        path, manifest = saved[0]
        about |= {"checkpoint": f"{CHECKPOINTS}/{path.name}", "checkpoint_step": manifest.step}
    return about


def _optimizer(
    parts: TrainingParts, limit: int, trees: dict[str, Any], tensors: dict[str, Mapping[str, Tensor]]
) -> None:
    try:
        encoded = encode(survey_optimizer(parts.optimizer, parts.named()), "optimizer")
    except StateError:
        # The optimizer keeps something that cannot be written: re-runs do without it.
        return
    if not is_sharded(parts.model) and _size(encoded.tensors.values()) <= limit:
        trees[files.OPTIMIZER] = encoded.tree
        tensors[files.OPTIMIZER_TENSORS] = _copied(encoded.tensors)


def _record(
    case: Case, parts: TrainingParts, form: BatchForm, weights: dict[str, Any], *, batch_fits: bool
) -> dict[str, Any]:
    decision, guilty = case.decision, case.guilty
    scaler = scaler_state(parts)
    live = next(iter(parts.parameters().values()))
    left_out = form.left_out if batch_fits else [f"the batch: {form.nbytes:,} bytes are too many"]
    return {
        "time": now(),
        "step": decision.step,
        "rank": case.rank,
        "trigger": case.trigger,
        "decision": {"action": decision.action, "code": decision.code, "reason": decision.reason},
        "signals": decision_record(decision, now()) | step_record(decision),
        "history": [step_record(each) for each in case.history],
        "spike_limit": case.spike_limit,
        "precision": {
            "guard": case.precision,
            "autocast": guilty.autocast,
            "loss_scale": decision.signals.loss_scale,
            "scale": case.scale,
            "scaler": scaler and {k: v.item() if isinstance(v, Tensor) else v for k, v in scaler.items()},
        },
        "batch": {
            "words": batch_in_words(guilty.batch),
            "passes": case.passes,
            "sure": case.sure,
            "loss": guilty.value,
            "bytes": form.nbytes,
            "written": batch_fits,
            "left_out": left_out,
            "stands_for": form.stands_for,
            "devices": {name: str(tensor.device) for name, tensor in form.tensors.items()},
            "requires_grad": _leaves(guilty.batch, form),
            "changed_by_forward": guilty.changed,
            "overwritten_since": guilty.overwritten,
        },
        "rows": [{"row": row, "text": text} for row, text in enumerate(case.rows)],
        "weights": weights,
        "good": None if case.good is None else {"step": case.good.step},
        "device": surroundings.device_in_words(live.device),
        "versions": surroundings.versions(),
        "settings": surroundings.settings_in_force(),
        "compiled": surroundings.is_compiled(parts.model),
        "model": type(parts.model).__name__,
        "modules": surroundings.module_tree(parts.model),
        "optimizer": surroundings.optimizer_summary(parts.optimizer),
        "notes": dict(case.notes),
    }  # fmt: skip


def _leaves(batch: Any, form: BatchForm) -> list[str]:
    """Names of batch tensors that require gradients."""
    wanted = {tensor.data_ptr() for tensor in tensors_of(batch) if tensor.requires_grad and tensor.is_leaf}
    return [name for name, tensor in form.tensors.items() if tensor.data_ptr() in wanted]


def _copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def _size(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
