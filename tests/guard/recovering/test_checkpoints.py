"""Checkpoints through the guard: saved, verified, resumed from; and what a kill at any moment costs."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import resumable_job
from child_processes import environment
from quick_ones import quick_ones
from stayfinite import Guard, OrderError, Policy, PolicyError, StateError, UsageError
from stayfinite.state.checkpoints import CheckpointWarning
from tiny_training import Lines, Training, changed
from warm import Process

JOB = Path(resumable_job.__file__)


def events(folder, kind):
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return [each for each in lines if each["event"] == kind]


def names(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def same(one, other):
    return all(torch.equal(one["model"][name], other["model"][name]) for name in one["model"]) and all(
        torch.equal(value, other["optimizer"]["state"][index][key])
        for index, entry in one["optimizer"]["state"].items()
        for key, value in entry.items()
    )


def launched(folder: Path) -> int:
    record = folder / "run.json"
    return len(json.loads(record.read_text())["launches"]) if record.exists() else 0


def launch(folder: Path, *arguments: str) -> Process:
    return Process([JOB, folder, *arguments], env=environment())


# -- the promise -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kill_after", quick_ones([2, 13], 13))
def test_a_killed_and_resumed_run_ends_with_the_very_same_weights(tmp_path, kill_after):
    whole = resumable_job.train(tmp_path / "whole")
    with launch(tmp_path / "killed", f"{kill_after}") as killed:
        assert killed.wait() == -signal.SIGKILL
    rest = resumable_job.train(tmp_path / "killed")
    assert rest["step"] == whole["step"] == 24
    # Two checkpoints back at most: the newest may still have been written when the kill came.
    assert kill_after - 6 < rest["first"] <= kill_after
    assert same(whole, rest)


@pytest.mark.slow
def test_kills_at_random_moments_change_nothing(tmp_path):
    whole = resumable_job.train(tmp_path / "whole")
    chance = random.Random(7)
    for launches in (1, 2):
        with launch(tmp_path / "killed") as process:
            while process.poll() is None and launched(tmp_path / "killed") < launches:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.3))
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
    rest = resumable_job.train(tmp_path / "killed")
    assert same(whole, rest)


def test_a_loader_with_a_generator_of_its_own_comes_back_too(tmp_path):
    whole = resumable_job.train(tmp_path / "whole", own_generator=True)
    resumable_job.train(tmp_path / "parts", own_generator=True, epochs=1)
    rest = resumable_job.train(tmp_path / "parts", own_generator=True)
    assert rest["first"] == 12
    assert same(whole, rest)


def test_resuming_in_one_process_gives_back_optimizer_schedule_and_memory(tmp_path):
    one = Training(run_dir=tmp_path)
    one.good(5)
    one.bad()
    one.guard.checkpoint()
    saved, remembered = one.state(), one.guard.state_dict()
    one.guard.close()
    other = Training(run_dir=tmp_path)
    assert other.guard.resume() == 6
    assert changed(saved, other.state()) == []
    assert other.guard.state_dict() == remembered
    assert events(tmp_path, "resume")[0]["checkpoint"] == "step-00000006"


def test_an_fp16_scaler_comes_back(tmp_path):
    one = Training(precision="fp16-autocast", run_dir=tmp_path)
    one.good(7)
    one.guard.checkpoint()
    one.guard.close()
    other = Training(precision="fp16-autocast", run_dir=tmp_path)
    other.guard.resume()
    assert (
        other.scaler.state_dict() == one.scaler.state_dict() != Training(precision="fp16-autocast").scaler.state_dict()
    )


# -- which one -------------------------------------------------------------------------------------------------------


def test_there_is_nothing_to_resume_from(tmp_path):
    assert Training(run_dir=tmp_path).guard.resume() == 0


def test_a_damaged_checkpoint_is_passed_over_and_named(tmp_path):
    one = Training(run_dir=tmp_path, policy=Policy(checkpoint_steps=2))
    one.good(6)
    one.guard.close()
    weights = tmp_path / "checkpoints/step-00000006/model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-3] ^= 1
    weights.write_bytes(damaged)
    other = Training(run_dir=tmp_path)
    assert other.guard.resume() == 4
    (event,) = events(tmp_path, "checkpoint-passed-over")
    assert event["checkpoint"] == "step-00000006"
    assert "hash" in event["reason"]
    assert any("step-00000006 skipped" in line for line in other.console.lines)


def test_a_checkpoint_of_another_architecture_is_refused_and_nothing_changes(tmp_path):
    one = Training(run_dir=tmp_path)
    one.good(2)
    one.guard.checkpoint()
    one.guard.close()
    model = nn.Sequential(nn.Linear(8, 4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    guard = Guard(model, torch.optim.AdamW(model.parameters()), run_dir=tmp_path, console=Lines())
    with pytest.raises(StateError, match=r"up\.weight|0\.weight"):
        guard.resume()
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    guard.step(model(torch.ones(2, 8)).sum())
    assert guard.decisions[-1].step == 1


def test_only_the_last_good_ones_are_kept(tmp_path):
    training = Training(run_dir=tmp_path, policy=Policy(checkpoint_steps=2, keep_checkpoints=2))
    training.good(9)
    training.guard.close()
    assert names(tmp_path) == ["step-00000006", "step-00000008"]
    assert [each["step"] for each in events(tmp_path, "checkpoint")] == [2, 4, 6, 8]


def test_snapshots_are_proved_even_where_checkpoints_come_faster(tmp_path):
    training = Training(run_dir=tmp_path, policy=Policy(checkpoint_steps=2, prove_steps=5))
    training.settled(30)
    assert training.guard._recovery.options().rollback_to >= 15


def test_however_often_it_is_saved_there_are_two_copies_of_the_state(tmp_path):
    training = Training(run_dir=tmp_path, policy=Policy(checkpoint_steps=1))
    training.settled(30)
    ring = training.guard._recovery.ring
    assert ring.nbytes == 2 * ring.known_good().state.memory.nbytes
    assert training.guard._saving._memory.nbytes == 0
    assert training.guard._recovery.options().rollback_to >= 28
    training.guard.close()


def test_checkpoints_by_the_clock(tmp_path):
    training = Training(run_dir=tmp_path, policy=Policy(checkpoint_minutes=1e-9))
    training.good(3)
    training.guard.close()
    assert len(names(tmp_path)) == 3


# -- trouble ---------------------------------------------------------------------------------------------------------


def test_a_poisoned_state_is_never_called_good(tmp_path):
    training = Training(run_dir=tmp_path, policy=Policy.watch())
    training.good(2)
    training.guard.checkpoint()
    training.bad()
    training.guard.checkpoint()
    with pytest.warns(CheckpointWarning, match="poisoned"):
        training.guard.close()
    assert names(tmp_path) == ["step-00000002"]
    (event,) = events(tmp_path, "checkpoint-failed")
    assert event["poisoned"] is True
    assert event["step"] == 3


def test_a_disk_that_refuses_stops_nothing(tmp_path):
    (tmp_path / "checkpoints").write_text("in the way")
    training = Training(run_dir=tmp_path)
    training.good(2)
    training.guard.checkpoint()
    with pytest.warns(CheckpointWarning):
        training.guard.close()
    assert events(tmp_path, "checkpoint-failed")[0]["poisoned"] is False


def test_wrong_moments_and_places_are_told(tmp_path):
    with pytest.raises(UsageError, match="no directory for checkpoints"):
        Training().guard.checkpoint()
    with pytest.raises(UsageError, match="no directory for checkpoints"):
        Training().guard.resume()
    with pytest.raises(PolicyError, match="no run_dir"):
        Training(policy=Policy(checkpoint_steps=10))
    training = Training(run_dir=tmp_path)
    training.guard.backward(training.loss())
    with pytest.raises(OrderError, match="between"):
        training.guard.checkpoint()
    with pytest.raises(OrderError, match="after the first step"):
        training.guard.resume()


def test_closing_makes_no_checkpoint_by_itself(tmp_path):
    training = Training(run_dir=tmp_path)
    training.good(2)
    training.guard.close()
    assert not (tmp_path / "checkpoints").exists()
