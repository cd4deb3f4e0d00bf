"""Several real processes under torchrun: one decision for all, and nobody waits for ever."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from child_processes import environment, finish, torchrun
from ranks import job
from stage import play


class Stage:
    """Trainings that so many ranks went through, each in a folder of its own."""

    def __init__(self, folder: Path, ranks: int, acts: Iterable[tuple[str, str]]) -> None:
        self.folder, self.ranks = folder, ranks
        lines = {f"{kind}-{act}": (kind, act, self.of(kind, act)) for kind, act in acts}
        self.played = play("ranks.job", lines, folder / "stage", ranks=ranks)

    def of(self, kind: str, act: str) -> Path:
        (folder := self.folder / f"{kind}-{act}").mkdir(parents=True, exist_ok=True)
        return folder

    def seen(self, kind: str, act: str) -> list[dict[str, Any]]:
        self.played[f"{kind}-{act}"].check()
        return [seen_by(self.of(kind, act), act, rank) for rank in range(self.ranks)]


def seen_by(folder: Path, act: str, rank: int) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads((folder / f"seen-{act}-{rank}.json").read_text())
    return seen


def alone(folder: Path, act: str) -> dict[str, Any]:
    """The same training in this process, as everybody has it who does not use torchrun."""
    job.main("plain", act, folder)
    return seen_by(folder, act, 0)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    acts = [("ddp", "nan-loss"), ("fsdp", "nan-loss"), ("ddp", "nan-gradient"), ("ddp", "rollback")]
    return Stage(tmp_path_factory.mktemp("two"), 2, acts)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("four"), 4, product(["ddp", "fsdp"], ["nan-loss", "spike", "rollback"]))


@pytest.fixture(scope="module")
def slow_two(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    folder = tmp_path_factory.mktemp("slow-two")
    (folder / "fsdp-resume").mkdir()
    alone(folder / "fsdp-resume", "save")
    acts = {
        "ddp": ("desync", "harm", "rollback-misfit", "save", "uneven"),
        "fsdp": ("harm", "nan-gradient", "none", "resume", "rollback", "save"),
        "ddp-device": ("harm", "rollback"),
        "fsdp-device": ("rollback",),
    }
    return Stage(folder, 2, [(kind, act) for kind, each in acts.items() for act in each])


@pytest.fixture
def stage(request: pytest.FixtureRequest) -> Stage:
    stage: Stage = request.getfixturevalue(request.param)
    return stage


of_both_kinds = pytest.mark.parametrize(
    ("stage", "kind"),
    [pytest.param("two", "ddp", id="ddp"), pytest.param("slow_two", "fsdp", id="fsdp", marks=pytest.mark.slow)],
    indirect=["stage"],
)


def events(folder: Path, kind: str, name: str = "events.jsonl") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
    return [each for each in lines if each["event"] == kind]


def check_agreed(seen: list[dict[str, Any]]) -> None:
    for other in seen[1:]:
        for key in ("actions", "steps", "weights", "lr"):
            assert other[key] == seen[0][key], key


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_fault_on_one_rank_is_refused_on_all_and_the_rank_is_named(two, kind):
    seen, folder = two.seen(kind, "nan-loss"), two.of(kind, "nan-loss")
    check_agreed(seen)
    assert [action == "veto" for action in seen[0]["actions"]] == [number == 5 for number in range(12)]
    (veto,) = events(folder, "veto")
    assert veto["bad_ranks"] == [1]
    assert "rank 1" in veto["reason"]
    assert "2 ranks" in seen[0]["describe"]
    assert len((folder / "steps.jsonl").read_text().splitlines()) == 12
    assert not (folder / "events-rank00001.jsonl").exists()


@of_both_kinds
def test_a_bad_gradient_is_traced_to_its_rank_before_gradients_are_averaged(stage, kind):
    check_agreed(stage.seen(kind, "nan-gradient"))
    (veto,) = events(stage.of(kind, "nan-gradient"), "veto")
    assert veto["code"] == "gradient-not-finite"
    assert veto["bad_ranks"] == [1]


@pytest.mark.slow
def test_a_rollback_that_fails_on_one_rank_stops_all_with_the_same_error(slow_two):
    played = slow_two.played["ddp-rollback-misfit"]
    assert played.ends == [1, 1]
    assert played.said.count("failed on rank 1: ranks hold different weights") >= 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("act", ["nan-loss", "spike", "rollback"])
def test_four_ranks_agree(four, kind, act):
    seen = four.seen(kind, act)
    check_agreed(seen)
    expected = {"nan-loss": "veto", "spike": "bound", "rollback": "rollback"}
    assert expected[act] in seen[0]["actions"]


@of_both_kinds
def test_all_ranks_go_back_together(stage, kind):
    seen = stage.seen(kind, "rollback")
    check_agreed(seen)
    assert seen[0]["actions"][8:11] == ["veto", "veto", "rollback"]
    (event,) = events(stage.of(kind, "rollback"), "rollback")
    assert (event["from_step"], event["to_step"]) == (11, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_ranks_take_harm_back_together(slow_two, kind):
    seen = slow_two.seen(kind, "harm")
    check_agreed(seen)
    assert "veto" not in seen[0]["actions"]
    (back,) = events(slow_two.of(kind, "harm"), "rollback")
    assert (back["code"], back["from_step"]) == ("harm", 103)
    assert "with known-good weights the loss was" in back["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp-device", "fsdp-device"])
def test_ranks_that_hear_of_a_step_late_act_on_it_at_the_same_step(slow_two, kind):
    seen = slow_two.seen(kind, "rollback")
    check_agreed(seen)
    assert seen[0]["actions"][8:11] == ["veto", "veto", "rollback"]
    (event,) = events(slow_two.of(kind, "rollback"), "rollback")
    assert event["to_step"] == 1


@pytest.mark.slow
def test_ranks_that_hear_late_of_harm_go_back_together_too(slow_two):
    check_agreed(slow_two.seen("ddp-device", "harm"))
    folder = slow_two.of("ddp-device", "harm")
    (back,) = events(folder, "rollback")
    assert back["code"] == "harm"
    returned = [event["batch"] for event in events(folder, "returned")]
    assert len(returned) == len(set(returned)) == back["batches_passed_over"]


@pytest.mark.slow
def test_sharded_and_whole_gradients_have_the_same_norms(slow_two, tmp_path):
    many, one = slow_two.seen("fsdp", "none"), alone(tmp_path, "none")
    assert many[0]["norms"] == pytest.approx(one["norms"], rel=1e-4)


def check_resumed(saved: dict[str, Any], resumed: list[dict[str, Any]]) -> None:
    check_agreed(resumed)
    assert {each["first"] for each in resumed} == {6}
    assert resumed[0]["steps"] == saved["steps"] == 12
    for one, other in zip(saved["weights"], resumed[0]["weights"], strict=True):
        assert other == pytest.approx(one, rel=1e-4, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_checkpoint_of_two_ranks_fits_one(slow_two, kind):
    (saved, _), folder = slow_two.seen(kind, "save"), slow_two.of(kind, "save")
    check_resumed(saved, [alone(folder, "resume")])


@pytest.mark.slow
def test_a_checkpoint_of_one_rank_fits_two(slow_two):
    check_resumed(seen_by(slow_two.of("fsdp", "resume"), "save", 0), slow_two.seen("fsdp", "resume"))


@pytest.mark.slow
def test_replicas_that_drift_apart_are_reported(slow_two):
    slow_two.seen("ddp", "desync")
    (finding,) = events(slow_two.of("ddp", "desync"), "finding")
    assert (finding["code"], finding["cause"], finding["severity"]) == ("SF503", "rank-desync", "error")
    assert "0.weight" in finding["evidence"][0]


@pytest.mark.slow
def test_a_loader_that_fails_on_one_rank_ends_all_of_them_soon(tmp_path):
    command = [*torchrun(2), job.__file__, "ddp", "loader", tmp_path]
    done = finish(command, env=environment(TORCH_SHOW_CPP_STACKTRACES="0"))
    assert done.returncode != 0
    assert "exitcode  : 88" in done.stderr
    assert "LoaderFailed" in done.stderr
    errors = events(tmp_path, "loader-error", "events-rank00001.jsonl")
    assert [each["items"] for each in errors] == [[16, 17, 18, 19], [20, 21, 22, 23], [24, 25, 26, 27]]


@pytest.mark.slow
def test_loaders_of_different_length_end_the_epoch_on_all_ranks(slow_two):
    assert [each["steps"] for each in slow_two.seen("ddp", "uneven")] == [8, 8]
    assert events(slow_two.of("ddp", "uneven"), "uneven-loaders", "events-rank00001.jsonl")
