"""Everything that a Trainer can be told about steps: precision, accumulation, clipping, schedules, hands."""

from __future__ import annotations

import json

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from lightning_training import LIGHTNING_SAYS, Regression, Witness, build, error, events, fit, guarded
from quick_ones import quick_ones
from stayfinite import Policy
from stayfinite.integrations.lightning import NotGuarded

pytestmark = LIGHTNING_SAYS


def same(one: pl.LightningModule, other: pl.LightningModule) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def learns_the_same(folder, kind: type[pl.LightningModule], **settings) -> bool:
    """Whether a module ends with the same bits with and without the guard."""
    alone, ours = build(kind), build(kind)
    fit(folder, [], alone, **settings)
    fit(folder, [guarded(folder)], ours, **settings)
    return same(alone, ours)


WAYS = {
    "accumulated": {"accumulate_grad_batches": 3},
    "clipped by norm": {"gradient_clip_val": 0.5},
    "clipped by value": {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"},
    "bf16-mixed": {"precision": "bf16-mixed"},
    "bf16-true": {"precision": "bf16-true"},
    "64-true": {"precision": "64-true"},
}


@pytest.mark.parametrize("way", quick_ones(WAYS, "accumulated", "clipped by norm", "bf16-mixed"))
def test_every_way_is_bit_identical_without_a_fault_and_refuses_a_bad_step(tmp_path, way):
    assert learns_the_same(tmp_path / "good", Regression, **WAYS[way])
    assert not events(tmp_path / "good", "veto")
    witness, module = Witness(), build(Regression, "nan-batch")
    fit(tmp_path, [guarded(tmp_path / "bad"), witness], module, **WAYS[way])
    (veto,) = events(tmp_path / "bad", "veto")
    (autopsy,) = events(tmp_path / "bad", "autopsy")
    assert autopsy["cause"] == "bad-data-row"
    if way == "accumulated":
        # Batches 6, 7 and 8 make the third step; BatchNorm has moved at each of them and is put back with the third.
        assert veto["step"] == 3
        assert witness.before[6] == witness.after[8]
    else:
        assert veto["step"] == 8
        assert witness.untouched == [7]
    assert error(module) < 0.6


def fp16(growth_interval: int = 30) -> MixedPrecision:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=growth_interval)
    return MixedPrecision("16-mixed", "cpu", scaler)


def test_an_fp16_scaler_backs_off_as_by_itself_and_the_schedule_stands_still(tmp_path):
    alone, _ = fit(tmp_path, [], plugins=[fp16()])
    ours, trainer = fit(tmp_path, [guarded(tmp_path / "good")], plugins=[fp16()])
    assert same(alone, ours)
    scale = trainer.precision_plugin.scaler.get_scale()
    module = build(Regression, "nan-gradient")
    _, trainer = fit(tmp_path, [guarded(tmp_path / "bad")], module, plugins=[fp16()])
    # The hook that plants it comes after the scaler has looked: only the guard sees this one.
    assert len(events(tmp_path / "bad", "veto")) == 1
    module = build(Regression, "nan-batch")
    _, trainer = fit(tmp_path, [guarded(tmp_path / "worse")], module, plugins=[fp16()])
    (veto,) = events(tmp_path / "worse", "veto")
    assert veto["loss_scale"] == 2.0**10
    assert scale == 2.0**11
    assert trainer.precision_plugin.scaler.get_scale() == 2.0**10
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 39
    assert error(module) < 0.5


def test_a_step_that_would_overflow_fp16_is_recorded_with_its_true_loss(tmp_path):
    module, _ = fit(tmp_path, [guarded(tmp_path)], plugins=[fp16(15)])
    lines = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert [line["loss"] for line in lines] == pytest.approx(module.losses, rel=1e-3)
    assert lines[-1]["loss_scale"] > lines[0]["loss_scale"]


class ByEpoch(Regression):
    interval = "epoch"


def test_a_schedule_by_epoch_moves_at_the_end_of_an_epoch_even_if_its_last_step_was_refused(tmp_path):
    module = build(ByEpoch, "nan-batch", (39,))
    _, trainer = fit(tmp_path, [guarded(tmp_path)], module, max_epochs=2)
    assert len(events(tmp_path, "veto")) == 2
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 2


class TwoSchedules(Regression):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
        by_step = {"scheduler": StepLR(optimizer, 10), "interval": "step"}
        plateau = {"scheduler": ReduceLROnPlateau(optimizer), "interval": "epoch", "monitor": "train_loss"}
        return [optimizer], [by_step, plateau]


def test_several_schedules_are_fine(tmp_path):
    assert learns_the_same(tmp_path, TwoSchedules)


class ByHand(Regression):
    """One optimizer, driven by hand, with a schedule that is moved by hand too."""

    by_hand = True

    def training_step(self, batch, batch_idx):
        optimizer, scheduler = self.optimizers(), self.lr_schedulers()
        optimizer.zero_grad()
        loss = self.loss(batch)
        self.losses.append(float(loss.detach()))
        self.log("train_loss", loss)
        self.manual_backward(loss)
        self.clip_gradients(optimizer, 1.0, "norm")
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("fault", quick_ones(["nan-batch", "nan-gradient", "inf-loss"], "nan-gradient"))
def test_a_training_by_hand_is_guarded_too(tmp_path, fault):
    assert learns_the_same(tmp_path / "good", ByHand)
    witness, module = Witness(), build(ByHand, fault)
    _, trainer = fit(tmp_path, [guarded(tmp_path / "bad"), witness], module)
    assert witness.untouched == [7]
    assert len(events(tmp_path / "bad", "veto")) == 1
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 39
    assert "step" not in vars(trainer.lr_scheduler_configs[0].scheduler)
    assert error(module) < 0.5
    if fault == "nan-batch":
        (autopsy,) = events(tmp_path / "bad", "autopsy")
        assert autopsy["cause"] == "bad-data-row"


def test_a_spike_is_seen_before_a_hand_clips_it_away(tmp_path):
    fit(tmp_path, [guarded(tmp_path, Policy.refuse_spikes())], build(ByHand, "spike", (30,)))
    (veto,) = events(tmp_path, "veto")
    assert veto["grad_norm"] > 1.0


class Adversaries(pl.LightningModule):
    """Two optimizers that take turns, as in a GAN."""

    fault, at = "", ()

    def __init__(self, bad: int | None = None) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.maker, self.critic, self.bad = nn.Linear(6, 6), nn.Linear(6, 1), bad

    def training_step(self, batch, batch_idx):
        x, _ = batch
        first, second = self.optimizers()
        self.toggle_optimizer(first)
        loss = -self.critic(self.maker(x)).tanh().mean()
        self.manual_backward(loss)
        first.step()
        first.zero_grad()
        self.untoggle_optimizer(first)
        self.toggle_optimizer(second)
        loss = (self.critic(x) - 1).square().mean() + self.critic(self.maker(x).detach()).square().mean()
        self.manual_backward(loss * (float("nan") if batch_idx == self.bad else 1.0))
        second.step()
        second.zero_grad()
        self.untoggle_optimizer(second)

    def configure_optimizers(self):
        return [torch.optim.Adam(self.maker.parameters(), 0.01), torch.optim.SGD(self.critic.parameters(), 0.01)]


def test_of_two_optimizers_only_the_bad_step_is_refused(tmp_path):
    alone, ours = build(Adversaries), build(Adversaries)
    fit(tmp_path, [], alone)
    _, trainer = fit(tmp_path, [guarded(tmp_path / "good")], ours)
    assert same(alone, ours)
    assert "stayfinite/optimizer1/grad_norm" in trainer.callback_metrics
    module = build(Adversaries, 7)
    fit(tmp_path, [guarded(tmp_path / "bad")], module)
    assert not events(tmp_path / "bad", "veto", "run/optimizer0")
    (veto,) = events(tmp_path / "bad", "veto", "run/optimizer1")
    assert veto["step"] == 8
    assert all(bool(torch.isfinite(value).all()) for value in module.state_dict().values())


class Nothing(Regression):
    """Returns no loss every now and then, which Lightning allows."""

    def training_step(self, batch, batch_idx):
        return None if batch_idx % 5 == 4 else super().training_step(batch, batch_idx)


@pytest.mark.filterwarnings("ignore:.training_step. returned .None.")
def test_a_training_step_may_return_nothing(tmp_path):
    assert learns_the_same(tmp_path, Nothing)
    assert len((tmp_path / "run" / "steps.jsonl").read_text().splitlines()) == 32


def test_an_optimizer_that_holds_a_part_of_the_model_is_fine(tmp_path):
    class Half(Regression):
        def configure_optimizers(self):
            return torch.optim.SGD(self.net.down.parameters(), lr=0.05)

    assert learns_the_same(tmp_path, Half)


class PastLightning(Regression):
    """Runs backward without telling Lightning, which its documentation forbids."""

    by_hand = True

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.loss(batch).backward()
        optimizer.step()


def test_a_backward_pass_past_lightning_is_not_guarded_and_says_so(tmp_path):
    with pytest.warns(NotGuarded, match="manual_backward"):
        assert learns_the_same(tmp_path, PastLightning)


class StepsBeforehand(Regression):
    """Takes a step in the middle of what an autopsy would run again."""

    by_hand = True

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        if batch_idx:
            optimizer.step()
            optimizer.zero_grad()
        self.manual_backward(self.loss(batch))


def test_running_a_step_again_never_takes_one(tmp_path):
    alone, ours = build(StepsBeforehand, "nan-batch"), build(StepsBeforehand, "nan-batch")
    fit(tmp_path, [guarded(tmp_path / "one", Policy(autopsy_seconds=0))], alone)
    fit(tmp_path, [guarded(tmp_path / "other")], ours)
    assert events(tmp_path / "other", "autopsy-failed")
    assert same(alone, ours)
    assert len((tmp_path / "other" / "run" / "steps.jsonl").read_text().splitlines()) == 39


def test_weights_in_fp16_are_guarded(tmp_path):
    class Half(Regression):
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    module = build(Half, "nan-batch")
    fit(tmp_path, [guarded(tmp_path)], module, precision="16-true")
    assert [each["step"] for each in events(tmp_path, "veto")] == [8]
    assert all(bool(torch.isfinite(value).all()) for value in module.state_dict().values())


def test_lbfgs_cannot_be_guarded_and_trains_on_with_a_warning(tmp_path):
    class Newton(Regression):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), max_iter=2)

    with pytest.warns(NotGuarded, match="closure"):
        assert learns_the_same(tmp_path, Newton)


class TwoGroups(Regression):
    """Groups in another order than the model's: a norm is summed in another order, too."""

    def configure_optimizers(self):
        groups = [{"params": list(self.net.down.parameters())}, {"params": list(self.net.up.parameters())}]
        return torch.optim.AdamW([*groups, {"params": list(self.net.norm.parameters())}], lr=0.02)


class HalvesGradients(Regression):
    """Changes its gradients after they were measured and before they are clipped."""

    def on_before_optimizer_step(self, optimizer):
        for parameter in self.parameters():
            parameter.grad.mul_(0.5)


@pytest.mark.parametrize("kind", [TwoGroups, HalvesGradients])
def test_clipping_is_lightnings_own_to_the_last_bit(tmp_path, kind):
    assert learns_the_same(tmp_path, kind, gradient_clip_val=0.3)
