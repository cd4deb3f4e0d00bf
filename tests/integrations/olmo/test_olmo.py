"""OLMo-core's own trainer with the callback: its bits, its norm, one decision on all ranks, and the damage without."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from stage import play
from stayfinite.errors import ModelError, OptimizerError

pytest.importorskip("olmo_core", reason="make engines")
pytestmark = pytest.mark.slow
BAD, STEPS = 8, 14


class Stage:
    """Trainings that so many ranks went through."""

    def __init__(self, folder: Path, ranks: int, acts: Iterable[tuple[str, str]]) -> None:
        self.folder, self.ranks = folder, ranks
        lines = {f"{kind}-{act}": (kind, act, self.of(kind, act)) for kind, act in acts}
        self.played = play("olmo_job", lines, folder / "stage", ranks=ranks)

    def of(self, kind: str, act: str) -> Path:
        # Who resumes goes on where the other was killed.
        (folder := self.folder / f"{kind}-{'killed' if act == 'resumed' else act}").mkdir(parents=True, exist_ok=True)
        return folder

    def seen(self, kind: str, act: str) -> list[dict[str, Any]]:
        self.played[f"{kind}-{act}"].check()
        place = self.of(kind, act)
        return [json.loads((place / f"seen-{act}-{rank}.json").read_text()) for rank in range(self.ranks)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    acts = product(["ddp", "fsdp"], ["healthy", "bare", "nan", "spike", "nan-gradient", "bare-nan"])
    more = [("ddp-skipping", "nan"), ("ddp-skipping", "bare-nan")]
    return Stage(tmp_path_factory.mktemp("two"), 2, [*acts, *more, *product(["fsdp"], ["whole", "killed", "resumed"])])


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("four"), 4, product(["hsdp"], ["healthy", "bare", "nan"]))


def check_healthy(stage: Stage, kind: str) -> None:
    for rank, bare in zip(stage.seen(kind, "healthy"), stage.seen(kind, "bare"), strict=True):
        assert rank["ours"] == pytest.approx(rank["norms"], rel=1e-5)
        assert rank["steps"] == list(range(1, STEPS + 1))
        assert (rank["end"], rank["norms"]) == (bare["end"], bare["norms"])


def check_refused(stage: Stage, kind: str, act: str) -> None:
    for rank in stage.seen(kind, act):
        assert not rank["ended"]
        assert [action == "veto" for action in rank["actions"]] == [step == BAD for step in range(1, STEPS + 1)]
        before, after, _ = rank["states"]
        assert before == after


def finite(state: dict[str, Any]) -> bool:
    return all(math.isfinite(number) for weight in state["weights"] for number in weight)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_healthy_run_has_the_bits_of_one_without_and_the_norm_is_olmos_own(two, kind):
    check_healthy(two, kind)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
@pytest.mark.parametrize("act", ["nan", "spike", "nan-gradient"])
def test_a_fault_on_one_rank_is_refused_on_all_with_nothing_moved(two, kind, act):
    check_refused(two, kind, act)
    if act == "nan":
        assert [rank["bad_ranks"][BAD - 1] for rank in two.seen(kind, act)] == [[1], [1]]


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "ddp-skipping"])
def test_without_the_callback_one_nan_ends_the_run_with_weights_that_are_not_finite(two, kind):
    for rank in two.seen(kind, "bare-nan"):
        assert rank["ended"]
        assert not finite(rank["end"])


def test_a_nan_does_not_enter_the_window_of_a_skip_step_optimizer(two):
    check_refused(two, "ddp-skipping", "nan")
    assert all(map(math.isfinite, two.seen("ddp-skipping", "nan")[0]["window"]))
    assert not all(map(math.isfinite, two.seen("ddp-skipping", "bare-nan")[0]["window"]))


def test_two_ranks_killed_in_the_middle_end_with_the_bits_of_a_run_that_was_not(two):
    assert two.played["fsdp-killed"].ends == [9, 9]
    for resumed, whole in zip(two.seen("fsdp", "resumed"), two.seen("fsdp", "whole"), strict=True):
        assert resumed["steps"] == list(range(6, STEPS + 1))
        assert resumed["end"] == whole["end"]


def test_replicas_of_shards_count_once(four):
    check_healthy(four, "hsdp")
    check_refused(four, "hsdp", "nan")


def test_a_train_module_that_cannot_be_guarded_is_named():
    from stayfinite.integrations.olmo import check_train_module

    class Stages:
        optimizers: tuple[Any, ...] = ()

    class Silent:
        model = nn.Linear(1, 1)
        optim = torch.optim.SGD(model.parameters())

    with pytest.raises(OptimizerError, match="Stages has no single torch optimizer"):
        check_train_module(Stages())
    with pytest.raises(ModelError, match="Silent has no model and model_forward"):
        check_train_module(Silent())
