"""Real processes: one that is killed and resumed, two that train together."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from child_processes import finish
from lightning_job import LAST, resumable
from lightning_training import LIGHTNING_SAYS, events

pytestmark = LIGHTNING_SAYS

TESTS = Path(__file__).parents[2]


def run(folder: Path, act: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    return finish([sys.executable, TESTS / "lightning_job.py", folder, act])


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.slow
def test_a_run_that_was_killed_and_resumed_ends_with_the_same_bits(tmp_path, one_thread):
    whole = resumable(tmp_path / "whole")
    assert run(tmp_path / "parts", "kill").returncode == -signal.SIGKILL
    saved = torch.load(tmp_path / "parts" / LAST, weights_only=True)
    assert saved["callbacks"]["StayFinite"]["guards"][0]["step"] == 40
    rest = resumable(tmp_path / "parts")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, rest.state_dict()[name]), name
    assert [each["step"] for each in events(tmp_path / "whole", "veto")] == [8, 48, 88]
    # The second epoch was begun twice.
    assert [each["step"] for each in events(tmp_path / "parts", "veto")] == [8, 48, 48, 88]


def together(folder: Path, fault: str) -> list[dict[str, Any]]:
    done = run(folder, fault)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.slow
def test_a_bad_batch_on_the_second_of_two_ranks_is_refused_on_both(tmp_path):
    seen = together(tmp_path / "ours", "bad")
    assert seen[0]["refused"] == seen[1]["refused"] == [8]
    assert seen[0]["position"] == seen[1]["position"] == 19
    assert seen[0]["vetoes"] == 1
    learned = {name: value for name, value in seen[0]["weights"].items() if "running" not in name}
    assert learned == {name: value for name, value in seen[1]["weights"].items() if "running" not in name}
    assert "NaN" not in json.dumps(seen)
    (veto,) = events(tmp_path / "ours", "veto")
    assert veto["bad_ranks"] == [1]
    assert events(tmp_path / "ours", "autopsy") == []
    own = (tmp_path / "ours" / "run" / "events-rank00001.jsonl").read_text()
    assert '"cause": "bad-data-row"' in own


@pytest.mark.slow
def test_without_the_callback_the_bad_rank_ruins_both(tmp_path):
    assert "NaN" in json.dumps(together(tmp_path / "plain", "plain"))


@pytest.mark.slow
def test_a_bad_batch_on_one_rank_of_fabric_is_refused_on_both(tmp_path):
    seen = together(tmp_path, "fabric")
    assert seen[0]["refused"] == seen[1]["refused"] == [8]
    assert "NaN" not in json.dumps(seen)
    (veto,) = events(tmp_path, "veto")
    assert veto["bad_ranks"] == [1]
    assert veto["bad_parameters"][0] == "up.weight"
    assert '"cause": "bad-data-row"' in (tmp_path / "run" / "events-rank00001.jsonl").read_text()
