"""Lightning's DeepSpeed strategy is guarded by the same callback; Fabric's is not, and says so."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from stage import play_ranks
from stayfinite.errors import UsageError
from stayfinite.integrations.lightning import fabric_guard
from tiny_trainers import events

pytest.importorskip("deepspeed", reason="make engines")

from integrations.deepspeed.frameworks_job import BAD

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ACTS = ("2", "3", "2-accumulated", "2-good", "2-plain-good")


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> tuple[Path, dict[str, list[dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("lightning")
    return folder, play_ranks("integrations.deepspeed.lightning_job", folder, ACTS, timeout=1700)


@pytest.mark.parametrize("act", ["2", "3", "2-accumulated"])
def test_a_bad_loss_of_one_rank_is_refused_on_both_and_the_schedule_stands_still(played, act):
    folder, seen = played
    for rank in seen[act]:
        assert rank["skipped"] == rank["vetoes"] == 1
        assert rank["left"] == []
        assert math.isfinite(rank["losses"][-1])
        # Before each batch; the step is the last of the batches that it is made of.
        every = 2 if "accumulated" in act else 1
        bad = math.ceil(BAD / every)
        taken = [(number // every) - (number // every >= bad) for number in range(12)]
        assert rank["rates"] == pytest.approx([0.01 * 0.9**count for count in taken])
    (veto,) = events(folder / act, "veto")
    assert (veto["step"], veto["bad_ranks"]) == (bad, [1])


def test_without_faults_lightnings_engine_learns_the_same(played):
    _, seen = played
    plain, guarded = seen["2-plain-good"], seen["2-good"]
    assert [(each["losses"], each["rates"]) for each in plain] == [(each["losses"], each["rates"]) for each in guarded]


def test_fabric_says_what_to_do_instead():
    from lightning.fabric import Fabric
    from lightning.fabric.strategies.deepspeed import DeepSpeedStrategy

    fabric = Fabric(accelerator="cpu", devices=1, strategy=DeepSpeedStrategy())
    with pytest.raises(UsageError, match="bypasses the DeepSpeed engine") as caught:
        fabric_guard(fabric, nn.Linear(1, 1), None)
    assert "deepspeed_guard" in caught.value.fix
