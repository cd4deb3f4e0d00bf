"""Ranks under torchrun: they learn what one does, and go on on another number of them."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from recipe_job import NEVER, check_alike, check_went_on, play_recipe, quiet, steps_of
from stage import Played
from stayfinite.recipes.mt5 import train
from tiny_language import settings, tiny_model, write_texts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WHOLE: dict[str, Any] = {"train_batch_size": 8, "gradient_accumulation_steps": 2, "dropout": 0.0}
HALF = WHOLE | {"train_batch_size": 4}
BUILT: dict[str, Any] = {"model_name": "tiny", "vocab_size": 120, "dropout": 0.0, "max_steps": 8}
"""A model and a tokenizer that are made here: by the first rank, for all."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mt5")
    model = tiny_model(folder / "model")
    shape = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(shape | {"dropout_rate": 0.0}))
    write_texts(folder / "texts", 57)
    for rank, count in ((0, 30), (1, 31)):
        write_texts(folder / f"texts-of-rank-{rank}", count)
    return folder


def chosen(folder: Path, output: str, **more: Any) -> Any:
    return settings(folder / "texts", folder / "model", folder / output, **more)


@pytest.fixture(scope="module")
def two(folder: Path) -> dict[str, Played]:
    def of(output: str, **more: Any) -> dict[str, Any]:
        return asdict(chosen(folder, output, **more))

    runs = {
        "half": (of("half", **HALF), NEVER),
        "whole": (of("whole", **BUILT), NEVER),
        "killed": (of("killed", **BUILT), 5),
        "again": (of("killed", **BUILT), NEVER),
        "to-one": (of("to-one", **BUILT), 5),
        "shard": (of("shard", **HALF, shard=True), NEVER),
        "unlike": (of("unlike", data=(str(folder / "texts-of-rank-RANK"),)), NEVER),
    }
    return play_recipe("mt5", runs, folder, ranks=2)


@pytest.fixture(scope="module")
def three(folder: Path, two: dict[str, Played]) -> dict[str, Played]:
    """Three ranks share what two had: not all of them have as many rows."""
    assert two["to-one"].ends == [-signal.SIGKILL, -signal.SIGKILL]
    (stage := folder / "on-three").mkdir()
    runs = {"to-one": (asdict(chosen(folder, "to-one", **BUILT)), 7)}
    return play_recipe("mt5", runs, folder, ranks=3, stage=stage)


def test_two_ranks_with_half_the_batch_learn_what_one_does(two, folder):
    two["half"].check()
    assert two["half"].said.count("Saved the best model to") == 1, "one rank speaks"
    train(chosen(folder, "alone", **WHOLE), quiet)
    check_alike(folder / "half", folder / "alone", steps=1e-4, weights=1e-3)
    losses = [json.loads((folder / name / "result.json").read_text())["validation_loss"] for name in ("half", "alone")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_two_ranks_that_were_killed_go_on_bit_for_bit_as_if_they_had_not_been(two, folder):
    check_went_on(two, folder, 8)


def test_a_run_of_two_ranks_goes_on_on_three_and_then_on_one(three, folder):
    assert three["to-one"].ends == [-signal.SIGKILL] * 3
    said: list[str] = []
    train(chosen(folder, "to-one", **BUILT), said.append)
    assert any("ranks 2 -> 1: batches and steps stay the same" in line for line in said), said
    assert steps_of(folder / "to-one") == pytest.approx(steps_of(folder / "whole"), rel=1e-4)


def test_texts_that_differ_from_rank_to_rank_are_refused_on_every_rank(two):
    assert two["unlike"].ends == [2, 2]
    assert two["unlike"].said.count("rank 1 reads other texts than rank 0") == 2


def test_ranks_that_hold_a_part_each_learn_what_those_do_that_hold_all(two, folder):
    two["shard"].check()
    check_alike(folder / "shard", folder / "half", steps=1e-4, weights=1e-3)
