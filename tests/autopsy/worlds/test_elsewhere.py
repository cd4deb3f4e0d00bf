"""The step on another device: everything is put back, what was not moved is an error, and what follows from it."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.conclusions.conclude import conclude
from stayfinite.autopsy.conclusions.conclusion import Evidence
from stayfinite.autopsy.conclusions.readings import Readings
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.steps.trace import trace_step
from stayfinite.autopsy.worlds import elsewhere, worlds
from stayfinite.autopsy.worlds.elsewhere import autocast_on, model_on, moved_to, nothing_stays_behind, seconds_on
from stayfinite.autopsy.worlds.worlds import Materials
from stayfinite.state.rng import capture_rng

CPU = torch.device("cpu")


class Mixed(nn.Module):
    """Tied weights, a buffer, an LSTM, and a tensor that is neither parameter nor buffer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.memory = nn.LSTM(4, 4)
        self.shift = torch.full((4,), 0.5)

    def forward(self, x):
        return self.memory(self.norm(self.second(self.first(x))) + self.shift)[0]


def a_step(model, forward, batch, **settings):
    return Step(model=model, forward=forward, batch=batch, rng=capture_rng(), **settings)


def everything(model):
    return [
        *((name, id(p), p.grad, p.detach().clone()) for name, p in model.named_parameters()),
        *((name, id(b), None, b.clone()) for name, b in model.named_buffers()),
    ]


def same(before, after):
    return all(a[:2] == b[:2] and a[2] is b[2] and torch.equal(a[3], b[3]) for a, b in zip(before, after, strict=True))


def test_a_step_with_copies_leaves_the_model_as_it_was_bit_for_bit():
    torch.manual_seed(0)
    model = Mixed()
    shift, flat = model.shift, list(model.memory._flat_weights)
    model(torch.randn(3, 4)).sum().backward()
    before = everything(model)
    with model_on(model, CPU):
        assert model.first.weight is model.second.weight
        assert model.memory._flat_weights[0] is model.memory.weight_ih_l0
        assert not {id(p) for p in model.parameters()} & {each[1] for each in before}
        assert model.shift is not shift
        model(torch.randn(3, 4)).sum().backward()
        torch.optim.SGD(model.parameters(), lr=1.0).step()
    assert same(before, everything(model))
    assert model.shift is shift
    assert all(a is b for a, b in zip(flat, model.memory._flat_weights, strict=True))


def test_a_moved_step_gives_the_loss_and_the_gradients_of_the_step():
    torch.manual_seed(0)
    model = Mixed()
    step = a_step(model, lambda batch: model(batch["x"]).square().mean(), {"x": torch.randn(6, 4)})
    here, there = step.run(), moved_to(step, CPU).run()
    assert not there.error
    assert (here.loss, here.grad_norm) == (there.loss, there.grad_norm)


def test_everything_is_put_back_when_the_forward_pass_fails():
    model = Mixed()
    before = everything(model)

    def forward(batch):
        raise RuntimeError("cuda:0 expected")

    assert "cuda:0 expected" in moved_to(a_step(model, forward, torch.randn(3, 4)), CPU).run().error
    assert same(before, everything(model))


def test_autocast_follows_to_the_other_device_and_comes_back():
    entering, leaving = torch.amp.autocast.__enter__, torch.amp.autocast.__exit__
    x = torch.randn(4, 4)
    # Without a GPU torch warns and switches such an autocast off.
    asked = torch.autocast("cpu", torch.bfloat16)
    asked.device = "cuda"
    with autocast_on("cpu"):
        with asked:
            assert torch.is_autocast_enabled("cpu")
            assert (x @ x).dtype is torch.bfloat16
        assert not torch.is_autocast_enabled("cpu")
    assert asked.device == "cuda"
    assert (torch.amp.autocast.__enter__, torch.amp.autocast.__exit__) == (entering, leaving)


def test_computing_on_the_device_that_was_left_is_an_error_and_a_lone_number_is_none():
    with nothing_stays_behind("cpu"):
        torch.tensor(0.5)
        torch.arange(3)
        with pytest.raises(RuntimeError, match="always computes on cpu"):
            torch.ones(3) * 2.0


def test_the_estimate_of_the_time_grows_with_the_step():
    small, large = nn.Linear(8, 8), nn.Linear(512, 512)
    few = a_step(small, lambda x: small(x).sum(), torch.randn(4, 8))
    many = a_step(large, lambda x: large(x).sum(), torch.randn(256, 512))
    assert 0 < seconds_on(few, CPU, torch.float32) < seconds_on(many, CPU, torch.float32) < 60


@pytest.fixture
def second_cpu(monkeypatch):
    """The CPU once more as the other device: what runs on copies runs elsewhere."""
    monkeypatch.setattr(elsewhere, "other_device", lambda step: CPU)


def wrong_here_only(model, *, spoil):
    """A step with a fault that belongs to the model's own tensors: the kernel of a device, as far as a CPU can show."""
    here = model[0].weight

    def forward(batch):
        features = model[0](batch["x"])
        if model[0].weight is here:
            features = spoil(features)
        return F.mse_loss(model[1](features).squeeze(-1), batch["y"])

    torch.manual_seed(0)
    return a_step(model, forward, {"x": torch.randn(6, 5), "y": torch.randn(6)})


def test_a_step_that_is_bad_on_one_device_alone_is_blamed_on_what_runs_it(second_cpu):
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 1))
    step = wrong_here_only(model, spoil=lambda x: x.index_fill(1, torch.tensor([3]), math.nan))
    said = perform(step).to_json()
    assert said["cause"] == "upstream-bug", said["verdict"]
    assert said["fix"] == said["fix"] | {"verified": True, "by": "other_device"}
    assert said["confidence"] < 0.7, "a kernel, a line or the device: which one is not known"
    assert said["origin"]["operator"] == "aten.index_fill"
    assert list(said["worlds"][-1])[:1] == ["name"]
    assert said["worlds"][-1]["name"] == "other_device", "the most expensive one is the last"


def test_a_formula_at_its_edge_is_blamed_whatever_another_device_rounds_to(second_cpu):
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 1))
    step = wrong_here_only(model, spoil=lambda x: x * (x * 0.0).sum().sqrt())
    said = perform(step).to_json()
    assert said["cause"] == "loss-formula-singularity"
    assert "other_device" not in [world["name"] for world in said["worlds"]], "something else had decided"


def test_a_step_that_is_bad_everywhere_is_not_blamed_on_the_device(second_cpu):
    model = nn.Linear(5, 1)

    def forward(batch):
        return model(batch).index_fill(0, torch.tensor([1]), math.nan).mean()

    torch.manual_seed(0)
    said = perform(a_step(model, forward, torch.randn(6, 5))).to_json()
    assert {world["name"]: world["finite"] for world in said["worlds"]}["other_device"] is False
    assert said["cause"] == "nan-loss"


def test_a_world_that_could_not_be_run_is_no_evidence(second_cpu):
    model = nn.Linear(5, 1)
    here = model.weight

    def forward(batch):
        if model.weight is not here:
            raise RuntimeError("Expected all tensors to be on the same device")
        return model(batch).index_fill(0, torch.tensor([1]), math.nan).mean()

    said = perform(a_step(model, forward, torch.randn(6, 5))).to_json()
    (other,) = [world for world in said["worlds"] if world["name"] == "other_device"]
    assert "same device" in other["error"]
    assert said["cause"] == "nan-loss"
    assert "other_device" not in said["verdict"]


def test_random_numbers_of_another_generator_are_no_evidence(second_cpu):
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 1))
    step = wrong_here_only(model, spoil=lambda x: (x + torch.randn_like(x)).index_fill(1, torch.tensor([3]), math.nan))
    assert "other_device" not in worlds.all_worlds(step, trace_step(step), Materials())
    assert perform(step).to_json()["cause"] == "nan-loss"


def test_dropout_is_off_on_the_other_device_and_has_to_be_ruled_out_first(second_cpu):
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 1))
    step = wrong_here_only(model, spoil=lambda x: F.dropout(x, 0.5).index_fill(1, torch.tensor([3]), math.nan))
    said = perform(step).to_json()
    ran = {world["name"]: world for world in said["worlds"]}
    assert ran["dropout_off"]["finite"] is False
    assert ran["other_device"]["change"] == "everything on cpu, and no dropout"
    assert said["cause"] == "upstream-bug"


def test_a_parameter_with_a_hook_cannot_be_copied():
    model = nn.Linear(5, 1)
    model.weight.register_hook(lambda gradient: gradient * math.nan)
    step = a_step(model, lambda batch: model(batch).mean(), torch.randn(6, 5))
    assert elsewhere.other_device(step) is None


def test_an_incident_of_another_device_that_is_finite_here_is_called_that_and_no_more():
    model = nn.Linear(5, 1)
    step = a_step(model, lambda batch: model(batch).square().mean(), torch.randn(6, 5))
    materials = Materials(trigger="loss-not-finite", device="cuda")
    readings = Readings(step, trace_step(step))
    said = conclude(Evidence(readings, {"same": step.run()}, {"same": True}, [], materials))
    assert said.cause == "hardware"
    assert said.confidence <= 0.5
    assert "failed on cuda and is finite on cpu" in said.why
