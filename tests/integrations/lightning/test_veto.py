"""What Lightning's Trainer loses to a bad batch, and keeps with one callback."""

from __future__ import annotations

import math

import pytest
import torch

from lightning_training import FAULTS, LIGHTNING_SAYS, Regression, Witness, build, error, events, fit, guarded
from stayfinite import Policy

pytestmark = LIGHTNING_SAYS

AT = {"spike": 30}


def finite(module) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in module.state_dict().values())


class Plain(Regression):
    """Without momentum's memory a spike is a single jump; with a plain step it is one of fifty times the length."""

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def test_without_a_fault_the_weights_are_those_of_a_plain_trainer_to_the_last_bit(tmp_path):
    alone, _ = fit(tmp_path, [])
    ours, trainer = fit(tmp_path, [guarded(tmp_path)])
    for name, value in alone.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name
    assert alone.losses == ours.losses
    assert trainer.callback_metrics["stayfinite/vetoes"] == 0
    assert [each["event"] for each in events(tmp_path)] == ["start", "closed"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_step_touches_nothing_and_training_goes_on_to_learn(tmp_path, fault):
    witness, at = Witness(), AT.get(fault, 7)
    module = build(Regression, fault, (at,))
    _, trainer = fit(tmp_path, [guarded(tmp_path, Policy.refuse_spikes()), witness], module)
    assert witness.untouched == [at]
    assert trainer.lr_scheduler_configs[0].scheduler.last_epoch == 39
    (veto,) = events(tmp_path, "veto")
    assert veto["step"] == at + 1
    assert trainer.callback_metrics["stayfinite/vetoes"] == 1
    assert finite(module)
    assert error(module) < 0.5


@pytest.mark.parametrize("fault", ["nan-batch", "nan-gradient", "inf-loss"])
def test_the_same_training_without_the_callback_ends_in_nan(tmp_path, fault):
    module = build(Regression, fault)
    fit(tmp_path, [], module)
    assert not finite(module)


def test_the_same_spike_without_the_callback_throws_the_model_off(tmp_path):
    alone, ours = build(Plain, "spike", (30,)), build(Plain, "spike", (30,))
    fit(tmp_path, [], alone)
    fit(tmp_path, [guarded(tmp_path)], ours)
    assert [event["step"] for event in events(tmp_path, "bound")] == [31]
    assert events(tmp_path, "veto") == []
    assert error(ours) < 0.5
    assert not error(alone) < 5 * error(ours)


def test_clipping_would_have_spread_the_nan_and_the_veto_names_the_one_parameter(tmp_path):
    fit(tmp_path, [guarded(tmp_path)], build(Regression, "nan-gradient"), gradient_clip_val=1.0)
    (veto,) = events(tmp_path, "veto")
    assert veto["bad_parameters"] == ["net.up.weight"]
    assert math.isfinite(veto["loss"])


def test_a_bad_batch_is_explained_and_running_it_again_leaves_no_trace(tmp_path):
    callback = guarded(tmp_path)
    module = build(Regression, "nan-batch")
    _, trainer = fit(tmp_path, [callback], module)
    (autopsy,) = events(tmp_path, "autopsy")
    assert autopsy["cause"] == "bad-data-row"
    assert module.calls > 40
    assert (tmp_path / "run" / "incidents" / "0001" / "autopsy.json").exists()
    assert sorted(trainer.callback_metrics) == [
        "stayfinite/bounded",
        "stayfinite/findings",
        "stayfinite/grad_norm",
        "stayfinite/vetoes",
        "train_loss",
    ]
    assert trainer.callback_metrics["stayfinite/findings"] == 1
    assert trainer.callback_metrics["train_loss"] == pytest.approx(module.losses[-1])
    for name in ("training_step", "log", "log_dict", "lr_scheduler_step"):
        assert name not in vars(module)
