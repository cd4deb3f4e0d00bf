"""Real engines of DeepSpeed in two processes: trouble on the second is refused on both, and nothing has moved."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from stage import play

pytest.importorskip("deepspeed", reason="make engines")

from integrations.deepspeed.engine_job import NAN_GRADIENT, NAN_LOSS, SAVED, SPIKE, STEPS, read

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

KINDS = {
    "0-fp32": "AdamW",
    "0-bf16": "FP16_UnfusedOptimizer",
    "0-fp16": "FP16_UnfusedOptimizer",
    "1-fp32-unclipped": "DeepSpeedZeroOptimizer",
    "1-bf16-wide": "BF16_Optimizer",
    "1-bf16-unchecked": "DeepSpeedZeroOptimizer",
    "2-bf16": "DeepSpeedZeroOptimizer",
    "2-fp16": "DeepSpeedZeroOptimizer",
    "2-bf16-offload": "DeepSpeedZeroOptimizer",
    "3-fp32": "DeepSpeedZeroOptimizer_Stage3",
    "3-fp16": "DeepSpeedZeroOptimizer_Stage3",
    "3-bf16-offload": "DeepSpeedZeroOptimizer_Stage3",
}
RESUMED = ("0-fp32", "2-bf16", "3-bf16-offload")
BOUNDED = ("0-fp32-sgd", "1-fp32-unclipped-sgd", "3-fp32-sgd")
ROLLED_BACK = ("0-bf16", "2-bf16", "2-bf16-offload")
ACTS = [
    *((kind, act) for kind in KINDS for act in ("plain", "good", "nan-spike-refuse")),
    ("0-fp32", "plain-nan"),
    ("1-bf16-unchecked", "plain-nan"),
    ("3-bf16-offload", "plain-spike"),
    *((kind, "spike-bound") for kind in BOUNDED),
    *((kind, act) for kind in RESUMED for act in ("whole", "kill", "resume")),
    ("2-bf16", "poison"),
    *((kind, "rollback") for kind in ROLLED_BACK),
]

Ranks = list[Mapping[str, Any]]


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> Path:
    """All acts, played one after the other; a directory for each kind and act."""
    folder = tmp_path_factory.mktemp("engines")
    names = {f"{kind}.{act}": (folder / kind / ("kill" if act == "resume" else act), kind, act) for kind, act in ACTS}
    for place, *_ in names.values():
        place.mkdir(parents=True, exist_ok=True)
    played = play("integrations.deepspeed.engine_job", names, folder / "stage", ranks=2, timeout=1700)
    for name, each in played.items():
        if name.endswith(".kill"):
            assert each.ends == [-signal.SIGKILL] * 2
        else:
            each.check()
    return folder


@pytest.fixture(scope="module")
def engines(places) -> Callable[[str, str], Ranks]:
    """What each rank had in the end."""
    return lambda kind, act: read(places / kind / ("kill" if act == "resume" else act))


@pytest.fixture(scope="module")
def seen(engines) -> dict[tuple[str, str], Ranks]:
    return {(kind, act): engines(kind, act) for kind, act in ACTS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_healthy_run_has_the_same_bits_with_and_without_the_guard(seen, kind):
    plain, guarded = seen[kind, "plain"], seen[kind, "good"]
    assert plain[0]["optimizer"] == KINDS[kind]
    for alone, ours in zip(plain, guarded, strict=True):
        assert ours["end"] == alone["end"]
        assert ours["losses"] == alone["losses"]
        assert ours["skipped"] == alone["skipped"]
        assert ours["left"] == []
    # Only fp16 looks for its scale; nothing else is worth a word.
    codes = [code for _, code, *_ in guarded[0]["decisions"].values()]
    assert codes == ["scale-search"] * plain[0]["skipped"]
    assert bool(codes) == (kind in ("2-fp16", "3-fp16"))


@pytest.mark.parametrize("kind", KINDS)
def test_trouble_on_one_rank_is_refused_on_both_and_nothing_has_moved(seen, kind):
    first, second = seen[kind, "nan-spike-refuse"]
    half = "fp16" in kind
    assert first["decisions"] == second["decisions"]
    assert {int(step): told[:2] for step, told in first["decisions"].items()} == {
        NAN_LOSS: ["veto", "loss-not-finite"],
        NAN_GRADIENT: ["veto", "scale-search" if half else "gradient-not-finite"],
        SPIKE: ["veto", "loss-spike"],
    }
    assert first["decisions"][f"{NAN_LOSS}"][3] == [1]
    for rank in (first, second):
        # The scaler of fp16 goes down where gradients overflow, as it would by itself; for a spike it stays.
        assert rank["refused"] == [
            {"step": NAN_LOSS, "moved": ["scale"] * half},
            {"step": NAN_GRADIENT, "moved": ["scale"] * half},
            {"step": SPIKE, "moved": []},
        ]
        assert rank["skipped"] == rank["vetoes"] == 3
        assert rank["finite"]
        assert rank["clip"] in (None, 0.0, 50.0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "0-fp32"])
def test_the_norm_is_the_engines_own(seen, kind):
    first, _ = seen[kind, "good"]
    assert len(first["norms"]) > 20
    for ours, own in first["norms"]:
        assert ours == pytest.approx(own, rel=1e-5)


def test_without_the_guard_a_nan_ends_fp32_and_a_spike_moves_all(engines):
    for kind in ("0-fp32", "1-bf16-unchecked"):
        for lost in engines(kind, "plain-nan"):
            assert not lost["finite"]
            assert lost["skipped"] == 0
    thrown, usual = engines("3-bf16-offload", "plain-spike")[0], engines("3-bf16-offload", "plain")[0]
    # The engine takes the spike, clipped; from there on it is another training.
    assert thrown["skipped"] == 0
    assert thrown["losses"][: SPIKE - 1] == usual["losses"][: SPIKE - 1]
    assert thrown["losses"][SPIKE:] != usual["losses"][SPIKE:]


@pytest.mark.parametrize("kind", BOUNDED)
def test_an_unusual_step_is_limited_by_the_engines_own_clipping(engines, kind):
    for rank in engines(kind, "spike-bound"):
        (bounded,) = [told for told in rank["decisions"].values() if told[0] == "bound"]
        assert rank["moved"] == pytest.approx(bounded[2], rel=1e-3)
        assert rank["skipped"] == 0
        assert rank["clip"] in (None, 0.0, 50.0)


@pytest.mark.parametrize("kind", RESUMED)
def test_two_ranks_that_were_killed_and_resumed_end_with_the_same_bits(engines, kind):
    whole, resumed = engines(kind, "whole"), engines(kind, "resume")
    assert [each["end"] for each in resumed] == [each["end"] for each in whole]
    assert len(resumed[0]["losses"]) == STEPS - SAVED
    assert resumed[0]["memory"] == whole[0]["memory"]


@pytest.mark.parametrize("kind", ROLLED_BACK)
def test_a_rollback_puts_weights_masters_moments_and_schedule_back(engines, kind):
    for rank in engines(kind, "rollback"):
        assert [told[0] for told in rank["decisions"].values()] == ["veto", "veto", "rollback"]
        assert len(rank["gone_back_to"]) == 1
        assert rank["finite"]


def test_latest_goes_on_naming_the_last_checkpoint_without_a_nan(engines, places):
    engines("2-bf16", "poison")
    assert (places / "2-bf16" / "poison" / "saved" / "latest").read_text() == "at-4"
    said = (places / "2-bf16" / "poison" / "run" / "events.jsonl").read_text()
    assert "at-5" in said
    assert "checkpoint-failed" in said
