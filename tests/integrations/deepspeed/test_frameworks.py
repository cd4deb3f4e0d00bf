"""Engines that accelerate and the Trainer build are guarded by the same line as ever; the doctor finds its own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from stage import play_ranks
from tiny_trainers import events

pytest.importorskip("deepspeed", reason="make engines")

from integrations.deepspeed.frameworks_job import BAD

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ACTS = ("accelerate-0", "accelerate-2", "accelerate-2-plain-good", "accelerate-2-good", "trainer-2", "trainer-3",
        "trainer-2-plain-good", "trainer-2-good", "attached-1")  # fmt: skip


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> tuple[Path, dict[str, list[dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("frameworks")
    return folder, play_ranks("integrations.deepspeed.frameworks_job", folder, ACTS, timeout=1700)


@pytest.mark.parametrize("act", ["accelerate-0", "accelerate-2"])
def test_accelerates_engine_refuses_on_both_ranks_and_tells_the_loop(played, act):
    folder, seen = played
    for rank in seen[act]:
        assert rank["skipped"] == [BAD]
        assert rank["counted"] == 1
        assert rank["lr"] == seen[act][0]["lr"]
        assert math.isfinite(rank["losses"][-1])
    (veto,) = events(folder / act, "veto")
    assert (veto["step"], veto["bad_ranks"]) == (BAD, [1])


@pytest.mark.parametrize("act", ["trainer-2", "trainer-3"])
def test_the_trainers_engine_refuses_on_both_ranks_and_logs_it(played, act):
    folder, seen = played
    for rank in seen[act]:
        assert rank["skipped"] == rank["vetoes"] == 1
        assert rank["left"] == []
        assert all(map(math.isfinite, rank["losses"]))
    (veto,) = events(folder / act, "veto")
    assert (veto["step"], veto["bad_ranks"]) == (BAD, [1])


@pytest.mark.parametrize("framework", ["accelerate-2", "trainer-2"])
def test_without_faults_the_frameworks_engine_learns_the_same(played, framework):
    _, seen = played
    plain, guarded = seen[f"{framework}-plain-good"], seen[f"{framework}-good"]
    assert [each["losses"] for each in plain] == [each["losses"] for each in guarded]
    assert [each.get("weights") for each in plain] == [each.get("weights") for each in guarded]


def test_an_engine_is_found_and_guarded_from_outside(played):
    _, seen = played
    for rank in seen["attached-1"]:
        assert rank["said"] == ["hooked into DeepSpeedEngine, after deepspeed DeepSpeedEngine.__init__"]
        assert (rank["guards"], rank["skipped"], rank["left"], rank["run"]) == (1, 1, False, True)
        assert math.isfinite(rank["losses"][-1])
