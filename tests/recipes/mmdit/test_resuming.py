from __future__ import annotations

import pytest

from mmdit_runs import run, steps_of, write_data
from stayfinite.errors import UsageError


def test_a_run_that_is_done_is_only_judged_again(tmp_path):
    data = write_data(tmp_path / "pairs")
    settings = {"steps": 2, "eval_steps": 2, "checkpoint_steps": 2}
    first = run(data, tmp_path / "run", **settings)
    again = run(data, tmp_path / "run", **settings)
    assert len(steps_of(tmp_path / "run")) == 2
    assert again.scores.to_json() == first.scores.to_json()


def test_a_run_is_not_gone_on_with_in_another_mode(tmp_path):
    data = write_data(tmp_path / "pairs")
    run(data, tmp_path / "run", steps=2, eval_steps=2, checkpoint_steps=2)
    with pytest.raises(UsageError, match="mode 'random' -> 'l2t'"):
        run(data, tmp_path / "run", steps=4, eval_steps=2, checkpoint_steps=2, mode="l2t")
