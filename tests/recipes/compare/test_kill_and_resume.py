from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import child_processes
import compare_job

UNLIKE = ("seconds", "memory_peak_mib")


def _run(directory: Path, kill_at: int = 0) -> int:
    command = [sys.executable, compare_job.__file__, str(directory), str(kill_at)]
    return subprocess.run(
        command, env=child_processes.environment(), check=False, capture_output=True, timeout=300
    ).returncode


def _log(directory: Path) -> list[dict[str, Any]]:
    with (directory / "run/training_log.csv").open() as file:
        return [{name: value for name, value in row.items() if name not in UNLIKE} for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kill_at", [4, 10])
def test_a_killed_run_ends_with_the_same_bits_and_the_same_log(tmp_path: Path, kill_at: int) -> None:
    assert _run(tmp_path / "whole") == 0
    assert _run(tmp_path / "killed", kill_at) == -signal.SIGKILL
    assert not (tmp_path / "killed/run/result.json").exists()
    assert _run(tmp_path / "killed") == 0
    for part in ("best", "last"):
        whole, killed = (load_file(tmp_path / name / f"run/{part}/adapter_model.safetensors") for name in
                         ("whole", "killed"))  # fmt: skip
        assert set(whole) == set(killed)
        assert all(torch.equal(whole[name], killed[name]) for name in whole)
    assert _log(tmp_path / "whole") == _log(tmp_path / "killed")
    results = [json.loads((tmp_path / name / "run/result.json").read_text()) for name in ("whole", "killed")]
    assert results[0]["scores"] == results[1]["scores"]
    assert results[0]["evaluations"] == results[1]["evaluations"]
