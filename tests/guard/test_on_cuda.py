"""The guard on a CUDA device: it never waits for a healthy step, and a refused one leaves everything as it was.

Where pytest is missing:  PYTHONPATH=src:tests python3 tests/guard/test_on_cuda.py
"""

import copy
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import SkipTest

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from on_a_gpu import MARKS, each, no_host_wait, run_all
from stayfinite import Action, Code, Decision, Guard, Policy

pytestmark = MARKS

DEVICE = "cuda"
HEALTHY = 24
"""Steps before a fault; more than the spike test's warm-up."""


def network(*, batch_norm: bool = False) -> nn.Sequential:
    torch.manual_seed(1)
    middle = [nn.BatchNorm1d(16)] if batch_norm else []
    return nn.Sequential(nn.Linear(8, 16), *middle, nn.Tanh(), nn.Linear(16, 4)).to(DEVICE)


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    source = torch.Generator().manual_seed(2)
    rows = torch.randn(count, 32, 12, generator=source).to(DEVICE)
    return [(batch[:, :8], batch[:, 8:]) for batch in rows]


OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "AdamW fused amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True, amsgrad=True),
    "Adam fused": lambda p: torch.optim.Adam(p, lr=1e-3, fused=True),
    "SGD momentum fused": lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, fused=True),
    "Adagrad fused": lambda p: torch.optim.Adagrad(p, lr=1e-3, fused=True),
    "Adagrad foreach": lambda p: torch.optim.Adagrad(p, lr=1e-3, foreach=True),
    "RMSprop foreach": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, foreach=True),
    "RMSprop plain": lambda p: torch.optim.RMSprop(p, lr=1e-3, momentum=0.9, foreach=False),
    "NAdam foreach": lambda p: torch.optim.NAdam(p, lr=1e-3, foreach=True),
    "NAdam plain": lambda p: torch.optim.NAdam(p, lr=1e-3, foreach=False),
    "RAdam foreach": lambda p: torch.optim.RAdam(p, lr=1e-3, foreach=True),
    "RAdam plain": lambda p: torch.optim.RAdam(p, lr=1e-3, foreach=False),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-3),
}


def skip_unless_it_exists(kind: str) -> None:
    """Fused Adagrad came late to CUDA; every other optimizer is there."""
    parameter = nn.Parameter(torch.ones(2, 2, device=DEVICE))
    parameter.grad = torch.ones_like(parameter)
    try:
        OPTIMIZERS[kind]([parameter]).step()
    except (NotImplementedError, RuntimeError) as error:
        if kind != "Adagrad fused":
            raise
        raise SkipTest(f"this torch has no fused Adagrad on {DEVICE}: {error}") from error


@dataclass
class Training:
    """A small guarded training, its schedule moving at every step."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LambdaLR
    guard: Guard

    @classmethod
    def start(
        cls, optimizer: str = "AdamW fused", *, batch_norm: bool = False, level: bool = False, **settings: Any
    ) -> "Training":
        model = network(batch_norm=batch_norm)
        built = OPTIMIZERS[optimizer](model.parameters())
        scheduler = LambdaLR(built, lambda step: 1.0 if level else 1 / (1 + step))
        return cls(model, built, scheduler, Guard(model, built, scheduler, console=Console(quiet=True), **settings))

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.mse_loss(self.model(batch[0]), batch[1])

    def run(self, given: list[tuple[Tensor, Tensor]]) -> None:
        for batch in given:
            self.guard.step(self.loss(batch))

    def everything(self) -> dict[str, Any]:
        """All that a refused step must not change, as bytes where it is a tensor."""
        optimizer = copy.deepcopy(self.optimizer.state_dict())
        return {
            "model": {name: bits(tensor) for name, tensor in self.model.state_dict().items()},
            "moments": {
                index: {name: bits(value) if isinstance(value, Tensor) else value for name, value in state.items()}
                for index, state in optimizer["state"].items()
            },
            "groups": optimizer["param_groups"],
            "schedule": copy.deepcopy(self.scheduler.state_dict()),
            "lr": self.scheduler.get_last_lr(),
        }


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).tolist())


def refusals(guard: Guard) -> list[Decision]:
    return [decision for decision in guard.decisions if decision.refused]


@contextmanager
def deterministic() -> Iterator[None]:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def poisoned(parameter: nn.Parameter, value: float) -> Iterator[None]:
    """Within, one element of the parameter's gradient is that value."""

    def poison(grad: Tensor) -> Tensor:
        grad = grad.clone()
        grad.view(-1)[0] = value
        return grad

    handle = parameter.register_hook(poison)
    try:
        yield
    finally:
        handle.remove()


def in_the_loss(change: Callable[[Tensor], Tensor]) -> Callable[[Training, tuple[Tensor, Tensor]], None]:
    return lambda training, batch: training.guard.step(change(training.loss(batch)))


def in_a_gradient(place: int, value: float) -> Callable[[Training, tuple[Tensor, Tensor]], None]:
    def step(training: Training, batch: tuple[Tensor, Tensor]) -> None:
        with poisoned(list(training.model.parameters())[place], value):
            training.guard.step(training.loss(batch))

    return step


FAULTS = {
    "NaN loss": (in_the_loss(lambda loss: loss + float("nan")), Code.LOSS_NOT_FINITE),
    "+Inf loss": (in_the_loss(lambda loss: loss + float("inf")), Code.LOSS_NOT_FINITE),
    "-Inf loss": (in_the_loss(lambda loss: loss - float("inf")), Code.LOSS_NOT_FINITE),
    "NaN in one element": (in_a_gradient(0, float("nan")), Code.GRADIENT_NOT_FINITE),
    "Inf in the last parameter": (in_a_gradient(-1, float("inf")), Code.GRADIENT_NOT_FINITE),
    "loss x 1000": (in_the_loss(lambda loss: 1000 * loss), Code.LOSS_SPIKE),
}


@each("batch_norm", [False, True])
@each("half", [False, True])
def test_a_hundred_healthy_steps_never_wait_for_the_device(batch_norm: bool, half: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        scaler = torch.amp.GradScaler("cuda", init_scale=256.0) if half else None
        training = Training.start(batch_norm=batch_norm, scaler=scaler, run_dir=directory)
        given = batches(100)
        with no_host_wait():
            for batch in given:
                with torch.autocast("cuda", torch.float16, enabled=half):
                    loss = training.loss(batch)
                training.guard.step(loss)
        training.guard.close()
        assert len(training.guard.decisions) == 100
        assert not refusals(training.guard)
        assert len((Path(directory) / "steps.jsonl").read_text().splitlines()) == 100
        assert (Path(directory) / "layers.npz").exists()


def test_the_mode_that_proves_it_does_catch_a_wait() -> None:
    with no_host_wait():
        try:
            torch.ones((), device=DEVICE).item()
        except RuntimeError:
            return
    raise AssertionError("set_sync_debug_mode('error') let a host wait pass")


@each("fault", list(FAULTS))
@each("optimizer", list(OPTIMIZERS))
def test_a_refused_step_changes_no_bit(optimizer: str, fault: str) -> None:
    skip_unless_it_exists(optimizer)
    training = Training.start(optimizer, batch_norm=True, policy=Policy.refuse_spikes())
    *healthy, last = batches(HEALTHY + 1)
    training.run(healthy)
    training.guard.flush()
    assert not refusals(training.guard)
    before = training.everything()
    step, code = FAULTS[fault]

    step(training, last)
    training.guard.flush()

    assert training.everything() == before
    assert [(decision.step, decision.code) for decision in refusals(training.guard)] == [(HEALTHY + 1, code)]
    assert training.model[0].weight.grad is None


@each("optimizer", ["AdamW fused", "Adam fused", "SGD momentum fused", "Adagrad fused", "RMSprop foreach"])
def test_a_first_step_that_is_refused_leaves_the_weights_and_a_clean_start(optimizer: str) -> None:
    skip_unless_it_exists(optimizer)
    with deterministic():
        bad, plain = Training.start(optimizer), Training.start(optimizer)
        given = batches(HEALTHY)
        bad.guard.step(bad.loss(given[0]) + float("nan"))
        bad.guard.flush()
        bad.run(given)
        plain.run(given)
        bad.guard.flush()
        plain.guard.flush()
        assert bad.everything() == plain.everything()


@each("spoil", [float("nan"), float("inf"), 1e4])
@each("optimizer", ["AdamW fused", "SGD momentum fused", "RMSprop foreach"])
def test_a_bad_batch_in_the_middle_is_as_if_it_had_never_been_there(optimizer: str, spoil: float) -> None:
    with deterministic():
        policy = Policy.refuse_spikes()
        guarded, spared = (Training.start(optimizer, batch_norm=True, policy=policy) for _ in range(2))
        given = batches(2 * HEALTHY)
        inputs, targets = given[0]
        for training in (guarded, spared):
            training.run(given[:HEALTHY])
        guarded.run([(inputs * spoil, targets * spoil)])
        guarded.guard.flush()  # until the refusal is heard of, the schedule is one position ahead
        for training in (guarded, spared):
            training.run(given[HEALTHY:])
            training.guard.flush()
        assert len(refusals(guarded.guard)) == 1
        assert guarded.everything() == spared.everything()


def test_under_a_level_schedule_no_flush_is_needed() -> None:
    with deterministic():
        guarded, spared = (Training.start(level=True) for _ in range(2))
        given = batches(2 * HEALTHY)
        inputs, targets = given[0]
        guarded.run([*given[:HEALTHY], (inputs * float("nan"), targets), *given[HEALTHY:]])
        spared.run(given)
        guarded.guard.flush()
        spared.guard.flush()
        assert guarded.everything() == spared.everything()


def test_a_scaler_backs_off_as_by_itself_and_no_bit_changes() -> None:
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0)
    training = Training.start(scaler=scaler)
    *healthy, last = batches(HEALTHY + 1)
    training.run(healthy)
    training.guard.flush()
    before = training.everything()
    in_a_gradient(0, float("inf"))(training, last)
    training.guard.flush()
    assert training.everything() == before
    assert scaler.get_scale() == 128.0
    assert [decision.code for decision in refusals(training.guard)] == [Code.SCALE_SEARCH]


@each("spikes", ["refuse", "bound"])
def test_the_device_decides_as_the_host_does(spikes: Any) -> None:
    given = batches(160)
    scales = dict.fromkeys(range(60, 72), 300.0) | {30: float("nan"), 40: float("inf"), 50: 100.0, 120: 1e3}
    heard, losses = {}, {}
    with deterministic():
        for gate in ("device", "host"):
            training = Training.start(level=True, policy=Policy(gate=gate, snapshots=False, spikes=spikes))
            for number, batch in enumerate(given):
                training.guard.step(training.loss(batch) * scales.get(number, 1.0))
            training.guard.flush()
            heard[gate] = [(decision.step, decision.action, decision.code) for decision in training.guard.decisions]
            losses[gate] = torch.tensor([decision.signals.loss for decision in training.guard.decisions])
    assert heard["device"] == heard["host"]
    # The device's optimizer divides by what the host multiplies with, so the last bit may differ.
    torch.testing.assert_close(losses["device"], losses["host"], rtol=1e-3, atol=0, equal_nan=True)
    codes = {code for _, _, code in heard["host"]}
    expected = {Code.LOSS_SPIKE, Code.NEW_LEVEL} if spikes == "refuse" else {Code.UNUSUAL_GRADIENT}
    assert expected | {Code.LOSS_NOT_FINITE} <= codes
    taken = {action for _, action, _ in heard["host"]}
    assert (Action.VETO in taken, Action.BOUND in taken) == (True, spikes == "bound")


@each("optimizer", ["AdamW fused", "SGD momentum fused", "RMSprop foreach"])
def test_a_bounded_step_moves_the_weights_as_one_that_was_clipped_by_hand(optimizer: str) -> None:
    with deterministic():
        guarded, plain = (Training.start(optimizer, level=True, policy=Policy(snapshots=False)) for _ in range(2))
        given = batches(HEALTHY + 1)
        for training in (guarded, plain):
            training.run(given[:HEALTHY])
            training.guard.flush()
        guarded.guard.step(guarded.loss(given[-1]) * 1e4)
        guarded.guard.flush()
        decision = guarded.guard.decisions[-1]
        assert (decision.action, decision.refused) == (Action.BOUND, False)
        assert decision.limit is not None
        (plain.loss(given[-1]) * 1e4).backward()
        nn.utils.clip_grad_norm_(plain.model.parameters(), decision.limit)
        plain.optimizer.step()
        states = [training.model.state_dict() for training in (guarded, plain)]
        torch.testing.assert_close(*states, rtol=1e-4, atol=1e-6)


@each("optimizer", list(OPTIMIZERS))
def test_describe_says_whether_the_host_waits(optimizer: str) -> None:
    skip_unless_it_exists(optimizer)
    said = Training.start(optimizer).guard.describe()
    expected = "no host sync" if "fused" in optimizer else "one host sync per step:"
    assert expected in said, said
    assert "one host sync per step, as configured" in Training.start(policy=Policy(gate="host")).guard.describe()


if __name__ == "__main__":
    run_all(globals())
