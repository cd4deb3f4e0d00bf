"""fp16 with a loss scaler. accelerate leaves fp16 to accelerators, so here it is switched on by hand, on the CPU."""

import json
import math

import pytest
import torch

from quick_ones import quick_ones
from stayfinite.core.policy import Policy
from stayfinite.integrations.transformers import StayFinite
from tiny_trainers import Faulty, events, finite, same, tiny_trainer, weights

pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without bf16


def half_trainer(folder, *callbacks, scale=256.0, **settings):
    trainer = tiny_trainer(folder, *callbacks, fp16=True, **settings)
    trainer.accelerator.native_amp = True
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=5)
    return trainer


def half_trained(folder, *callbacks, **settings):
    trainer = half_trainer(folder, *callbacks, **settings)
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    "settings",
    quick_ones([{}, {"gradient_accumulation_steps": 2}, {"max_grad_norm": 0.0}], {"gradient_accumulation_steps": 2}),
)
def test_without_faults_fp16_ends_with_the_same_weights_and_the_same_scale(tmp_path, settings):
    plain = half_trained(tmp_path / "plain", **settings)
    guarded = half_trained(tmp_path / "guarded", StayFinite(), **settings)
    assert plain.accelerator.scaler.get_scale() == guarded.accelerator.scaler.get_scale() > 256
    assert same(weights(plain), weights(guarded))


def test_an_overflow_backs_the_scale_off_as_the_scaler_itself_would(tmp_path):
    plain = half_trained(tmp_path / "plain", scale=2.0**40)
    guarded = half_trained(tmp_path / "guarded", StayFinite(), scale=2.0**40)
    assert plain.accelerator.scaler.get_scale() == guarded.accelerator.scaler.get_scale() < 2.0**40
    assert same(weights(plain), weights(guarded))
    assert {event["code"] for event in events(tmp_path / "guarded", "veto")} == {"scale-search"}


@pytest.mark.parametrize("fault", quick_ones(["inf-loss", "nan-gradient", "spike"], "nan-gradient"))
def test_a_bad_step_is_refused_and_the_scaler_goes_on(tmp_path, fault):
    at = 15 if fault == "spike" else 7
    trainer = half_trained(tmp_path, StayFinite(Policy.refuse_spikes(), explain=False), fault=fault, at=at)
    assert finite(trainer)
    assert [event["step"] for event in events(tmp_path, "veto")] == [at]
    assert trainer.lr_scheduler.get_last_lr()[0] > 0


class FiniteInFp32(Faulty):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        seen = []
        handle = model.lm_head.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
        found = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        handle.remove()
        return found * math.nan if self.state.global_step >= 6 and seen[-1] else found


def test_the_ladder_leaves_fp16_and_its_scaler(tmp_path):
    policy = Policy(max_vetoes_in_a_row=1, patience=0, max_cuts=0, snapshots=False, autopsy_seconds=0)
    settings = {"kind": FiniteInFp32, "save_strategy": "steps", "save_steps": 15}
    trainer = half_trainer(tmp_path, StayFinite(policy), **settings)
    scaler = trainer.accelerator.scaler
    trainer.train()
    assert [event["to_precision"] for event in events(tmp_path, "escalate")] == ["bf16", "fp32"]
    assert finite(trainer)
    assert trainer.accelerator.scaler is scaler  # put back with everything else
    again = half_trainer(tmp_path, StayFinite(policy), **settings)
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-15"))
    assert same(weights(trainer), weights(again))
    assert len(events(tmp_path, "escalate")) == 2  # it has gone on in fp32


class OverflowsInFp16(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = torch.nn.Linear(16, 8), torch.nn.Linear(8, 24)
        with torch.no_grad():
            self.up.weight.mul_(2e5)
            self.down.weight.mul_(1e-6)

    def forward(self, inputs_embeds, labels):
        said = self.down(self.up(inputs_embeds))
        return {"loss": torch.nn.functional.cross_entropy(said.transpose(1, 2), labels), "logits": said}


def test_an_overflow_of_fp16_is_proved_by_running_the_step_in_other_precisions(tmp_path):
    half_trained(tmp_path, StayFinite(), model=OverflowsInFp16(), scale=8.0, max_steps=2)
    found = json.loads((tmp_path / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert found["cause"] == "fp16-overflow"
    assert found["origin"]["module"] == "up"
