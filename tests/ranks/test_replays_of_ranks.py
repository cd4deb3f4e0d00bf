"""Several real processes run the same step again: the rank whose device errs is named, all refuse, and nobody waits."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from guarded_training import events
from stage import play

pytestmark = pytest.mark.slow

RANK_1 = "events-rank00001.jsonl"
KINDS = ("ddp", "fsdp", "hsdp")

of_each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for each of the trainings, under this one."""
    folder = tmp_path_factory.mktemp("replays")
    acts = {
        "ddp-off": ("ddp", "none", 0),
        "fsdp-off": ("fsdp", "none", 0),
        "hsdp-off": ("hsdp", "none", 0),
        **{f"{kind}-{fault}": (kind, fault, 5) for kind in KINDS for fault in ("none", "once", "always")},
        "everywhere": ("ddp", "everywhere", 5),
        "talking": ("talking", "none", 5),
        "tensor": ("tensor", "none", 5),
    }
    for name in acts:
        (folder / name).mkdir()
    lines = {name: (kind, fault, folder / name, every) for name, (kind, fault, every) in acts.items()}
    for played in play("ranks.replay_job", lines, folder / "stage", ranks=2).values():
        played.check()
    return folder


def seen_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(2)]


def refused(folder: Path) -> list[int]:
    first, second = seen_in(folder)
    assert (first["actions"], first["weights"]) == (second["actions"], second["weights"])
    return [step for step, action in enumerate(first["actions"], 1) if action in ("veto", "stop")]


@of_each_kind
def test_a_healthy_run_of_many_ranks_is_the_same_with_replay_on(folder, kind):
    assert seen_in(folder / f"{kind}-none") == seen_in(folder / f"{kind}-off")
    counts = [events(folder / f"{kind}-none", "replays", name)[0] for name in ("events.jsonl", RANK_1)]
    assert [(each["replayed"], each["mismatches"], each["rank"]) for each in counts] == [(6, 0, 0), (6, 0, 1)]


@of_each_kind
def test_a_fault_on_one_rank_is_seen_before_gradients_are_averaged_and_refused_on_all(folder, kind):
    assert refused(folder / f"{kind}-once") == [10]
    (found,) = events(folder / f"{kind}-once", "replay-mismatch", RANK_1)
    assert (found["rank"], found["kind"], found["host"]) == (1, "transient", platform.node())
    assert not found["loss_differs"]
    assert events(folder / f"{kind}-once", "replay-mismatch") == []
    (veto,) = events(folder / f"{kind}-once", "veto")
    assert veto["bad_ranks"] == [1]
    assert f"transient fault on {platform.node()} cpu (rank 1)" in veto["reason"]


@of_each_kind
def test_a_fault_that_stays_stops_all_ranks_and_names_the_machine(folder, kind):
    assert refused(folder / f"{kind}-always") == list(range(10, 16))
    for seen in seen_in(folder / f"{kind}-always"):
        assert f"persistent fault on {platform.node()} cpu (rank 1)" in seen["stop"]


def test_what_differs_on_most_ranks_at_once_is_the_code_and_not_a_device(folder):
    assert refused(folder / "everywhere") == []
    (told,) = events(folder / "everywhere", "replay-restricted")
    assert "0 of 6 gradients" in told["reason"]


@pytest.mark.parametrize(
    ("kind", "reason"), [("talking", "communicates with other ranks"), ("tensor", "compute one result together")]
)
def test_what_cannot_be_run_again_is_said_once_and_training_goes_on(folder, kind, reason):
    assert refused(folder / kind) == []
    (off,) = events(folder / kind, "replay-off")
    assert reason in off["reason"]
