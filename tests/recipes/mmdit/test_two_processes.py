"""Two ranks under torchrun: they learn what one does, end together, and go on together when they were killed."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from mmdit_job import RESUMABLE
from mmdit_runs import SMALL, run, steps_of, weights_of, write_data
from recipe_job import NEVER, check_went_on, play_recipe
from stage import Played

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


STEADY = RESUMABLE | {"dropout": 0.0}
"""Without chance in the model, which other ranks would draw in another way."""


def half_a_batch(accumulation: int) -> dict[str, Any]:
    return {"steps": 5, "eval_steps": 5, "batch_size": 4, "accumulation": accumulation}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mmdit")


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
    for one, other in zip(steps_of(tmp_path / "one"), steps_of(two), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)
    alone, shared = weights_of(tmp_path / "one"), weights_of(two)
    assert all(torch.allclose(alone[name], shared[name], atol=1e-4) for name in alone)


def test_what_the_first_of_two_processes_cannot_read_ends_both_with_its_name(played):
    assert played["unreadable"].ends == [2, 2]
    assert re.search("cannot read .*scenes-001.npz", played["unreadable"].said)


def test_two_processes_that_were_killed_go_on_bit_for_bit_as_if_they_had_not_been(played, folder):
    check_went_on(played, folder, RESUMABLE["steps"])
    one, other = weights_of(folder / "whole"), weights_of(folder / "killed")
    assert all(torch.equal(one[name], other[name]) for name in one)
    results = [json.loads((folder / name / "result.json").read_text()) for name in ("whole", "killed")]
    assert results[0]["scores"] == results[1]["scores"]


def test_a_run_of_two_processes_goes_on_in_one(played, folder):
    assert played["to-one"].ends == [-signal.SIGKILL, -signal.SIGKILL]
    run(folder / "pairs", folder / "to-one", **STEADY)
    mine, theirs = ({step["step"]: step["loss"] for step in steps_of(folder / name)} for name in ("to-one", "steady"))
    assert mine == pytest.approx(theirs, rel=1e-4)


def test_processes_that_hold_a_part_each_learn_what_those_do_that_hold_all(played, folder):
    played["shard"].check()
    for one, other in zip(steps_of(folder / "shard"), steps_of(folder / "steady"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    mine, theirs = weights_of(folder / "shard"), weights_of(folder / "steady")
    assert all(torch.allclose(mine[name], theirs[name], atol=1e-4) for name in mine)
