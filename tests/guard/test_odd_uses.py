"""Promises that a newcomer's trainings rely on."""

import errno
import json
import os
import tempfile

import pytest
import torch
from rich.console import Console
from torch import nn

from stayfinite import Guard, Policy, UsageError
from stayfinite.guard.gates.buffers import SMALL

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))


def training(**settings):
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, Guard(model, optimizer, console=Console(quiet=True), **settings)


def loss_of(model):
    return model(X).square().mean()


class OwnRate(torch.optim.SGD):
    """Finds its rate by itself, as transformers' Adafactor does, and holds None in its place."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.01)
        self.param_groups[0]["lr"] = None

    def step(self):
        self.param_groups[0]["lr"] = 0.01
        super().step()
        self.param_groups[0]["lr"] = None


def test_an_optimizer_may_find_its_learning_rate_by_itself():
    model = nn.Linear(8, 1)
    guard = Guard(model, OwnRate(model.parameters()), console=Console(quiet=True))
    guard.step(loss_of(model))
    assert guard.decisions[-1].signals.lr is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("x" * 300, "File name too long"),
        ("file", "it is a file"),
        ("file/run", "Not a directory"),
        ("a\0b", "null"),
        ("/proc/nope", "No such file"),
        ("/sys/nope/run", "Operation not permitted|Read-only|No such file|Permission"),
    ],
)
def test_a_run_directory_that_cannot_be_written_is_refused_before_training(tmp_path, name, reason):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=reason) as caught:
        training(run_dir=tmp_path / name)
    assert "cannot be written" in caught.value.message
    assert "name a new or writable directory" in caught.value.fix
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_guard_that_takes_no_step_leaves_no_directory_behind(tmp_path):
    training(run_dir=tmp_path / "runs" / "first")[2].close()
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_at_the_start_never_stops_training(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    model, _, guard = training(run_dir=tmp_path / "run")
    guard.step(loss_of(model))
    guard.close()


def test_a_name_that_utf8_cannot_hold_never_stops_training(tmp_path):
    model = nn.ModuleDict({"\ud800": nn.Linear(8, 1)})
    guard = Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), run_dir=tmp_path, console=Console(quiet=True))
    guard.step(loss_of(model["\ud800"]) * float("nan"))
    guard.close()
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert events[1]["bad_parameters"][0] == "\ud800.weight"


def test_a_console_that_cannot_print_is_refused_before_it_is_needed():
    with pytest.raises(UsageError, match="print"):
        Guard(nn.Linear(8, 1), torch.optim.SGD([torch.zeros(1)]), console=os)


def test_a_failing_optimizer_leaves_the_device_gate_and_the_schedule_in_step():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    guard = Guard(model, optimizer, scheduler=schedule, policy=Policy(gate="device"), console=Console(quiet=True))
    guard.step(loss_of(model))

    def out_of_memory(*_):
        raise MemoryError

    hook = optimizer.register_step_pre_hook(out_of_memory)
    with pytest.raises(MemoryError):
        guard.step(loss_of(model))
    hook.remove()
    guard.step(loss_of(model))
    guard.step(loss_of(model) * float("nan"))
    assert schedule.last_epoch == 2
    assert [decision.step for decision in guard.decisions] == [1, 3, 4]


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 256)
        self.register_buffer("codes", torch.zeros(SMALL // 256 + 1, 256))

    def forward(self, x):
        y = self.linear(x)
        with torch.no_grad():
            self.codes[: len(y)].mul_(0.9).add_(y, alpha=0.1)
        return y.square().mean()


@pytest.mark.parametrize("gate", ["host", "device"])
def test_a_large_buffer_that_has_been_seen_to_change_is_put_back(gate):
    model = Codebook()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    guard = Guard(model, optimizer, policy=Policy(gate=gate), console=Console(quiet=True))
    for _ in range(3):
        guard.step(model(X))
    before = model.codes.clone()
    guard.step(model(X * float("nan")))
    assert torch.equal(model.codes, before)
    guard.step(model(X))
    assert not torch.equal(model.codes, before)


def test_watching_does_not_claim_that_a_step_was_taken_which_the_scaler_refused():
    scaler = torch.amp.GradScaler("cpu", init_scale=1e38)
    model, _, guard = training(scaler=scaler, policy=Policy.watch())
    before = model.weight.clone()
    guard.step(loss_of(model) * 1e3)
    assert torch.equal(model.weight, before)
    assert "left to the scaler" in guard.decisions[-1].reason


def test_the_summary_does_not_claim_that_an_unwritable_directory_was_written(tmp_path):
    place = tmp_path / "run"
    said = []
    silent = Console(quiet=True)
    silent.print = said.append
    model = nn.Linear(8, 1)
    guard = Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), run_dir=place, console=silent)
    place.write_text("in the way")
    with pytest.warns(UserWarning, match="cannot write"):
        guard.step(loss_of(model))
    guard.close()
    assert f"nothing was saved: {place} could not be written" in said[-1]
    assert "saved to" not in said[-1]
