"""Stages on different ranks: one norm, one decision, and nobody is compared with a stage that holds something else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ranks.pipeline_job import BAD
from stage import play
from stayfinite import Guard
from stayfinite.errors import ModelError, OrderError, UsageError


class Stage:
    """Trainings that so many ranks went through; those of one kind share a folder."""

    def __init__(self, folder: Path, ranks: int, acts: Iterable[tuple[str, str]]) -> None:
        self.folder, self.ranks = folder, ranks
        lines = {f"{kind}-{act}": (kind, act, self.of(kind, act)) for kind, act in acts}
        self.played = play("ranks.pipeline_job", lines, folder / "stage", ranks=ranks, timeout=150 * ranks)

    def of(self, kind: str, act: str) -> Path:
        (folder := self.folder / f"{kind}-{'save' if act == 'resume' else act}").mkdir(parents=True, exist_ok=True)
        return folder

    def seen(self, kind: str, act: str) -> list[dict[str, Any]]:
        self.played[f"{kind}-{act}"].check()
        place = self.of(kind, act)
        return [json.loads((place / f"seen-{act}-{rank}.json").read_text()) for rank in range(self.ranks)]

    def events(self, kind: str, act: str, name: str) -> list[dict[str, Any]]:
        lines = (self.of(kind, act) / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == name]


ON_TWO = ("gpipe", "1f1b", "interleaved")
ON_FOUR = ("four", "ddp", "fsdp")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    acts = [*product(ON_TWO, ["healthy", "bare"]), *product(["1f1b", "interleaved"], ["nan-loss", "nan-gradient"])]
    more = [("interleaved", "save"), ("interleaved", "resume"), ("gpipe", "spike")]
    return Stage(tmp_path_factory.mktemp("two"), 2, [*acts, *more])


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    acts = [*product(ON_FOUR, ["healthy", "bare", "nan-loss", "save", "resume"]), ("ddp", "desync"), ("four", "desync")]
    return Stage(tmp_path_factory.mktemp("four"), 4, acts)


def check_healthy(stage: Stage, kind: str) -> None:
    seen, bare = stage.seen(kind, "healthy"), stage.seen(kind, "bare")
    for rank, without in zip(seen, bare, strict=True):
        assert rank["norms"] == pytest.approx(seen[0]["whole"], rel=1e-5)
        assert rank["losses"] == seen[0]["losses"]
        assert rank["state"] == without["state"]
    assert not stage.events(kind, "healthy", "finding")


def check_refused(stage: Stage, kind: str, act: str) -> None:
    for rank in stage.seen(kind, act):
        assert [action == "veto" for action in rank["actions"]] == [number == BAD for number in range(8)]
        before, after = rank["around"]
        assert before == after
    assert len(stage.events(kind, act, "veto")) == 1


def check_resumed(stage: Stage, kind: str) -> None:
    for through, resumed in zip(stage.seen(kind, "save"), stage.seen(kind, "resume"), strict=True):
        assert resumed["first"] == 4
        assert resumed["state"]["lr"] == through["state"]["lr"]
        # Buffers count one pass more: a new schedule finds out shapes by one. Under DDP the last bit of a sum differs.
        close = {"rel": 1e-5, "abs": 1e-7} if kind == "ddp" else {"rel": 0, "abs": 0}
        for part in ("weights", "moments"):
            for ours, theirs in zip(resumed["state"][part], through["state"][part], strict=True):
                assert ours == pytest.approx(theirs, **close)


@pytest.mark.parametrize("kind", ON_TWO)
@pytest.mark.slow
def test_a_healthy_pipeline_has_the_norm_of_the_whole_model_and_the_bits_of_a_bare_loop(two, kind):
    check_healthy(two, kind)


@pytest.mark.parametrize("kind", ["1f1b", "interleaved"])
@pytest.mark.parametrize("act", ["nan-loss", "nan-gradient"])
@pytest.mark.slow
def test_a_fault_on_one_stage_is_refused_on_all_and_moves_nothing(two, kind, act):
    check_refused(two, kind, act)
    (veto,) = two.events(kind, act, "veto")
    assert veto["bad_ranks"] == ([1] if act == "nan-loss" else [0])
    assert veto["bad_parameters"][0].startswith("stage0.")


@pytest.mark.slow
def test_stages_go_back_together_where_vetoes_do_not_help(two):
    seen = two.seen("gpipe", "spike")
    assert all(rank["actions"] == seen[0]["actions"] for rank in seen)
    assert "rollback" in seen[0]["actions"]


@pytest.mark.slow
def test_a_rank_with_two_stages_resumes_with_the_same_bits(two):
    check_resumed(two, "interleaved")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ON_FOUR)
def test_tied_weights_replicas_and_shards_of_stages_count_once(four, kind):
    check_healthy(four, kind)
    check_refused(four, kind, "nan-loss")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ON_FOUR)
def test_every_stage_is_in_the_checkpoint(four, kind):
    check_resumed(four, kind)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("ddp", "stage1.0.0.weight"), ("four", None)])
def test_a_replica_that_drifts_is_found_and_a_stage_that_differs_is_not(four, kind, name):
    four.seen(kind, "desync")
    found = four.events(kind, "desync", "finding")
    assert [event["cause"] for event in found] == (["rank-desync"] if name else [])
    assert all(name in event["evidence"][0] for event in found)


def test_what_a_guard_cannot_do_with_stages_is_refused_with_what_to_do():
    class Last:
        submod, stage_index, num_stages = nn.Linear(2, 2), 0, 1

    optimizer = torch.optim.SGD(Last.submod.parameters(), lr=0.1)
    with pytest.raises(ModelError, match="PipelineStage"):
        Guard([Last.submod], optimizer)
    with pytest.raises(UsageError, match="bf16"):
        Guard(Last(), optimizer, scaler=torch.amp.GradScaler("cpu"))
    with pytest.raises(UsageError, match="leave tied out"):
        Guard(Last.submod, optimizer, tied={"head": Last.submod.weight})
    guard = Guard([Last()], optimizer)
    with pytest.raises(UsageError, match="the schedule runs backward"):
        guard.backward(Last.submod(torch.ones(2)).sum())
    with pytest.raises(OrderError, match="last stage"):
        guard.step()
    guard.close()
