"""Two processes under torchrun, and trouble on the second alone: both refuse, none waits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from child_processes import environment
from tiny_trainers import events

JOB = Path(__file__).with_name("rank_job.py")


def run(folder: Path, kind: str) -> list[dict]:
    (place := folder / kind).mkdir()
    many = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ended = subprocess.run(
        [*many, str(JOB), str(place), kind],
        capture_output=True, text=True, timeout=100, check=False, env=environment(),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-4000:]
    return [json.loads((place / f"rank{rank}.json").read_text()) for rank in range(2)]


def veto_of(place: Path) -> dict:
    (veto,) = events(place, "veto")
    return veto


def test_a_nan_on_one_rank_is_refused_by_both(tmp_path):
    first, second = run(tmp_path, "bad")
    assert first == second
    assert first["finite"]
    assert first["vetoes"] == 1
    assert first["left"] == []
    assert first["lr"] > 0  # the schedule has one step left
    veto = veto_of(tmp_path / "bad")
    assert (veto["step"], veto["bad_ranks"]) == (7, [1])
    found = json.loads((tmp_path / "bad" / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert (found["cause"], found["rows"]) == ("bad-data-row", [1])


@pytest.mark.slow
def test_without_the_guard_both_ranks_are_lost(tmp_path):
    assert not any(each["finite"] for each in run(tmp_path, "plain-bad"))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["", "accumulate-", "sharded-"])
def test_without_faults_two_ranks_end_with_the_same_weights_as_without_the_guard(tmp_path, way):
    plain, guarded = run(tmp_path, f"{way}plain"), run(tmp_path, f"{way}good")
    assert [each["weights"] for each in plain] == [each["weights"] for each in guarded]
    assert plain[0]["sharded"] == (way == "sharded-")


@pytest.mark.slow
def test_a_nan_on_one_rank_of_a_sharded_model_is_refused_by_both(tmp_path):
    first, second = run(tmp_path, "sharded-bad")
    assert first == second
    assert (first["sharded"], first["finite"], first["vetoes"]) == (True, True, 1)
    assert veto_of(tmp_path / "sharded-bad")["bad_ranks"] == [1]


@pytest.mark.slow
def test_the_second_training_of_one_trainer_knows_the_rank_with_the_bad_gradients_too(tmp_path):
    first, second = run(tmp_path, "twice-gradient")
    assert first == second
    for name in ("stayfinite", "stayfinite-2"):
        (veto,) = (
            event
            for line in (tmp_path / "twice-gradient" / name / "events.jsonl").read_text().splitlines()
            if (event := json.loads(line))["event"] == "veto"
        )
        assert veto["bad_ranks"] == [1]
