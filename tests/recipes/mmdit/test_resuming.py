from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from child_processes import finish
from mmdit_job import RESUMABLE
from mmdit_runs import run, steps_of, weights_of, write_data
from stayfinite.errors import UsageError

JOB = Path(__file__).parents[2] / "mmdit_job.py"


@pytest.mark.slow
def test_a_killed_training_that_is_resumed_ends_bit_for_bit_as_one_that_was_not(tmp_path, one_thread):
    data = write_data(tmp_path / "pairs")
    ended = finish([sys.executable, JOB, data, tmp_path / "killed", "14"])
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
