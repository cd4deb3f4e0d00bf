"""Two ranks under torchrun: they learn what one does, end together, and go on together when they were killed."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mmdit_runs import RESUMABLE, SMALL, run, write_data
from mmdit_runs import steps_of as lines_of
from recipe_job import NEVER, check_alike, check_went_on, play_recipe, steps_of
from stage import Played

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


STEADY = RESUMABLE | {"dropout": 0.0}
"""Without chance in the model, which other ranks would draw in another way."""


def half_a_batch(accumulation: int) -> dict[str, Any]:
    return {"steps": 5, "eval_steps": 5, "batch_size": 4, "accumulation": accumulation}


@pytest.fixture(scope="module")
def played(folder: Path) -> dict[str, Played]:
    write_data(folder / "pairs")
    (write_data(folder / "unreadable") / "tokens" / "scenes-001.npz").write_bytes(b"")

    def settings(output: str, data: str = "pairs", **more: Any) -> Mapping[str, Any]:
        return SMALL | more | {"data": str(folder / data), "output_dir": str(folder / output)}

    runs = {
        "accumulation-1": (settings("two-1", **half_a_batch(1)), NEVER),
        "accumulation-2": (settings("two-2", **half_a_batch(2)), NEVER),
        "unreadable": (settings("none", "unreadable"), NEVER),
        "whole": (settings("whole", **RESUMABLE), NEVER),
        "killed": (settings("killed", **RESUMABLE), 8),
        "again": (settings("killed", **RESUMABLE), NEVER),
        "shard": (settings("shard", **STEADY, shard=True), NEVER),
        "to-one": (settings("to-one", **STEADY), 8),
        "steady": (settings("steady", **STEADY), NEVER),
    }
    return play_recipe("mmdit", runs, folder, ranks=2)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_two_processes_train_as_one_with_the_same_global_batch(played, folder, tmp_path, accumulation):
    played[f"accumulation-{accumulation}"].check()
    assert played[f"accumulation-{accumulation}"].said.count("Saved the best model to") == 1, "one process speaks"
    two = folder / f"two-{accumulation}"
    run(folder / "pairs", tmp_path / "one", **half_a_batch(accumulation) | {"batch_size": 8})
    for one, other in zip(lines_of(tmp_path / "one"), lines_of(two), strict=True):
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
    check_alike(tmp_path / "one", two, steps=1e-4, weights=1e-4)


def test_what_the_first_of_two_processes_cannot_read_ends_both_with_its_name(played):
    assert played["unreadable"].ends == [2, 2]
    assert re.search("cannot read .*scenes-001.npz", played["unreadable"].said)


def test_two_processes_that_were_killed_go_on_bit_for_bit_as_if_they_had_not_been(played, folder):
    check_went_on(played, folder, RESUMABLE["steps"])
    results = [json.loads((folder / name / "result.json").read_text()) for name in ("whole", "killed")]
    assert results[0]["scores"] == results[1]["scores"]


def test_a_run_of_two_processes_goes_on_in_one(played, folder):
    assert played["to-one"].ends == [-signal.SIGKILL, -signal.SIGKILL]
    run(folder / "pairs", folder / "to-one", **STEADY)
    assert steps_of(folder / "to-one") == pytest.approx(steps_of(folder / "steady"), rel=1e-4)


def test_processes_that_hold_a_part_each_learn_what_those_do_that_hold_all(played, folder):
    played["shard"].check()
    check_alike(folder / "shard", folder / "steady", steps=1e-4, weights=1e-4)
