"""A guard that is asked: the framework clips, steps and moves its schedule, and may not where a step is bad."""

import math

import pytest
import torch
from torch import nn

from stayfinite import Policy
from stayfinite.core.decision import Code
from stayfinite.errors import OptimizerError, OrderError, TrainingDiverged, UsageError
from stayfinite.guard.driven import DrivenGuard
from tiny_training import Lines


def build(policy=None, *, clip=1.0, dtype=torch.float32, **settings):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4)).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 50)
    guard = DrivenGuard(
        model, optimizer, schedule, max_norm=clip, policy=policy or Policy(), console=Lines(),
        forward=lambda batch: model(batch).square().mean(), **settings,
    )  # fmt: skip
    return model, optimizer, schedule, guard


def drive(model, optimizer, schedule, guard, steps=30, bad=()):
    """What a framework does."""
    torch.manual_seed(1)
    for step in range(1, steps + 1):
        batch = torch.randn(16, 8, dtype=next(model.parameters()).dtype)
        if step in bad:
            batch[3, 2] = math.nan
        with guard.passing(batch) as passed:
            loss = model(batch).square().mean()
            passed(loss)
        loss.backward()
        guard.gather(loss)
        if not guard.judge().refused:
            assert guard.clips_alike(model.parameters())
            guard.clip(1.0)
            with guard.stepping():
                optimizer.step()
            schedule.step()
        optimizer.zero_grad()
        guard.settle()


def plain(model, optimizer, schedule, steps=30):
    torch.manual_seed(1)
    for _ in range(steps):
        model(torch.randn(16, 8)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


def test_a_driven_training_ends_with_the_bits_of_a_plain_one():
    model, optimizer, schedule, guard = build()
    drive(model, optimizer, schedule, guard)
    other, *rest, unused = build()
    plain(other, *rest)
    unused.close()
    assert all(
        torch.equal(one, two) for one, two in zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    )


def test_a_refused_step_leaves_weights_buffers_and_schedule(tmp_path):
    model, optimizer, schedule, guard = build(run_dir=tmp_path)
    drive(model, optimizer, schedule, guard, steps=6)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    at = schedule.last_epoch
    drive(model, optimizer, schedule, guard, steps=1, bad=(1,))
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in before.items())
    assert schedule.last_epoch == at
    assert guard.decisions[-1].refused
    assert guard.causes == {"bad-data-row": 7}
    guard.close()


def test_asked_twice_the_answer_is_the_same_and_counts_once():
    model, _, _, guard = build()
    loss = model(torch.randn(16, 8)).square().mean()
    loss.backward()
    assert not guard.gathered
    guard.gather(loss)
    assert guard.gathered
    assert guard.judge() is guard.judge()
    assert guard.judged
    guard.settle()
    assert not guard.judged
    assert len(guard.decisions) == 1
    guard.settle()  # nothing to settle
    assert len(guard.decisions) == 1


def test_an_abandoned_step_is_forgotten():
    model, optimizer, schedule, guard = build()
    guard.gather(torch.tensor(math.nan))
    guard.abandon()
    with pytest.raises(OrderError, match="gather"):
        guard.judge()
    drive(model, optimizer, schedule, guard, steps=2)
    assert [decision.step for decision in guard.decisions] == [1, 2]


def test_a_forward_pass_that_fails_is_no_part_of_the_step():
    *_, guard = build()
    with pytest.raises(ValueError, match="no"), guard.passing(torch.zeros(2, 8)):
        raise ValueError("no")
    assert not guard._passes._now


def test_the_cut_holds_round_the_frameworks_step_alone():
    policy = Policy(max_vetoes_in_a_row=1, patience=5, autopsy_seconds=0)
    model, optimizer, schedule, guard = build(policy)
    drive(model, optimizer, schedule, guard, steps=5, bad=(4, 5))
    assert guard.rate_factor == pytest.approx(0.1)
    outside = optimizer.param_groups[0]["lr"]
    with guard.stepping():
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * outside)
    assert optimizer.param_groups[0]["lr"] == outside


def test_it_stops_where_nothing_helps():
    policy = Policy(max_vetoes_in_a_row=1, patience=0, max_cuts=0, snapshots=False, autopsy_seconds=0)
    with pytest.raises(TrainingDiverged, match="step 5"):
        drive(*build(policy), bad=(4, 5))


def test_a_partial_or_half_precision_set_of_gradients_is_left_to_the_frameworks_own_clipping():
    model, _, _, guard = build()
    model(torch.randn(16, 8)).square().mean().backward()
    assert guard.clips_alike(model.parameters())
    assert not guard.clips_alike(list(model.parameters())[:2])
    half, _, _, other = build(dtype=torch.bfloat16)
    half(torch.randn(16, 8, dtype=torch.bfloat16)).float().square().mean().backward()
    assert not other.clips_alike(half.parameters())


def test_it_counts_on_from_where_it_is_told(tmp_path):
    model, optimizer, schedule, guard = build(run_dir=tmp_path)
    guard.start_at(40)
    drive(model, optimizer, schedule, guard, steps=2)
    assert [decision.step for decision in guard.decisions] == [41, 42]
    assert not (tmp_path / "checkpoints").exists()


def test_a_plain_loops_calls_and_a_gate_on_the_device_are_refused():
    *_, guard = build()
    with pytest.raises(UsageError, match="framework"):
        guard.step()
    with pytest.raises(UsageError, match="framework"):
        guard.backward(torch.zeros(()))
    with pytest.raises(OptimizerError, match="asks at once"):
        build(Policy(gate="device"))


def test_an_engine_that_keeps_its_gradients_tells_their_norm():
    model, _, _, guard = build()
    asked = []
    for step in range(1, 41):
        loss = model(torch.randn(16, 8)).square().mean().detach()
        guard.gather(loss)  # no parameter ever has a gradient
        asked.append(guard.judge(norm=torch.tensor(math.nan if step == 40 else 1.0 + 0.01 * step)))
        guard.settle()
    assert [decision.refused for decision in asked] == [False] * 39 + [True]
    assert asked[38].signals.grad_norm == pytest.approx(1.39)
    assert not asked[38].signals.silent


def test_an_engine_that_scales_by_itself_may_look_for_its_scale():
    model, _, _, guard = build()
    for scale in (65536.0, 32768.0, 16384.0):
        guard.gather(model(torch.randn(16, 8)).square().mean().detach())
        decision = guard.judge(norm=torch.tensor(math.inf if scale > 20000 else 1.0), scale=scale)
        guard.settle()
        assert (decision.code is Code.SCALE_SEARCH) == (scale > 20000)
        assert decision.signals.loss_scale == scale


def test_of_gradients_that_an_engine_keeps_no_more_is_said_than_is_known():
    model, _, _, guard = build()
    guard.gather(model(torch.randn(16, 8)).square().mean().detach())
    reason = guard.judge(norm=torch.tensor(math.inf)).reason
    assert "gradients are NaN or inf" in reason
    assert "squares overflow" not in reason
