"""A training with megatron-core: one decision for all ranks, and a refused step moves nothing."""

from __future__ import annotations

import math
from itertools import product

import pytest

from engine_runs import EngineRuns

pytest.importorskip("megatron.core", reason="make engines")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOB = "integrations.megatron.job"
BAD, SPIKE, BAD_GRADIENT = 20, 26, 30
KINDS = ("ddp", "tp", "bf16-sharded")
ONCE = ("bound", "bare", "back", "whole", "kill", "resume")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> EngineRuns:
    acts = [*product(KINDS, ("plain", "ours", "refuse")), *product(["bf16-sharded"], ONCE)]
    acts += [("fp16", "plain"), ("fp16", "ours"), ("ddp", "guard"), ("ddp", "attached")]
    return EngineRuns(JOB, tmp_path_factory.mktemp("two"), acts, ranks=2)


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


def test_the_doctor_attaches_the_guard_to_a_script_that_knows_nothing_of_it(two):
    for rank in two.seen("ddp", "attached"):
        assert rank["lines"] == ["hooked into ChainedOptimizer, after megatron get_megatron_optimizer"]
        assert [number for number, (successful, _) in enumerate(rank["told"], 1) if not successful] == [BAD]
        assert rank["runs"] == ["stayfinite"]
        assert rank["finite"]


def test_tensor_parallel_and_sharded_optimizer_together(tmp_path):
    four = EngineRuns(JOB, tmp_path, [("tp-sharded", act) for act in ("plain", "ours", "refuse")], ranks=4)
    assert four.alike("tp-sharded", "plain", "ours")
    for rank in four.seen("tp-sharded", "refuse"):
        assert rank["unmoved"] == [[BAD, True], [SPIKE, True], [BAD_GRADIENT, True]]
