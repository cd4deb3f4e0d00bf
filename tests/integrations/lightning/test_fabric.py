"""What a loop with Lightning Fabric loses to a bad batch, and keeps with one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from lightning.fabric.loggers import CSVLogger
from lightning.fabric.plugins.precision import MixedPrecision
from torch import nn

from lightning_training import FAULTS, INF, LIGHTNING_SAYS, NAN, Net, events, loader
from stayfinite import Policy
from stayfinite.errors import UsageError
from stayfinite.integrations.lightning import fabric_guard
from tiny_training import Lines, fingerprint

pytestmark = LIGHTNING_SAYS


class Training:
    def __init__(
        self,
        guard: dict[str, Any] | None = None,
        *,
        fault: str = "",
        at: int = 7,
        clip: str = "max_norm",
        **fabric: Any,
    ):
        self.fabric = Fabric(accelerator="cpu", devices=1, **fabric)
        self.fault, self.at, self.clip = fault, at, clip
        torch.manual_seed(0)
        model = Net()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.02 * step))
        self.model, self.optimizer = self.fabric.setup(model, optimizer)
        self.guard = None
        if guard is not None:
            settings = {"console": Lines(), "forward": self.loss} | guard
            self.guard = fabric_guard(self.fabric, self.model, self.optimizer, self.scheduler, **settings)
        self.states: list[Any] = []
        self.refused: list[bool] = []
        torch.manual_seed(11)

    def loss(self, batch: Any) -> torch.Tensor:
        return (self.model(batch[0]) - batch[1]).square().mean()

    def train(self) -> Training:
        bad = (self.at,) if self.fault == "nan-batch" else ()
        self.states.append(self.everything())
        for number, batch in enumerate(self.fabric.setup_dataloaders(loader(bad))):
            loss = self.loss(batch) if self.guard is None else self.guard.forward(batch)
            struck = number == self.at
            if struck and self.fault in ("inf-loss", "spike"):
                loss = loss * (INF if self.fault == "inf-loss" else 50)
            self.fabric.backward(loss)
            if struck and self.fault == "nan-gradient":
                next(self.model.parameters()).grad[2, 1] = NAN
            if self.clip:
                # Fabric itself would raise at a NaN here.
                self.fabric.clip_gradients(self.model, self.optimizer, **{self.clip: 1.0})
            self.optimizer.step()
            self.scheduler.step()
            self.refused.append(self.guard is not None and self.guard.refused)
            self.optimizer.zero_grad()
            self.states.append(self.everything())
            self.fabric.log("loss", float(loss.detach()), step=number)
        if self.guard is not None:
            self.guard.close()
        return self

    def everything(self) -> dict[str, Any]:
        return fingerprint(
            model=dict(self.model.state_dict()),
            optimizer=self.optimizer.state_dict(),
            schedule=self.scheduler.state_dict(),
        )

    def finite(self) -> bool:
        return all(bool(torch.isfinite(value).all()) for value in self.model.state_dict().values())

    @torch.no_grad()
    def error(self) -> float:
        self.model.eval()
        return sum(float(self.loss(batch)) for batch in loader(seed=2)) / 40


def fp16() -> MixedPrecision:
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=30))


WAYS = {
    "32-true": {},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "bf16-true": {"precision": "bf16-true"},
    "clipped by value": {"clip": "clip_val"},
    "not clipped": {"clip": ""},
}


@pytest.mark.parametrize("way", WAYS)
def test_without_a_fault_the_weights_are_those_of_the_plain_loop_to_the_last_bit(tmp_path, way):
    alone, ours = Training(**WAYS[way]).train(), Training({"run_dir": tmp_path / "run"}, **WAYS[way]).train()
    assert alone.states == ours.states
    assert [each["event"] for each in events(tmp_path)] == ["start", "closed"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_step_touches_nothing_and_training_goes_on_to_learn(tmp_path, fault):
    at = 30 if fault == "spike" else 7
    settings = {"run_dir": tmp_path / "run", "policy": Policy.refuse_spikes()}
    training = Training(settings, fault=fault, at=at).train()
    assert [number for number in range(40) if training.states[number] == training.states[number + 1]] == [at]
    assert [number for number, refused in enumerate(training.refused) if refused] == [at]
    (veto,) = events(tmp_path, "veto")
    assert veto["step"] == at + 1
    if fault == "nan-gradient":
        assert veto["bad_parameters"] == ["up.weight"]
    if fault == "nan-batch":
        assert events(tmp_path, "autopsy")[0]["cause"] == "bad-data-row"
    assert training.finite()
    assert training.error() < 0.5


def test_by_default_a_finite_spike_is_taken_and_the_model_learns_on(tmp_path):
    training = Training({"run_dir": tmp_path / "run"}, fault="spike", at=30).train()
    assert events(tmp_path, "veto") == []
    assert not any(training.refused)
    assert training.error() < 0.5


def test_the_same_loop_without_the_guard_stops_at_its_own_clipping_or_ends_in_nan():
    with pytest.raises(RuntimeError, match="non-finite"):
        Training(fault="nan-batch").train()
    assert not Training(fault="nan-batch", clip="").train().finite()


def test_a_scaler_backs_off_as_by_itself_and_clipping_unscales_once(tmp_path):
    for clip in ("", "max_norm"):
        alone = Training(clip=clip, plugins=[fp16()]).train()
        ours = Training({"run_dir": None}, clip=clip, plugins=[fp16()]).train()
        assert alone.states == ours.states
    place = tmp_path / clip
    ours = Training({"run_dir": place / "run"}, fault="nan-batch", clip=clip, plugins=[fp16()]).train()
    (veto,) = events(place, "veto")
    assert veto["loss_scale"] == 2.0**10
    assert ours.fabric.strategy.precision.scaler.get_scale() == 2.0**10
    assert ours.error() < 0.5


def test_a_checkpoint_of_fabric_holds_the_guard(tmp_path):
    training = Training({"run_dir": None}, fault="nan-batch").train()
    state = {"model": training.model, "optimizer": training.optimizer, "guard": training.guard}
    training.fabric.save(tmp_path / "saved.ckpt", state)
    other = Training({"run_dir": None})
    other.fabric.load(
        tmp_path / "saved.ckpt", {"model": other.model, "optimizer": other.optimizer, "guard": other.guard}
    )
    assert other.guard.state_dict() == training.guard.state_dict()
    assert other.guard.state_dict()["step"] == 40


def test_what_the_loop_logs_has_norm_and_vetoes_beside_it(tmp_path):
    Training({}, fault="nan-batch", loggers=[CSVLogger(tmp_path, "logs", flush_logs_every_n_steps=1)]).train()
    home = tmp_path / "logs" / "version_0"
    rows = (home / "metrics.csv").read_text().splitlines()
    column = rows[0].split(",").index("stayfinite/vetoes")
    assert [float(row.split(",")[column]) for row in rows[1:]] == [0.0] * 7 + [1.0] * (len(rows) - 8)
    assert (home / "stayfinite" / "steps.jsonl").exists()


def test_a_guard_is_told_of_what_was_not_set_up():
    fabric, model = Fabric(accelerator="cpu", devices=1), nn.Linear(2, 1)
    with pytest.raises(UsageError, match="fabric.setup"):
        fabric_guard(fabric, model, torch.optim.SGD(model.parameters(), 0.1))
    with pytest.raises(UsageError, match="expected a Fabric"):
        fabric_guard(Path(), model, model)
