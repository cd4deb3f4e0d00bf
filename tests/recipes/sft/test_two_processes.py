"""Two ranks under torchrun: they learn what one does, and go on together when they were killed."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from recipe_job import NEVER, check_alike, check_went_on, play_recipe, quiet, steps_of
from stage import Played
from stayfinite.recipes.sft import train

from .conftest import small

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


HALF: dict[str, Any] = {"rows": 64, "batch_size": 8, "base_score": False}
RESUMABLE = HALF | {"epochs": 3, "dropout": 0.1, "checkpoint_steps": 3, "eval_epochs": 1}

GOING_ON = HALF | {"rows": 65, "epochs": 2, "dropout": 0.0, "checkpoint_steps": 2}
"""The last batch has one row: a rank is left without."""


@pytest.fixture(scope="module")
def played(folder: Path) -> dict[str, Played]:
    def settings(output: str, **more: Any) -> dict[str, Any]:
        return asdict(small(folder / output, **more))

    runs = {
        "whole": (settings("whole", **RESUMABLE), NEVER),
        "killed": (settings("killed", **RESUMABLE), 8),
        "again": (settings("killed", **RESUMABLE), NEVER),
        "two": (settings("two", **HALF, **base_in(folder)), NEVER),
        "shard": (settings("shard", **HALF, **base_in(folder), shard=True), NEVER),
        "to-one": (settings("to-one", **GOING_ON, **base_in(folder)), 5),
        "not-killed": (settings("not-killed", **GOING_ON, **base_in(folder)), NEVER),
        "unlike": (settings("unlike", train=(f"{folder}/questions-RANK.jsonl",)), NEVER),
        "too-long": (settings("too-long", train=(f"{folder}/too-long.jsonl",)), NEVER),
        "idle": (settings("idle", train=(f"{folder}/one.jsonl",), val=(f"{folder}/questions-0.jsonl",)), NEVER),
    }
    rows = [json.dumps({"question": f"How many g are {n} kg?", "answer": f"{n}000"}) for n in range(40)]
    long = json.dumps({"question": "How many?", "answer": "1 " * 400})
    files = {"questions-0": rows, "questions-1": rows[1:], "too-long": [*rows, long], "one": rows[:1]}
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    return play_recipe("sft", runs, folder, ranks=2)


def base_in(folder: Path) -> dict[str, Any]:
    """Where the first run has left the base that it built, for others to begin from the same."""
    return {"model": str(folder / "whole" / "base"), "task": "metric"}


def test_two_processes_learn_what_one_does_with_twice_the_batch(played, folder, tmp_path):
    played["two"].check()
    train(small(tmp_path, **(HALF | base_in(folder) | {"batch_size": 16})), quiet)
    check_alike(folder / "two", tmp_path, steps=1e-3, weights=2e-3)


def test_two_processes_that_were_killed_go_on_bit_for_bit_as_if_they_had_not_been(played, folder):
    check_went_on(played, folder, 12)


def test_a_run_of_two_processes_goes_on_in_one(played, folder):
    assert played["to-one"].ends == [-signal.SIGKILL, -signal.SIGKILL]
    train(small(folder / "to-one", **(GOING_ON | base_in(folder))), quiet)
    assert steps_of(folder / "to-one") == pytest.approx(steps_of(folder / "not-killed"), rel=1e-3)


def test_processes_that_hold_a_part_each_learn_what_those_do_that_hold_all(played, folder):
    played["shard"].check()
    check_alike(folder / "shard", folder / "two", steps=1e-3, weights=2e-3)


def test_bad_questions_are_refused_on_every_rank(played):
    words = {
        "unlike": "rank 1 reads other questions than rank 0: 39 rows, rank 0 40",
        "too-long": "too-long.jsonl:41: its answer of",
        "idle": "2 ranks but 1 training rows: 1 ranks would have none",
    }
    for name, told in words.items():
        assert played[name].ends == [2, 2], played[name].said
        assert played[name].said.count(told) == 2, played[name].said
