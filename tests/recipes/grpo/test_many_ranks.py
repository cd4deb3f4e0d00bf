"""Ranks that share the questions of a step: they learn what one does, and go on on another number of them."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe_job import NEVER, check_went_on, play_recipe, steps_of, weights_of
from run_files import lines_of
from stage import Played
from stayfinite.recipes.grpo import train

from .test_training import small, start  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.usefixtures("one_thread")]

SHORT: dict[str, Any] = {"steps": 6, "kl": 0.02, "checkpoint_steps": 2, "learning_rate": 1e-3, "batch_size": 8}


@pytest.fixture(scope="module")
def played(folder: Path, start: Path) -> dict[str, Played]:  # noqa: F811
    def of(output: str, **more: Any) -> dict[str, Any]:
        return asdict(small(start, folder / output, **SHORT)) | more

    two = {
        "whole": (of("whole"), NEVER),
        "killed": (of("killed"), 5),
        "again": (of("killed"), NEVER),
        "to-one": (of("to-one"), 5),
        "minutes": (of("minutes", minutes=0.03, steps=10_000), NEVER),
        "built": (of("built", start=None, sft_rows=96, sft_epochs=1, check="warn", steps=2), NEVER),
        "unlike": (of("unlike", train=(f"{folder}/questions-RANK.jsonl",)), NEVER),
        "idle": (of("idle", prompts=1), NEVER),
    }
    for rank in range(2):
        rows = [json.dumps({"question": f"How many g are {n} kg?", "answer": f"{n}000"}) for n in range(90 + rank)]
        (folder / f"questions-{rank}.jsonl").write_text("\n".join(rows))
    return play_recipe("grpo", two, folder, ranks=2)


@pytest.fixture(scope="module")
def same_answers(folder: Path, start: Path) -> None:  # noqa: F811
    """The same run on one, two and three ranks, where what is said to a question is the same on all of them."""
    for ranks in (None, 2, 3):
        (stage := folder / f"same-{ranks}").mkdir()
        runs = {"run": (asdict(small(start, stage / "run", **SHORT)), NEVER)}
        play_recipe("grpo", runs, folder, ranks=ranks, stage=stage, job="grpo_job")["run"].check()


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_learn_what_one_does_from_the_same_answers(same_answers, folder, ranks):
    """Three share four questions: one of them has two."""
    mine, theirs = folder / f"same-{ranks}" / "run", folder / "same-None" / "run"
    assert steps_of(mine) == pytest.approx(steps_of(theirs), rel=1e-3, abs=1e-5)
    for one, two in zip(lines_of(mine / "steps.jsonl"), lines_of(theirs / "steps.jsonl"), strict=True):
        for name in ("reward", "right", "equal_groups", "length", "cut_off"):
            assert one["signals"][name] == pytest.approx(two["signals"][name])
        assert one["grad_norm"] == pytest.approx(two["grad_norm"], rel=1e-3)
    one, two = weights_of(mine), weights_of(theirs)
    assert all(torch.allclose(one[name], two[name], atol=1e-3) for name in one)


def test_two_ranks_that_were_killed_go_on_bit_for_bit_as_if_they_had_not_been(played, folder):
    check_went_on(played, folder, 6)
    assert played["whole"].said.count("Saved the best adapter to") == 1, "one rank speaks"


def test_a_run_of_two_ranks_goes_on_on_one(played, folder, start):  # noqa: F811
    assert played["to-one"].ends == [-signal.SIGKILL, -signal.SIGKILL]
    said: list[str] = []
    result = train(small(start, folder / "to-one", **SHORT), said.append)
    assert any(line.startswith("resumed after step 4") for line in said), said
    assert (result.steps, max(steps_of(folder / "to-one"))) == (6, 6)


def test_ranks_make_a_start_together_and_check_it_once(played, folder):
    played["built"].check()
    assert json.loads((folder / "built" / "start" / "run.json").read_text())["ranks_in_batch"] == 2
    assert played["built"].said.count("first samples:") == 1


def test_all_ranks_end_together_when_the_time_is_over(played, folder):
    played["minutes"].check()
    assert json.loads((folder / "minutes" / "result.json").read_text())["steps"] == max(steps_of(folder / "minutes"))


def test_ranks_with_other_questions_and_ranks_without_one_are_refused_on_every_rank(played):
    assert played["unlike"].ends == played["idle"].ends == [2, 2]
    assert played["unlike"].said.count("rank 1 reads other questions than rank 0") == 2
    assert played["idle"].said.count("2 ranks share the 1 questions of a step (--prompts): 1 would have none") == 2
