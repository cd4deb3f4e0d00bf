"""A plan and ``fully_shard``, on two real ranks."""

import json

import pytest

from child_processes import environment, finish, torchrun


@pytest.mark.slow
def test_a_planned_model_trains_the_same_sharded_and_in_one_piece(tmp_path):
    pytest.importorskip("torchao")
    ended = finish([*torchrun(2), "-m", "precision.sharded_job", str(tmp_path)], env=environment())
    assert ended.returncode == 0, ended.stderr[-3000:]
    for rank in range(2):
        seen = json.loads((tmp_path / f"seen-{rank}.json").read_text())
        assert seen["plan-first"] == pytest.approx(seen["whole"], abs=2e-3)
        assert seen["shard-first"] == pytest.approx(seen["whole-fp32"], abs=2e-3)
        assert "apply the plan before fully_shard" in seen["refused"]
        assert seen["whole"][-1] < seen["whole"][0]
