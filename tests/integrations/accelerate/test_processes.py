"""Real processes: one that is killed and resumed, two under ``accelerate launch``."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accelerate_job import resumable
from accelerate_training import events
from child_processes import finish

TESTS = Path(__file__).parents[2]


def run(folder: Path, act: str, *before: str) -> subprocess.CompletedProcess[str]:
    return finish([sys.executable, *before, TESTS / "accelerate_job.py", folder, act])


def together(folder: Path, act: str) -> list[dict[str, Any]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # accelerate's launcher of several processes has GPUs in its name; the script itself asks for the CPU.
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2", "--num_machines=1"]
    launch += ["--mixed_precision=no", "--dynamo_backend=no"]
    done = run(folder, act, *launch, f"--main_process_port={port}")
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.slow
def test_a_bad_batch_on_the_second_of_two_ranks_is_refused_on_both(tmp_path):
    seen = together(tmp_path, "ours")
    assert seen[0]["skipped"] == seen[1]["skipped"] == [7]
    # accelerate moves a schedule once for each rank.
    assert seen[0]["position"] == seen[1]["position"] == 38
    learned = [{name: value for name, value in each["weights"].items() if "running" not in name} for each in seen]
    assert learned[0] == learned[1]
    assert len(seen[0]["losses"]) == 2
    assert "NaN" not in json.dumps(seen)
    (veto,) = events(tmp_path, "veto")
    assert veto["bad_ranks"] == [1]
    assert '"cause": "bad-data-row"' in (tmp_path / "events-rank00001.jsonl").read_text()


@pytest.mark.slow
def test_without_the_guard_the_bad_rank_ruins_both(tmp_path):
    assert "NaN" in json.dumps(together(tmp_path, "plain"))


@pytest.mark.slow
def test_a_loop_that_was_killed_and_resumed_ends_with_the_same_bits(tmp_path, one_thread):
    (tmp_path / "whole").mkdir()
    whole = resumable(tmp_path / "whole")
    assert run(tmp_path / "parts", "kill").returncode == -signal.SIGKILL
    rest = resumable(tmp_path / "parts")
    assert len(rest.after) == 20
    assert whole.after[-1] == rest.after[-1]
    assert [each["step"] for each in events(tmp_path / "parts" / "run", "veto")] == [8, 28]
