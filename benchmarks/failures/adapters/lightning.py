"""Lightning's own two: ``Trainer(detect_anomaly=True)`` and ``EarlyStopping(check_finite=True)``.

A plain program does not become a Lightning program by a line, so these take short trainings only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from benchmarks.failures.adapters.anomaly import told
from benchmarks.failures.adapters.running import answer_of, caught
from benchmarks.failures.adapters.tool import Tool
from benchmarks.failures.cases import Answer
from benchmarks.failures.steps.record import Training


class LightningAnomaly(Tool):
    """Autograd's anomaly mode, switched on by the Trainer."""

    name = "Lightning `detect_anomaly`"
    about = "`Trainer(detect_anomaly=True)`"
    needs = ("lightning",)

    def prepare(self) -> None:
        """Load it."""
        import lightning.pytorch  # noqa: F401

    def step(self, training: Training, folder: Path) -> Answer:
        """Train in the Trainer."""
        return told(lambda: caught(lambda: fit(training, folder, detect_anomaly=True)))


class LightningStop(Tool):
    """Stops at the end of an epoch whose mean loss is not finite."""

    name = "Lightning `check_finite`"
    about = '`EarlyStopping("loss", check_finite=True)`, the loss logged per epoch'
    needs = ("lightning",)

    def prepare(self) -> None:
        """Load it."""
        import lightning.pytorch  # noqa: F401

    def step(self, training: Training, folder: Path) -> Answer:
        """Train in the Trainer."""
        from lightning.pytorch.callbacks import EarlyStopping

        stop = EarlyStopping("loss", check_finite=True, check_on_train_epoch_end=True, patience=1000)
        error = caught(lambda: fit(training, folder, callbacks=[stop]))
        if not error and stop.stopping_reason_message:
            return Answer(alarmed=True, words=str(stop.stopping_reason_message))
        return answer_of(error)


def fit(training: Training, folder: Path, **settings: Any) -> None:
    """The training as a LightningModule, one epoch."""
    from lightning.pytorch import LightningModule, Trainer

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = training.model
            self.scaler = torch.amp.GradScaler("cpu", init_scale=training.scale)
            self.automatic_optimization = training.scale == 1.0  # on a CPU the Trainer has no loss scale of its own

        def training_step(self, batch: Any, index: int) -> torch.Tensor | None:  # noqa: ARG002
            loss = training.loss(batch)
            self.log("loss", loss.detach().float(), on_step=False, on_epoch=True, batch_size=1)
            if self.automatic_optimization:
                return loss
            training.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(training.optimizer)
            self.scaler.update()
            return None

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return training.optimizer

    rows: Any = training.batches  # a list is all that a loader needs
    loader = torch.utils.data.DataLoader[Any](rows, batch_size=1, collate_fn=_only)
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", default_root_dir=folder, enable_progress_bar=False, logger=False,
        enable_checkpointing=False, enable_model_summary=False, **settings,
    )  # fmt: skip
    trainer.fit(Module(), loader)


def _only(batches: list[Any]) -> Any:
    return batches[0]
