"""A training with megatron-core: one decision for all ranks, and a refused step moves nothing."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from stage import Played, play

pytest.importorskip("megatron.core")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BAD, SPIKE, BAD_GRADIENT = 20, 26, 30
KINDS = ("ddp", "tp", "bf16-sharded")
ONCE = ("bound", "bare", "back", "whole", "kill", "resume")


class Ran:
    """Trainings that so many ranks went through, each in a folder of its own; a resumed one in that of the killed."""

    def __init__(self, folder: Path, acts: list[tuple[str, str]], ranks: int) -> None:
        self.folder, self.ranks = folder, ranks
        lines = {f"{kind} {act}": (kind, act, self.of(kind, act)) for kind, act in acts}
        self.played: dict[str, Played] = play(
            "integrations.megatron.job", lines, folder / "stage", ranks=ranks, timeout=880
        )

    def of(self, kind: str, act: str) -> Path:
        (folder := self.folder / kind / ("kill" if act == "resume" else act)).mkdir(parents=True, exist_ok=True)
        return folder

    def seen(self, kind: str, act: str) -> list[dict[str, Any]]:
        self.played[f"{kind} {act}"].check()
        return [json.loads((self.of(kind, act) / f"{act}-{rank}.json").read_text()) for rank in range(self.ranks)]

    def ended(self, kind: str, act: str) -> list[list[torch.Tensor]]:
        self.played[f"{kind} {act}"].check()
        return [torch.load(self.of(kind, act) / f"{act}-{rank}.pt") for rank in range(self.ranks)]

    def alike(self, kind: str, one: str, other: str) -> bool:
        """Whether two trainings have ended in the same weights, moments, rate and schedule, to the last bit."""
        pairs = zip(self.ended(kind, one), self.ended(kind, other), strict=True)
        return all(len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True)) for a, b in pairs)

    def events(self, kind: str, act: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.of(kind, act) / "run" / "events.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    acts = [*product(KINDS, ("plain", "ours", "refuse")), *product(["bf16-sharded"], ONCE)]
    return Ran(tmp_path_factory.mktemp("two"), [*acts, ("fp16", "plain"), ("fp16", "ours"), ("ddp", "guard")], 2)


@pytest.mark.parametrize("kind", [*KINDS, "fp16"])
def test_a_healthy_training_is_the_same_to_the_last_bit_with_the_guard(two, kind):
    assert two.alike(kind, "plain", "ours")
    for rank in two.seen(kind, "ours"):
        assert not rank["left"], "a closed guard leaves nothing on the optimizer"


@pytest.mark.parametrize("kind", KINDS)
def test_the_norm_is_megatrons_own(two, kind):
    told = [norm for _, norm in two.seen(kind, "plain")[0]["told"]]
    for rank in two.seen(kind, "ours"):
        assert rank["norms"] == pytest.approx(told, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_loss_a_spike_and_a_bad_gradient_on_one_rank_are_refused_on_all_with_nothing_moved(two, kind):
    for rank in two.seen(kind, "refuse"):
        assert rank["unmoved"] == [[BAD, True], [SPIKE, True], [BAD_GRADIENT, True]]
        assert [number for number, (successful, _) in enumerate(rank["told"], 1) if not successful] == [20, 26, 30]
        assert rank["bad ranks"][str(BAD)] == [1]
        assert rank["finite"]


def test_an_unusual_step_is_bounded_by_megatrons_own_clipping_for_that_step_alone(two):
    for rank in two.seen("bf16-sharded", "bound"):
        assert [step for step, unmoved in rank["unmoved"] if unmoved] == [BAD, BAD_GRADIENT]
        ((step, (limit, told)),) = rank["bounded"].items()
        assert (int(step), rank["clip"]) == (SPIKE, 5.0)
        assert limit < 5.0 < 100 < told


def test_without_the_guard_one_bad_loss_is_taken_as_successful_and_the_weights_are_lost(two):
    for rank in two.seen("bf16-sharded", "bare"):
        successful, norm = rank["told"][BAD - 1]
        assert successful
        assert math.isnan(norm)
        assert not rank["finite"]


def test_a_rollback_takes_shards_copies_and_schedule_back(two):
    assert all(rank["finite"] for rank in two.seen("bf16-sharded", "back"))
    events = [each["event"] for each in two.events("bf16-sharded", "back")]
    assert "rollback" in events
    assert "snapshots-off" not in events


def test_killed_ranks_resume_to_the_same_bits(two):
    assert two.played["bf16-sharded kill"].ends == [-9, -9]
    assert two.alike("bf16-sharded", "whole", "resume")


def test_a_loss_scale_that_looks_for_its_value_is_no_veto(two):
    for rank in two.seen("fp16", "ours"):
        searching = [number for number, (successful, _) in enumerate(rank["told"], 1) if not successful]
        assert searching == [] or searching[0] == 1
        assert rank["finite"]


def test_the_guard_of_a_plain_loop_names_the_one_for_megatron(two):
    for rank in two.seen("ddp", "guard"):
        assert "megatron_guard" in rank["error"]


def test_tensor_parallel_and_sharded_optimizer_together(tmp_path):
    four = Ran(tmp_path, [("tp-sharded", act) for act in ("plain", "ours", "refuse")], 4)
    assert four.alike("tp-sharded", "plain", "ours")
    for rank in four.seen("tp-sharded", "refuse"):
        assert rank["unmoved"] == [[BAD, True], [SPIKE, True], [BAD_GRADIENT, True]]
