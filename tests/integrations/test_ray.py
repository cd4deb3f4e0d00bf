"""A plain Guard inside of ray's TorchTrainer: its workers are ranks like any others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from child_processes import environment, finish

JOB = Path(__file__).parents[1] / "ray_job.py"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_bad_loss_of_one_worker_is_refused_on_both(tmp_path):
    pytest.importorskip("ray.train.torch", reason="make engines")
    quiet = environment(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0")
    ended = finish([sys.executable, JOB, tmp_path], env=quiet, timeout=500)
    assert ended.returncode == 0, ended.stderr[-2000:]
    for rank in range(2):
        actions = json.loads((tmp_path / f"seen-{rank}.json").read_text())
        assert [action == "veto" for action in actions] == [number == 3 for number in range(6)]
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["bad_ranks"] for event in events if event["event"] == "veto"] == [[1]]
