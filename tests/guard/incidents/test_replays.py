"""One step in so many is run again: a device that errs is caught and named, and nothing else is."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from guarded_training import GuardedTraining, events, incidents
from stayfinite import DeviceFault, Guard, Policy, UsageError
from stayfinite.autopsy.incidents.incident_files import read_incident
from tiny_training import Lines, changed, fingerprint

EVERY = 5


class Device(nn.Module):
    """Hands numbers on; in the calls that are planted, one bit of one of them is flipped."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.faulty: Any = lambda _call: False
        self.bit = 12

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if not self.faulty(self.calls):
            return x
        flipped = x.detach().clone()
        # Another element each time, as a bad line in a card's memory would hit; none that dropout has set to 0.
        place = x.detach().view(-1).abs().topk(16).indices[self.calls % 16]
        flipped.view(torch.int32).view(-1)[place] ^= 1 << self.bit
        return x + (flipped - x.detach())


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), Device(), nn.Linear(16, 3))


class Training:
    def __init__(self, run_dir: Path | None, *, every: int = EVERY, accumulate: int = 1, **settings: Any) -> None:
        self.model = network()
        self.device: Device = self.model[4]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.console = Lines()
        self.accumulate = accumulate
        policy = Policy(replay_every=every, autopsy_seconds=0, **settings.pop("policy", {}))
        forward = settings.pop("forward", self.loss)
        self.guard = Guard(
            self.model,
            self.optimizer,
            policy=policy,
            run_dir=run_dir,
            forward=forward,
            console=self.console,
            **settings,
        )
        self.data = torch.Generator().manual_seed(3)

    def loss(self, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch["x"]), batch["y"])

    def batch(self) -> dict[str, Tensor]:
        x = torch.randn(8, 6, generator=self.data)
        return {"x": x, "y": (x.sum(1) > 0).long()}

    def steps(self, count: int) -> None:
        for _ in range(count):
            for _ in range(self.accumulate):
                self.guard.backward(self.guard.forward(self.batch()) / self.accumulate)
            self.guard.step()

    def everything(self) -> dict[str, Any]:
        moments = [dict(self.optimizer.state.get(p, {})) for p in self.model.parameters()]
        return fingerprint(model=dict(self.model.state_dict()), moments=moments, rng=torch.get_rng_state())

    @property
    def refused(self) -> list[int]:
        return [decision.step for decision in self.guard.decisions if decision.refused]


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("mode", ["protect", "watch"])
def test_a_healthy_run_is_bit_for_bit_the_same_with_replay_on(tmp_path, accumulate, mode):
    ends = []
    for every in (0, EVERY):
        training = Training(tmp_path / str(every), every=every, accumulate=accumulate, policy={"mode": mode})
        training.steps(12)
        training.guard.close()
        ends.append(training.everything())
        assert training.refused == []
    assert changed(*ends) == []
    assert training.device.calls > 12 * accumulate
    (told,) = events(tmp_path / str(EVERY), "replays")
    assert (told["replayed"], told["mismatches"]) == (3 + 2, 0)
    assert not [line for line in training.console.lines if "replay" in line]


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("bit", [8, 12, 30])
def test_a_bit_that_flips_once_is_refused_as_transient_and_the_device_is_named(tmp_path, bit, accumulate):
    training = Training(tmp_path, accumulate=accumulate)
    training.steps(9)
    before = training.everything()
    training.device.bit = bit
    last = training.device.calls + accumulate
    training.device.faulty = lambda call: call == last
    training.steps(1)
    assert training.refused == [10]
    assert changed(before, training.everything()) == ["rng"]
    training.steps(12)
    training.guard.close()
    assert training.refused == [10]
    (found,) = events(tmp_path, "replay-mismatch")
    assert (found["step"], found["kind"], found["host"], found["device"]) == (10, "transient", platform.node(), "cpu")
    (veto,) = events(tmp_path, "veto")
    assert veto["code"] == "replay-mismatch"
    assert f"transient fault on {platform.node()} cpu" in veto["reason"]
    (finding,) = events(tmp_path, "finding")
    assert finding["cause"] == "hardware"
    assert incidents(tmp_path) == ["0001"]
    assert read_incident(tmp_path / "incidents/0001").record["notes"]["replay"]["kind"] == "transient"


def test_a_fault_in_the_re_run_alone_is_a_fault_of_the_device_too(tmp_path):
    training = Training(tmp_path)
    training.steps(9)
    second = training.device.calls + 2
    training.device.faulty = lambda call: call == second
    training.steps(2)
    assert training.refused == [10]
    assert events(tmp_path, "replay-mismatch")[0]["kind"] == "transient"


def test_a_device_that_keeps_erring_is_persistent_and_stops_the_training(tmp_path):
    training = Training(tmp_path)
    training.steps(7)
    training.device.faulty = lambda _call: True
    before = fingerprint(model=dict(training.model.state_dict()))
    with pytest.raises(DeviceFault, match=f"persistent fault on {platform.node()} cpu") as stop:
        training.steps(50)
    # Steps 8 and 9 were not due; from 10 on each is looked at, and none of them has touched a weight.
    assert [each["step"] for each in events(tmp_path, "replay-mismatch")] == list(range(10, 16))
    assert {each["kind"] for each in events(tmp_path, "replay-mismatch")} == {"persistent"}
    assert stop.value.exit_code == 89
    assert changed(before, fingerprint(model=dict(training.model.state_dict())))


class Unseeded(nn.Module):
    """Noise from a generator that nobody restores: it never repeats itself."""

    def __init__(self, size: float = 1e-3) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(5)
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x + self.size * torch.randn(x.shape, generator=self.generator)


class RandomOrder(torch.autograd.Function):
    """A backward pass that adds in another order each time, as atomics on a device do; the forward pass is exact."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    order = torch.Generator().manual_seed(11)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        parts = torch.stack([gradient * share for share in (0.1, 0.2, 0.3, 0.7, 1e4, -1e4, -0.3)])
        total = torch.zeros_like(gradient)
        for place in torch.randperm(len(parts), generator=RandomOrder.order):
            total = total + parts[place]
        return total


def test_a_forward_pass_that_never_repeats_itself_turns_replay_off_and_says_so_once(tmp_path):
    training = Training(tmp_path, forward=lambda batch: noisy(training, batch))
    noise = Unseeded()

    def noisy(training: Training, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(training.model(noise(batch["x"])), batch["y"])

    training.steps(25)
    training.guard.close()
    assert training.refused == []
    (off,) = events(tmp_path, "replay-off")
    assert "loss differs from run to run" in off["reason"]
    assert events(tmp_path, "finding") == []


def test_gradients_that_are_added_in_any_order_are_left_out_and_the_rest_is_still_compared(tmp_path):
    training = Training(tmp_path)
    model = training.model

    def forward(batch: dict[str, Tensor]) -> Tensor:
        hidden = RandomOrder.apply(model[:3](batch["x"]))
        return nn.functional.cross_entropy(model[3:](hidden), batch["y"])

    training.guard._forward.function = forward
    training.steps(14)
    (told,) = events(tmp_path, "replay-restricted")
    assert "2 of 6 gradients" in told["reason"]
    assert training.refused == []
    last = training.device.calls + 1
    training.device.faulty = lambda call: call == last
    training.steps(1)
    assert training.refused == [15]


@pytest.mark.parametrize("what", ["writes", "unused", "twice"])
def test_a_step_that_cannot_be_run_again_is_taken_and_the_reason_said_once(tmp_path, what):
    training = Training(tmp_path)
    if what == "writes":
        training.guard._forward.function = lambda batch: training.loss({"x": batch["x"].mul_(1.0), "y": batch["y"]})
    for _ in range(8):
        if what == "unused":
            training.guard.step(training.loss(training.batch()))
            continue
        loss = training.guard.forward(training.batch())
        if what == "twice":
            training.guard.backward(loss, retain_graph=True)
        training.guard.step(loss)
    assert training.refused == []
    (told,) = events(tmp_path, "replay-not-run")
    reasons = {"writes": "modifies its batch", "unused": "guard.forward", "twice": "twice"}
    assert reasons[what] in told["reason"]


def test_a_penalty_outside_of_forward_is_no_device_fault(tmp_path):
    training = Training(tmp_path)
    for _ in range(12):
        loss = training.guard.forward(training.batch())
        training.guard.step(loss + 1e-3 * training.model[0].weight.square().sum())
    assert training.refused == []
    assert "5 of 6" in events(tmp_path, "replay-restricted")[0]["reason"]


def test_replay_needs_a_forward_pass():
    model = network()
    with pytest.raises(UsageError, match="replay_every=10.* needs a forward function"):
        Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), policy=Policy(replay_every=10))


def test_hooks_of_the_loop_are_run_once_a_step_and_stay(tmp_path):
    training = Training(tmp_path)
    seen: list[Tensor] = []
    training.model[0].weight.register_post_accumulate_grad_hook(seen.append)
    training.steps(6)
    assert len(seen) == 6
    training.model[5].weight.register_post_accumulate_grad_hook(seen.append)
    training.steps(1)
    assert len(seen) == 8


def test_a_scaler_and_autocast_are_part_of_what_is_run_again(tmp_path):
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    training = Training(tmp_path, scaler=scaler, policy={"precision": "bf16"})
    training.steps(12)
    training.guard.close()
    assert training.refused == []
    assert [each["mismatches"] for each in events(tmp_path, "replays")] == [0]
    assert not events(tmp_path, "replay-restricted")


def test_buffers_that_the_forward_pass_moves_are_as_before_in_a_re_run(tmp_path):
    policy = Policy(replay_every=EVERY, autopsy_seconds=0)
    training = GuardedTraining(tmp_path, policy=policy)  # its running mean is part of what it computes
    training.steps(12)
    training.guard.close()
    assert [each["mismatches"] for each in events(tmp_path, "replays")] == [0]
    assert not events(tmp_path, "replay-restricted")
    assert training.calls == 12 + 3 * 2 + 2


def test_the_gate_on_the_device_refuses_a_mismatch_and_goes_on(tmp_path):
    training = Training(None)
    training.optimizer = torch.optim.AdamW(training.model.parameters(), lr=1e-2, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(training.optimizer, lambda step: 1 / (1 + step))
    policy = Policy(replay_every=EVERY, gate="device", autopsy_seconds=0)
    training.guard = Guard(
        training.model, training.optimizer, schedule, policy=policy, run_dir=tmp_path / "device",
        forward=training.loss, console=training.console,
    )  # fmt: skip
    training.data = torch.Generator().manual_seed(3)
    training.steps(9)
    before = training.everything()
    last = training.device.calls + 1
    training.device.faulty = lambda call: call == last
    training.steps(1)
    training.guard.flush()
    assert training.refused == [10]
    assert changed(before, training.everything()) == ["rng"]
    assert schedule.last_epoch == 9
    training.steps(3)
    training.guard.close()
    assert (training.refused, schedule.last_epoch) == ([10], 12)
