"""The guard's own state: gathered from its parts and restored."""

from __future__ import annotations

from stayfinite.guard.feeding.loaders import Loaders
from stayfinite.guard.gates.cut import LearningRateCut
from stayfinite.guard.gates.gates import TrainingSetup
from stayfinite.guard.gates.judge import Judge
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.guard.recovering.remembered import Remembered
from stayfinite.guard.telling.post_training import PostTrainingWatch
from stayfinite.measure.loss_collector import LossCollector


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
