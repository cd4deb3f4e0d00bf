from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from child_processes import environment
from mmdit_job import RESUMABLE
from mmdit_runs import SMALL, run, steps_of, weights_of, write_data
from stayfinite.errors import UsageError

JOB = Path(__file__).parents[2] / "mmdit_job.py"


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_a_killed_training_that_is_resumed_ends_bit_for_bit_as_one_that_was_not(tmp_path, one_thread):
    data = write_data(tmp_path / "pairs")
    command = [sys.executable, str(JOB), str(data), str(tmp_path / "killed"), "14"]
    ended = subprocess.run(command, env=environment(), capture_output=True, check=False, timeout=110)
    assert ended.returncode == -9, ended.stderr[-2000:]
    said: list[str] = []
    resumed = run(data, tmp_path / "killed", said, **RESUMABLE)
    whole = run(data, tmp_path / "whole", **RESUMABLE)
    assert any(line.startswith(("resumed after step 12", "resumed after step 9")) for line in said)
    one, other = weights_of(tmp_path / "whole"), weights_of(tmp_path / "killed")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert resumed.scores.to_json() == whole.scores.to_json()
    losses = {line["step"]: line["loss"] for line in steps_of(tmp_path / "killed")}
    assert losses == {line["step"]: line["loss"] for line in steps_of(tmp_path / "whole")}
    evaluations = [
        json.loads((tmp_path / name / "evaluations.json").read_text())["evaluations"] for name in ("killed", "whole")
    ]
    assert evaluations[0] == evaluations[1]


def test_a_run_that_is_done_is_only_judged_again(tmp_path):
    data = write_data(tmp_path / "pairs")
    settings = {"steps": 2, "eval_steps": 2, "checkpoint_steps": 2}
    first = run(data, tmp_path / "run", **settings)
    again = run(data, tmp_path / "run", **settings)
    assert len(steps_of(tmp_path / "run")) == 2
    assert again.scores.to_json() == first.scores.to_json()


def test_a_run_is_not_gone_on_with_in_another_mode(tmp_path):
    data = write_data(tmp_path / "pairs")
    run(data, tmp_path / "run", steps=2, eval_steps=2, checkpoint_steps=2)
    with pytest.raises(UsageError, match="mode 'random' -> 'l2t'"):
        run(data, tmp_path / "run", steps=4, eval_steps=2, checkpoint_steps=2, mode="l2t")


@pytest.mark.slow
@pytest.mark.parametrize("accumulation", [1, 2])
def test_two_processes_train_as_one_with_the_same_global_batch(tmp_path, accumulation):
    data = write_data(tmp_path / "pairs")
    settings = SMALL | {"steps": 5, "eval_steps": 5, "batch_size": 4, "accumulation": accumulation}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "stayfinite",
        "train", "mmdit", f"--data={data}", f"--output-dir={tmp_path / 'two'}", *flags,
    ]  # fmt: skip
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=115)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count("The best model is in") == 1, "one process speaks"
    run(data, tmp_path / "one", steps=5, eval_steps=5, batch_size=8, accumulation=accumulation)
    for one, two in zip(steps_of(tmp_path / "one"), steps_of(tmp_path / "two"), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-4)
        assert one["grad_norm"] == pytest.approx(two["grad_norm"], rel=1e-3)
    alone, shared = weights_of(tmp_path / "one"), weights_of(tmp_path / "two")
    assert all(torch.allclose(alone[name], shared[name], atol=1e-4) for name in alone)


@pytest.mark.slow
def test_what_the_first_of_two_processes_cannot_read_ends_both_with_its_name(tmp_path):
    data = write_data(tmp_path / "pairs")
    (data / "tokens" / "scenes-001.npz").write_bytes(b"")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "stayfinite",
        "train", "mmdit", f"--data={data}", f"--output-dir={tmp_path / 'two'}", "--device=cpu",
    ]  # fmt: skip
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=115)
    assert ended.returncode != 0
    assert "scenes-001.npz cannot be read" in ended.stderr
