"""Several real processes: the rank that was bad captures and explains its step, and nobody waits for an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from guarded_training import events
from stage import play
from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.incidents.incident_files import read_incident
from stayfinite.autopsy.incidents.rebuild import rebuild

pytestmark = pytest.mark.slow

RANK_1 = "events-rank00001.jsonl"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for each of the trainings, under this one."""
    folder = tmp_path_factory.mktemp("ranks")
    kinds = {"on": ("ddp", 3), "off": ("ddp", 0), "talking": ("talking", 3), "fsdp": ("fsdp", 3)}
    for name in kinds:
        (folder / name).mkdir()
    acts = {name: (kind, folder / name, most) for name, (kind, most) in kinds.items()}
    for played in play("ranks.incident_job", acts, folder / "stage", ranks=2).values():
        played.check()
    return folder


def seen_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(2)]


def test_under_ddp_the_bad_rank_explains_its_step_without_the_others(folder):
    seen = seen_in(folder / "on")
    assert [action == "veto" for action in seen[0]["actions"]] == [number == 5 for number in range(8)]
    (found,) = events(folder / "on", "autopsy", RANK_1)
    assert found["cause"] == "bad-data-row"
    assert found["rows"] == [2]
    incident = read_incident(folder / "on/incidents/0001")
    assert incident.record["rank"] == 1
    assert incident.batch()[2].isnan().all()
    assert sorted(incident.weights()) == ["0.bias", "0.weight", "3.bias", "3.weight"]
    assert [path.name for path in (folder / "on/incidents").iterdir()] == ["0001"]
    # And nobody has noticed.
    assert seen_in(folder / "off") == seen


def test_a_forward_pass_that_talks_to_other_ranks_is_not_run_again_alone(folder):
    (failed,) = events(folder / "talking", "autopsy-failed", RANK_1)
    assert "communicates with other ranks" in failed["reason"]
    assert read_incident(folder / "talking/incidents/0001").step == 6


def test_sharded_weights_are_left_to_replay(folder):
    (skipped,) = events(folder / "fsdp", "autopsy-skipped", RANK_1)
    assert "the weights are sharded" in skipped["reason"]
    incident = read_incident(folder / "fsdp/incidents/0001")
    assert incident.weights() is None
    assert incident.record["weights"]["why"] == "the weights are sharded over ranks"
    assert torch.equal(incident.batch().isnan().any(1), torch.tensor([False, False, True, False]))
    # In one process, with a model that is not sharded, it can be explained.
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.1), nn.Tanh(), nn.Linear(5, 1))
    rebuilt = rebuild(incident, model, lambda x: model(x).square().mean())
    assert any("from build()" in note for note in rebuilt.notes)
    assert perform(rebuilt.step, rebuilt.materials).to_json()["cause"] == "bad-data-row"
