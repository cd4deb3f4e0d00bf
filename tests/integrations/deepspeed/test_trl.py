"""trl on an engine: signals, the look at the reference and steering are those of a plain training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stage import play_ranks
from tiny_trainers import events
from tiny_trl import signals_of

pytest.importorskip("deepspeed", reason="make engines")
pytest.importorskip("trl")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ACTS = ("2-plain", "2-good", "2-itself", "2-runaway", "3-good", "3-itself")


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> tuple[Path, dict[str, list[dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("trl")
    return folder, play_ranks("integrations.deepspeed.trl_job", folder, ACTS, timeout=1700)


def test_a_healthy_run_that_may_be_steered_has_the_bits_of_a_plain_one(played):
    folder, found = played
    assert found["2-good"] == found["2-plain"]
    for act in ("2-good", "3-good"):
        assert events(folder / act, "sign") + events(folder / act, "veto") == []
        assert {"reward", "kl", "entropy", "equal_groups"} <= signals_of(folder / act)[-1].keys()


@pytest.mark.parametrize("act", ["2-itself", "3-itself"])
def test_a_reference_that_is_the_policy_is_told_of_in_the_first_step(played, act):
    told = [(each["cause"], each["step"]) for each in events(played[0] / act, "sign")]
    assert ("reference-moves", 1) in told


def test_a_policy_that_runs_away_is_tied_closer_to_its_reference(played):
    folder, found = played
    assert events(folder / "2-runaway", "kl-raised")[0]["reason"] == "kl-runaway"
    assert [each["beta"] for each in found["2-runaway"]] == [0.001, 0.001]  # as it was, when training has ended
