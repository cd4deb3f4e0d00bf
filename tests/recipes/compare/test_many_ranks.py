"""Ranks under torchrun: they learn what one does, and go on on another number of them."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from image_pairs import small_settings, small_table
from recipe_job import NEVER, check_alike, check_went_on, play_recipe, quiet, steps_of
from stage import Played
from stayfinite.recipes.compare import train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

HALF: dict[str, Any] = {"batch_size": 4, "accumulation": 2, "epochs": 2, "checkpoint_steps": 1, "consistency": 0.5}
WHOLE = HALF | {"batch_size": 8}
RESUMABLE: dict[str, Any] = HALF | {"batch_size": 2, "accumulation": 1, "tuning": "lora", "lora_dropout": 0.1}


@pytest.fixture(scope="module")
def table(folder: Path) -> str:
    return str(small_table(folder / "data", pairs=31))


def settings(folder: Path, output: str, table: str, **more: Any) -> dict[str, Any]:
    return asdict(small_settings(folder, train=table, **more)) | {"output_dir": str(folder / output)}


@pytest.fixture(scope="module")
def two(folder: Path, table: str) -> dict[str, Played]:
    runs = {
        "half": (settings(folder, "half", table, **HALF), NEVER),
        "shard": (settings(folder, "shard", table, **HALF, shard=True), NEVER),
        "whole": (settings(folder, "whole", table, **RESUMABLE), NEVER),
        "killed": (settings(folder, "killed", table, **RESUMABLE), 8),
        "again": (settings(folder, "killed", table, **RESUMABLE), NEVER),
        "to-one": (settings(folder, "to-one", table, **RESUMABLE | {"lora_dropout": 0.0}), 8),
        "no-dropout": (settings(folder, "no-dropout", table, **RESUMABLE | {"lora_dropout": 0.0}), NEVER),
    }
    return play_recipe("compare", runs, folder, ranks=2)


def test_two_ranks_with_half_the_batch_learn_what_one_does(two, folder, table):
    two["half"].check()
    assert two["half"].said.count("Saved the best model to") == 1, "one rank speaks"
    one = small_settings(folder, train=table, **WHOLE, output_dir=str(folder / "alone"))
    alone = train(one, quiet)
    assert alone.steps == len(steps_of(folder / "half"))
    check_alike(folder / "half", folder / "alone", steps=1e-4, weights=1e-4)
    scores = [json.loads((folder / name / "result.json").read_text())["scores"] for name in ("half", "alone")]
    assert scores[0] == pytest.approx(scores[1], rel=1e-3)


def test_two_ranks_that_were_killed_go_on_bit_for_bit_as_if_they_had_not_been(two, folder):
    check_went_on(two, folder, len(steps_of(folder / "whole")))


def test_a_run_of_two_ranks_goes_on_on_one(two, folder, table):
    assert two["to-one"].ends == [-signal.SIGKILL, -signal.SIGKILL]
    again = small_settings(folder, train=table, **RESUMABLE | {"lora_dropout": 0.0}, output_dir=str(folder / "to-one"))
    train(again, quiet)
    assert steps_of(folder / "to-one") == pytest.approx(steps_of(folder / "no-dropout"), rel=1e-4)


def test_ranks_that_hold_a_part_each_learn_what_those_do_that_hold_all(two, folder):
    two["shard"].check()
    check_alike(folder / "shard", folder / "half", steps=1e-4, weights=1e-4)
