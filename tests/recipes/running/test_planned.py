"""``--precision plan`` and ``--precision FILE``: the plan is applied, kept with the run, and applied again."""

import pytest

from precision import small_models as small
from precision.test_applying import plan_of
from stayfinite.errors import UsageError
from stayfinite.precision.applying import applied_to
from stayfinite.recipes.running.place import before_plan, is_planned, plan_again, use_plan


def test_the_file_of_a_plan_is_applied_and_kept_with_the_run(tmp_path):
    model, optimizer, ids, forward = small.training(small.healthy())
    file = plan_of(model, blocks__1__down="fp32").save(tmp_path / "given.json")
    said = []
    run = tmp_path / "run"
    run.mkdir()
    assert before_plan(str(file)) == "bf16"
    assert use_plan(str(file), model, optimizer, ids, forward, directory=run, say=said.append) == "bf16"
    assert said == ["computing with a precision plan: bf16 autocast; blocks.1.down in fp32: gradient cosine 1.0000"]
    again = small.healthy()
    plan_again(again, run)
    assert applied_to(again).assignment == applied_to(model).assignment
    plan_again(small.healthy(), tmp_path)


def test_what_cannot_be_planned_is_said(tmp_path):
    model, optimizer, ids, forward = small.training(small.healthy())
    with pytest.raises(UsageError, match="--precision fp7: unknown"):
        is_planned("fp7")
    with pytest.raises(UsageError, match="several ranks"):
        use_plan("plan", model, optimizer, ids, forward, directory=tmp_path, say=print, several=True)
    with pytest.raises(UsageError, match="no batch before the first step"):
        use_plan("plan", model, optimizer, None, forward, directory=tmp_path, say=print)
    assert [is_planned(asked) for asked in ("auto", "bf16", "plan", "a.json")] == [False, False, True, True]
