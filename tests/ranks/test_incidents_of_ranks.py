"""Several real processes: the rank that was bad captures and explains its step, and nobody waits for an answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from guarded_training import events
from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.incident import read_incident
from stayfinite.autopsy.rebuild import rebuild

JOB = Path(__file__).with_name("incident_job.py")
RANK_1 = "events-rank00001.jsonl"


def train(kind: str, folder: Path, most: int = 3) -> list[dict[str, Any]]:
    folder.mkdir(exist_ok=True)
    many = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*many, str(JOB), kind, str(folder), f"{most}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_SHOW_CPP_STACKTRACES": "0"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(2)]


def test_under_ddp_the_bad_rank_explains_its_step_without_the_others(tmp_path):
    seen = train("ddp", tmp_path / "on")
    assert [action == "veto" for action in seen[0]["actions"]] == [number == 5 for number in range(8)]
    (found,) = events(tmp_path / "on", "autopsy", RANK_1)
    assert found["cause"] == "bad-data-row"
    assert found["rows"] == [2]
    incident = read_incident(tmp_path / "on/incidents/0001")
    assert incident.record["rank"] == 1
    assert incident.batch()[2].isnan().all()
    assert sorted(incident.weights()) == ["0.bias", "0.weight", "3.bias", "3.weight"]
    assert [path.name for path in (tmp_path / "on/incidents").iterdir()] == ["0001"]
    # And nobody has noticed.
    assert train("ddp", tmp_path / "off", most=0) == seen


def test_a_forward_pass_that_talks_to_other_ranks_is_not_run_again_alone(tmp_path):
    train("talking", tmp_path)
    (failed,) = events(tmp_path, "autopsy-failed", RANK_1)
    assert "talks to other ranks" in failed["reason"]
    assert read_incident(tmp_path / "incidents/0001").step == 6


def test_sharded_weights_are_left_to_replay(tmp_path):
    train("fsdp", tmp_path)
    (skipped,) = events(tmp_path, "autopsy-skipped", RANK_1)
    assert "spread over ranks" in skipped["reason"]
    incident = read_incident(tmp_path / "incidents/0001")
    assert incident.weights() is None
    assert incident.record["weights"]["why"] == "the weights are spread over ranks"
    assert torch.equal(incident.batch().isnan().any(1), torch.tensor([False, False, True, False]))
    # In one process, with a model that is not sharded, it can be explained.
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.1), nn.Tanh(), nn.Linear(5, 1))
    rebuilt = rebuild(incident, model, lambda x: model(x).square().mean())
    assert any("build() gave" in note for note in rebuilt.notes)
    assert perform(rebuilt.step, rebuilt.materials).to_json()["cause"] == "bad-data-row"
