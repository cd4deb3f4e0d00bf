"""Two ranks under torchrun: they learn what one does, and go on together when they were killed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe_job import NEVER, check_went_on, play_recipe
from stage import Played
from stayfinite.recipes.chat.adapters import read_weights
from stayfinite.recipes.sft import train

from .conftest import small

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


HALF: dict[str, Any] = {"rows": 64, "batch_size": 8, "base_score": False}
RESUMABLE = HALF | {"epochs": 3, "dropout": 0.1, "checkpoint_steps": 3, "eval_epochs": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sft")


@pytest.fixture(scope="module")
def played(folder: Path) -> dict[str, Played]:
    def settings(output: str, **more: Any) -> dict[str, Any]:
        return asdict(small(folder / output, **more))

    runs = {
        "whole": (settings("whole", **RESUMABLE), NEVER),
        "killed": (settings("killed", **RESUMABLE), 8),
        "again": (settings("killed", **RESUMABLE), NEVER),
        "two": (settings("two", **HALF, **base_in(folder)), NEVER),
    }
    return play_recipe("sft", runs, folder, ranks=2)


def base_in(folder: Path) -> dict[str, Any]:
    """Where the first run has left the base that it built, for others to begin from the same."""
    return {"model": str(folder / "whole" / "base"), "task": "metric"}


def losses_of(output: Path) -> dict[int, float]:
    lines = map(json.loads, (output / "steps.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines}


def test_two_processes_learn_what_one_does_with_twice_the_batch(played, folder, tmp_path):
    played["two"].check()
    train(small(tmp_path, **(HALF | base_in(folder) | {"batch_size": 16})), lambda _: None)
    assert losses_of(folder / "two") == pytest.approx(losses_of(tmp_path), rel=1e-3)
    mine, theirs = read_weights(folder / "two" / "best"), read_weights(tmp_path / "best")
    assert all(torch.allclose(mine[name], theirs[name], atol=2e-3) for name in mine)


def test_two_processes_that_were_killed_go_on_bit_for_bit_as_if_they_had_not_been(played, folder):
    check_went_on(played, folder, 12)
    assert losses_of(folder / "whole") == losses_of(folder / "killed")
    one, other = read_weights(folder / "whole" / "best"), read_weights(folder / "killed" / "best")
    assert all(torch.equal(one[name], other[name]) for name in one)
