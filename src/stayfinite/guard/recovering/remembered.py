"""The guard's own state in ``state_dict()``, snapshots and checkpoints."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from stayfinite.core.judge import VERSION, Memory, reading_state
from stayfinite.core.policy import Policy
from stayfinite.core.post_training.watch import PostTraining
from stayfinite.guard.feeding.loaders import Loaders, read_ledgers
from stayfinite.guard.gates.gates import Judge, TrainingSetup
from stayfinite.guard.gates.schedule import LearningRateCut
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.guard.telling.signs import PostTrainingWatch
from stayfinite.measure.loss_collector import LossCollector
from stayfinite.state.parts import Stateful


class Remembered(NamedTuple):
    """The guard's own state, read and checked."""

    step: int
    batch: int
    memory: Memory
    parts: Mapping[str, Mapping[str, Any]]
    """State of each part by name."""


def read_remembered(state: Mapping[str, Any]) -> Remembered:
    """Read what :meth:`OwnState.gather` returned; no part is changed.

    Raises:
        StateError: another version, or not a guard's state.
    """
    with reading_state(state):
        parts = {name: dict(state[name]) for name in ("cut", "precision", "ledger")}
        # A state from before signals were kept has none.
        parts["post_training"] = dict(state.get("post_training", {}))
        LearningRateCut(Policy()).load_state_dict(parts["cut"])
        PrecisionControl(None, torch.device("cpu")).load_state_dict(parts["precision"])
        read_ledgers(parts["ledger"])
        PostTraining().load(parts["post_training"].get("judge", {}))
        return Remembered(int(state["step"]), int(state["batch"]), Memory.from_json(state["memory"]), parts)


class OwnState:
    """The parts of a guard with state."""

    def __init__(
        self,
        setup: TrainingSetup,
        judge: Judge,
        collector: LossCollector,
        *,
        precision: PrecisionControl,
        loaders: Loaders,
        post_training: PostTrainingWatch,
    ) -> None:
        self._setup, self._judge, self._collector, self._precision = setup, judge, collector, precision
        self._parts: dict[str, Stateful] = {
            "cut": setup.cut, "precision": precision, "ledger": loaders, "post_training": post_training,
        }  # fmt: skip

    def gather(self, step: int) -> dict[str, Any]:
        """State after this step: plain data for JSON and ``torch.load(weights_only=True)``."""
        record = {
            "version": VERSION,
            "step": step,
            "batch": self._collector.batches,
            "memory": self._judge.memory.to_json(),
            **{name: part.state_dict() for name, part in self._parts.items()},
        }
        plain: dict[str, Any] = json.loads(json.dumps(record))
        return plain

    def give_back(self, remembered: Remembered) -> None:
        """Restore a state; the caller restores the policy's memory."""
        self._collector.batches = remembered.batch
        for name, part in self._parts.items():
            part.load_state_dict(remembered.parts[name])
        if self._judge.policy.precision == "fp16" and self._precision.current != "fp16":
            self._setup.scaler = None
