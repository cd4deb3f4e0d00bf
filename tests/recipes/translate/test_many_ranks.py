"""Ranks under torchrun: they learn what one does, go on on another number of them, and refuse together."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from child_processes import finish
from recipe_job import NEVER, check_alike, check_went_on, play_recipe, quiet, steps_of
from stage import Played
from stayfinite.recipes.translate import train
from tiny_translations import quick_settings, short_pairs, write_pairs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WHOLE: dict[str, Any] = {"batch_size": 8, "accumulation": 2, "label_smoothing": 0.1, "ema": 0.9, "beams": 2}
HALF = WHOLE | {"batch_size": 4}
BUDGET: dict[str, Any] = {"batch_tokens": 100, "accumulation": 2, "epochs": 3, "checkpoint_steps": 2, "eval_rows": 3}
"""Batches of some rows, and now and then of one, which leaves a rank without any."""
SHARDED = BUDGET | {"shard": True}


def settings(folder: Path, output: str, **more: Any) -> dict[str, Any]:
    return asdict(quick_settings(folder, output_dir=str(folder / output), **more))


@pytest.fixture(scope="module")
def two(folder: Path) -> dict[str, Played]:
    of = partial(settings, folder)
    runs = {
        "half": (of("half", **HALF), NEVER),
        "whole": (of("whole", **BUDGET), NEVER),
        "killed": (of("killed", **BUDGET), 5),
        "again": (of("killed", **BUDGET), NEVER),
        "to-one": (of("to-one", **BUDGET), 5),
        "to-four": (of("to-four", **BUDGET), 5),
        "shard": (of("shard", **SHARDED), NEVER),
        "shard-to-one": (of("shard-to-one", **SHARDED), 5),
        "shard-to-four": (of("shard-to-four", **SHARDED), 5),
        "minutes": (of("minutes", minutes=0.02, epochs=None, eval_rows=1), NEVER),
        "unlike": (of("unlike", train=(f"{folder}/pairs-of-rank-RANK.csv",)), NEVER),
        "one-cannot-read": (of("one-cannot-read", train=(f"{folder}/gone-on-rank-RANK.csv",)), NEVER),
    }
    write_pairs(folder / "pairs-of-rank-0.csv", short_pairs(30))
    write_pairs(folder / "pairs-of-rank-1.csv", short_pairs(20))
    write_pairs(folder / "gone-on-rank-0.csv", short_pairs(30))
    write_pairs(folder / "few.csv", short_pairs(4))
    return play_recipe("translate", runs, folder, ranks=2)


@pytest.fixture(scope="module")
def four(folder: Path, two: dict[str, Played]) -> dict[str, Played]:
    runs = {
        "to-four": (settings(folder, "to-four", **BUDGET), NEVER),
        "shard-to-four": (settings(folder, "shard-to-four", **SHARDED), NEVER),
        "idle": (settings(folder, "idle", train=(str(folder / "few.csv"),)), NEVER),
    }
    (folder / "on-four").mkdir()
    return play_recipe("translate", runs, folder, ranks=4, stage=folder / "on-four")


def result_of(output: Path) -> dict[str, Any]:
    return json.loads((output / "result.json").read_text())


def test_two_ranks_with_half_the_batch_learn_what_one_does(two, folder):
    two["half"].check()
    assert two["half"].said.count("Saved the best model to") == 1, "one rank speaks"
    alone = train(quick_settings(folder, output_dir=str(folder / "alone"), **WHOLE), quiet)
    assert alone.steps == len(steps_of(folder / "half"))
    check_alike(folder / "half", folder / "alone", steps=1e-4, weights=1e-4)
    assert result_of(folder / "half")["scores"] == pytest.approx(result_of(folder / "alone")["scores"], rel=1e-3)


def test_two_ranks_that_were_killed_go_on_bit_for_bit_as_if_they_had_not_been(two, folder):
    check_went_on(two, folder, len(steps_of(folder / "whole")))


def test_a_run_of_two_ranks_goes_on_on_one(two, folder):
    assert two["to-one"].ends == [-signal.SIGKILL, -signal.SIGKILL]
    said: list[str] = []
    train(quick_settings(folder, output_dir=str(folder / "to-one"), **BUDGET), said.append)
    assert any(line.startswith("ranks 2 -> 1: batches and steps stay the same") for line in said), said
    assert steps_of(folder / "to-one") == pytest.approx(steps_of(folder / "whole"), rel=1e-4)


def test_a_run_of_two_ranks_goes_on_on_four(two, four, folder):
    assert two["to-four"].ends == [-signal.SIGKILL, -signal.SIGKILL]
    four["to-four"].check()
    assert steps_of(folder / "to-four") == pytest.approx(steps_of(folder / "whole"), rel=1e-4)
    assert result_of(folder / "to-four")["scores"] == pytest.approx(result_of(folder / "whole")["scores"], rel=1e-3)


def test_accelerate_launch_starts_ranks_too(folder, tmp_path):
    (file := tmp_path / "train.yaml").write_text(
        yaml.safe_dump({
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings(folder, "accelerate", epochs=1).items()
        })
    )  # fmt: skip
    launch = ["--multi_gpu", "--num_processes=2", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"]
    command = [sys.executable, "-m", "accelerate.commands.launch", *launch, "--main_process_port=0", "-m", "stayfinite"]
    done = finish([*command, "train", "translate", "--config", file])
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads((folder / "accelerate" / "run.json").read_text())["ranks_in_batch"] == 2
    assert done.stdout.count("Saved the best model to") == 1, "one rank speaks"


def test_all_ranks_end_together_when_the_time_is_over(two, folder):
    two["minutes"].check()
    assert json.loads((folder / "minutes" / "run.json").read_text())["minutes"] == 0.02
    assert result_of(folder / "minutes")["steps"] == len(steps_of(folder / "minutes"))


def test_ranks_with_other_data_are_refused_on_every_rank(two):
    assert two["unlike"].ends == [2, 2]
    assert two["unlike"].said.count("rank 1 reads other pairs than rank 0") == 2


def test_what_one_rank_cannot_read_ends_all_of_them_with_its_words(two):
    assert two["one-cannot-read"].ends == [2, 2]
    assert two["one-cannot-read"].said.count("gone-on-rank-1.csv") == 2


def test_more_ranks_than_rows_are_refused_on_every_rank(four):
    assert four["idle"].ends == [2] * 4
    assert four["idle"].said.count("4 ranks but 3 training rows: 1 ranks would have none") == 4


def test_ranks_that_hold_a_part_each_learn_what_those_do_that_hold_all(two, folder):
    two["shard"].check()
    check_alike(folder / "shard", folder / "whole", steps=1e-4, weights=1e-4)
    assert result_of(folder / "shard")["scores"] == pytest.approx(result_of(folder / "whole")["scores"], rel=1e-3)


def test_a_sharded_run_of_two_ranks_goes_on_on_four_and_on_one(two, four, folder):
    for name in ("shard-to-four", "shard-to-one"):
        assert two[name].ends == [-signal.SIGKILL, -signal.SIGKILL]
    four["shard-to-four"].check()
    train(quick_settings(folder, output_dir=str(folder / "shard-to-one"), **SHARDED), quiet)
    for name in ("shard-to-four", "shard-to-one"):
        assert steps_of(folder / name) == pytest.approx(steps_of(folder / "whole"), rel=1e-4)
