"""The guard's own state in ``state_dict()``, snapshots and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from stayfinite.core.judge import Memory
from stayfinite.core.policy import Policy
from stayfinite.core.post_training.watch import PostTraining
from stayfinite.errors import StateError
from stayfinite.guard.feeding.loaders import Loaders, read_ledgers
from stayfinite.guard.gates.gates import Judge, TrainingSetup
from stayfinite.guard.gates.schedule import LearningRateCut
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.guard.telling.signs import PostTrainingWatch
from stayfinite.measure.loss_collector import LossCollector

VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """The guard's own state."""

    step: int
    batch: int
    memory: Memory
    cut: Mapping[str, Any]
    precision: Mapping[str, Any]
    ledger: Mapping[str, Any]
    post_training: Mapping[str, Any]
    """State of the post-training watch; empty in older states."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON and ``torch.load(weights_only=True)``."""
        record = {
            "version": VERSION,
            "step": self.step,
            "batch": self.batch,
            "memory": self.memory.to_json(),
            "cut": dict(self.cut),
            "precision": dict(self.precision),
            "ledger": dict(self.ledger),
            "post_training": dict(self.post_training),
        }
        plain: dict[str, Any] = json.loads(json.dumps(record))
        return plain

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Remembered:
        """Rebuild what :meth:`to_json` wrote.

        Raises:
            StateError: another version, or not a guard's state.
        """
        try:
            version = state["version"]
            if version != VERSION:
                raise StateError(
                    f"guard state has version {version!r}; this stayfinite reads {VERSION}",
                    fix="resume with the version of stayfinite that wrote it, or start a new guard",
                )
            LearningRateCut(Policy()).load_state_dict(state["cut"])
            PrecisionControl(None, torch.device("cpu")).load_state_dict(state["precision"])
            read_ledgers(state["ledger"])
            PostTraining().load(state.get("post_training", {}).get("judge", {}))
            return cls(
                step=int(state["step"]),
                batch=int(state["batch"]),
                memory=Memory.from_json(state["memory"]),
                cut=dict(state["cut"]),
                precision=dict(state["precision"]),
                ledger=dict(state["ledger"]),
                post_training=dict(state.get("post_training", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, StateError):
                raise
            raise StateError(
                f"not a guard state: {type(error).__name__}: {error}",
                fix="pass what guard.state_dict() returned",
            ) from error


class OwnState:
    """The parts of a guard with state."""

    def __init__(
        self,
        setup: TrainingSetup,
        judge: Judge,
        collector: LossCollector,
        loaders: Loaders,
        cut: LearningRateCut,
        precision: PrecisionControl,
        post_training: PostTrainingWatch,
    ) -> None:
        self._setup, self._judge, self._collector = setup, judge, collector
        self._loaders, self._cut, self._precision = loaders, cut, precision
        self._post_training = post_training

    def gather(self, step: int) -> Remembered:
        """State after this step."""
        return Remembered(
            step=step,
            batch=self._collector.batches,
            memory=self._judge.memory,
            cut=self._cut.state_dict(),
            precision=self._precision.state_dict(),
            ledger=self._loaders.ledger(),
            post_training=self._post_training.state_dict(),
        )

    def give_back(self, remembered: Remembered) -> None:
        """Restore a state; the caller restores the policy's memory."""
        self._collector.batches = remembered.batch
        self._cut.load_state_dict(remembered.cut)
        self._precision.load_state_dict(remembered.precision)
        if self._judge.policy.precision == "fp16" and self._precision.current != "fp16":
            self._setup.scaler = None
        self._loaders.load_ledger(remembered.ledger)
        self._post_training.load_state_dict(remembered.post_training)
