"""A training with torchtitan's own Trainer: one decision for all ranks, and a refused step moves nothing."""

from __future__ import annotations

from itertools import product

import pytest

from engine_runs import EngineRuns

pytest.importorskip("torchtitan.trainer", reason="make engines")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JOB = "integrations.torchtitan.job"
BAD, SPIKE, BAD_GRADIENT = 20, 26, 30
KINDS = ("fsdp", "tp")
ONCE = ("bound", "bare", "override", "attached", "whole", "kill", "resume")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> EngineRuns:
    acts = [*product(KINDS, ("plain", "ours", "refuse")), *product(["fsdp"], ONCE)]
    return EngineRuns(JOB, tmp_path_factory.mktemp("two"), acts, ranks=2)


def check_one_decision(runs: EngineRuns, kind: str) -> None:
    for rank in runs.seen(kind, "refuse"):
        assert rank["unmoved"] == [[BAD, True], [SPIKE, True], [BAD_GRADIENT, True]]
        assert rank["finite"]
        assert rank["error"] is None, "the Trainer does not end at a loss whose step was refused"


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_training_is_the_same_to_the_last_bit_with_the_guard(two, kind):
    assert two.alike(kind, "plain", "ours")


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_norm_are_torchtitans_own(two, kind):
    told = two.seen(kind, "plain")[0]["told"]
    for rank in two.seen(kind, "ours"):
        assert rank["losses"] == pytest.approx([loss for _, loss, _ in told], rel=1e-5)
        assert rank["norms"] == pytest.approx([norm for _, _, norm in told], rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_loss_a_spike_and_a_bad_gradient_on_one_rank_are_refused_on_all_with_nothing_moved(two, kind):
    check_one_decision(two, kind)


def test_an_unusual_step_is_bounded_below_the_trainers_own_clipping(two):
    for rank in two.seen("fsdp", "bound"):
        assert rank["unmoved"] == [[BAD, True], [BAD_GRADIENT, True]]
        ((step, limit),) = rank["bounded"]
        assert step == SPIKE
        assert limit < 5.0


def test_without_the_guard_one_bad_loss_ends_the_training_with_its_weights_lost(two):
    for rank in two.seen("fsdp", "bare"):
        assert "Loss is not finite" in rank["error"]
        assert not rank["finite"]


def test_the_override_on_the_command_line_does_what_the_function_does(two):
    assert two.alike("fsdp", "refuse", "override")
    vetoes = [each["step"] for each in two.events("fsdp", "override") if each["event"] == "veto"]
    assert vetoes == [BAD, SPIKE, BAD_GRADIENT]


def test_the_doctor_attaches_the_guard_to_a_trainer_that_knows_nothing_of_it(two):
    assert two.alike("fsdp", "refuse", "attached")
    for rank in two.seen("fsdp", "attached"):
        assert rank["lines"] == ["hooked into Trainer, after torchtitan Trainer.__init__"]


def test_killed_ranks_resume_to_the_same_bits(two):
    assert two.played["fsdp kill"].ends == [-9, -9]
    assert two.alike("fsdp", "whole", "resume")
    assert [each["step"] for each in two.events("fsdp", "resume") if each["event"] == "veto"] == [BAD, BAD_GRADIENT]


def test_replicas_of_shards_decide_as_one(tmp_path):
    four = EngineRuns(JOB, tmp_path, [("hsdp", act) for act in ("plain", "ours", "refuse")], ranks=4)
    assert four.alike("hsdp", "plain", "ours")
    check_one_decision(four, "hsdp")
