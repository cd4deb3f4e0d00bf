"""Two processes under torchrun, and trouble on the second alone: both refuse, none waits."""

import json
from pathlib import Path

import pytest

from stage import play_ranks
from tiny_trainers import events

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    ways = [f"{way}{guarded}" for way in ("", "accumulate-", "sharded-") for guarded in ("plain", "good")]
    kinds = ("bad", "plain-bad", *ways, "sharded-bad", "twice-gradient")
    return folder, play_ranks("integrations.transformers.rank_job", folder, kinds, timeout=1000)


def veto_of(place: Path) -> dict:
    (veto,) = events(place, "veto")
    return veto


def test_a_nan_on_one_rank_is_refused_by_both(runs):
    folder, seen = runs
    first, second = seen["bad"]
    assert first == second
    assert first["finite"]
    assert first["vetoes"] == 1
    assert first["left"] == []
    assert first["lr"] > 0  # the schedule has one step left
    veto = veto_of(folder / "bad")
    assert (veto["step"], veto["bad_ranks"]) == (7, [1])
    found = json.loads((folder / "bad" / "stayfinite" / "incidents" / "0001" / "autopsy.json").read_text())
    assert (found["cause"], found["rows"]) == ("bad-data-row", [1])


def test_without_the_guard_both_ranks_are_lost(runs):
    _, seen = runs
    assert not any(each["finite"] for each in seen["plain-bad"])


@pytest.mark.parametrize("way", ["", "accumulate-", "sharded-"])
def test_without_faults_two_ranks_end_with_the_same_weights_as_without_the_guard(runs, way):
    _, seen = runs
    plain, guarded = seen[f"{way}plain"], seen[f"{way}good"]
    assert [each["weights"] for each in plain] == [each["weights"] for each in guarded]
    assert plain[0]["sharded"] == (way == "sharded-")


def test_a_nan_on_one_rank_of_a_sharded_model_is_refused_by_both(runs):
    folder, seen = runs
    first, second = seen["sharded-bad"]
    assert first == second
    assert (first["sharded"], first["finite"], first["vetoes"]) == (True, True, 1)
    assert veto_of(folder / "sharded-bad")["bad_ranks"] == [1]


def test_the_second_training_of_one_trainer_knows_the_rank_with_the_bad_gradients_too(runs):
    folder, seen = runs
    first, second = seen["twice-gradient"]
    assert first == second
    for name in ("stayfinite", "stayfinite-2"):
        (veto,) = (
            event
            for line in (folder / "twice-gradient" / name / "events.jsonl").read_text().splitlines()
            if (event := json.loads(line))["event"] == "veto"
        )
        assert veto["bad_ranks"] == [1]
