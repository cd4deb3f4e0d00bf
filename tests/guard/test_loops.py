"""Loops as people write them: the plain loop bit for bit, accumulation, groups, several losses."""

from __future__ import annotations

import pytest
import torch

from tiny_training import TinyNet, Training, both_gates, changed, everything, falling, fingerprint, guarded, loss_of


@both_gates
@pytest.mark.parametrize("precision", ["fp32", "bf16-autocast", "fp16-autocast"])
@pytest.mark.parametrize("optimizer", ["AdamW-fused", "SGD-fused", "Adagrad-fused"])
def test_a_healthy_guarded_loop_is_the_plain_loop_bit_for_bit(optimizer, precision, policy):
    mine, plain = (Training(optimizer, precision, policy=policy, max_norm=0.5) for _ in range(2))
    for _ in range(12):
        mine.good()
        plain.plain(max_norm=0.5)
    mine.guard.flush()
    assert changed(plain.state(), mine.state()) == []
    assert {"clip"} <= {d.action for d in mine.guard.decisions} <= {"clip", "accept"}


@pytest.mark.parametrize(
    "optimizer",
    ["Adam-foreach", "RMSprop-plain", "NAdam-foreach", "Adafactor-plain", "AdamW8bit", "user-written"],
)
@pytest.mark.parametrize("max_norm", [0.5, None])
def test_any_optimizer_is_left_to_its_own_arithmetic(optimizer, max_norm):
    mine, plain = (Training(optimizer, max_norm=max_norm) for _ in range(2))
    for _ in range(8):
        mine.good()
        plain.plain(max_norm=max_norm)
    assert changed(plain.state(), mine.state()) == []


@both_gates
@pytest.mark.parametrize("scaled", [False, True], ids=["fp32", "scaler"])
def test_accumulation_equals_the_loop_done_by_hand(policy, scaled):
    mine, plain = (Training("AdamW-fused", "fp16-autocast" if scaled else "fp32", policy=policy) for _ in range(2))
    for number in range(0, 18, 3):
        for k in range(3):
            mine.guard.backward(mine.loss(number + k) / 3)
            scale = plain.scaler.scale if scaled else (lambda loss: loss)
            scale(plain.loss(number + k) / 3).backward()
        mine.guard.step()
        if scaled:
            plain.scaler.unscale_(plain.optimizer)
        torch.nn.utils.clip_grad_norm_(plain.model.parameters(), 1.0)
        if scaled:
            plain.scaler.step(plain.optimizer)
            plain.scaler.update()
        else:
            plain.optimizer.step()
        plain.scheduler.step()
        plain.optimizer.zero_grad()
    mine.guard.flush()
    assert changed(plain.state(), mine.state()) == []
    assert len(mine.guard.decisions) == 6
    assert mine.guard.decisions[-1].signals.batch == 18


@both_gates
def test_one_bad_batch_among_the_accumulated_ones_refuses_them_all(policy):
    training = Training("AdamW-fused", policy=policy)
    before = training.settled(3)
    for factor in (1.0, float("nan"), 1.0):
        training.guard.backward(training.loss() * factor / 3)
    training.guard.step()
    training.guard.flush()
    assert training.guard.decisions[-1].refused
    assert changed(before, training.state()) == []
    training.settled(1)
    assert not training.guard.decisions[-1].refused


def test_the_loss_of_an_accumulated_step_is_that_of_the_big_batch():
    training = Training(max_norm=None)
    losses = []
    for number in (1, 2):
        losses.append(training.loss(number))
        training.guard.backward(losses[-1] / 2)
    training.guard.step()
    assert training.guard.decisions[-1].signals.loss == pytest.approx(sum(loss.item() for loss in losses) / 2)


@both_gates
def test_groups_with_settings_of_their_own_stand_still_together(policy):
    torch.manual_seed(0)
    model = TinyNet()
    optimizer = torch.optim.AdamW(
        [
            {"params": [*model.up.parameters()], "lr": 1e-2, "weight_decay": 0.5},
            {"params": [*model.norm.parameters(), *model.down.parameters()], "lr": 1e-3, "betas": (0.5, 0.9)},
        ],
        fused=True,
    )  # fmt: skip
    scheduler = falling(optimizer)
    guard = guarded(model, optimizer, scheduler, policy=policy)
    for number in range(3):
        guard.step(loss_of(model, number))
    guard.flush()
    before = everything(model, optimizer) | fingerprint(schedule=scheduler.state_dict())
    guard.step(loss_of(model, 4) * float("inf"))
    guard.flush()
    assert changed(before, everything(model, optimizer) | fingerprint(schedule=scheduler.state_dict())) == []
    assert guard.decisions[0].signals.lr == 1e-2


@both_gates
def test_the_guilty_one_of_several_losses_is_named(policy):
    training = Training("AdamW-fused", policy=policy)
    training.good(2)
    fit = training.loss()
    penalty = training.model.up.weight.square().sum() * float("inf")
    training.guard.backward(fit, parts={"fit": fit}, retain_graph=True)
    training.guard.backward(penalty, parts={"penalty": penalty, "constant": 0.5})
    training.guard.step()
    training.guard.flush()
    decision = training.guard.decisions[-1]
    assert decision.refused
    assert "its part penalty inf" in decision.reason
    assert "fit" not in decision.reason
    assert decision.signals.parts == {"fit": fit.item(), "penalty": float("inf"), "constant": 0.5}


def test_two_losses_in_one_step_give_the_sum_of_their_gradients():
    mine, plain = Training(), Training()
    for number in range(4):
        mine.guard.backward(mine.loss(number))
        mine.guard.step(0.1 * mine.model.up.weight.square().sum())
        (plain.loss(number)).backward()
        (0.1 * plain.model.up.weight.square().sum()).backward()
        torch.nn.utils.clip_grad_norm_(plain.model.parameters(), 1.0)
        plain.optimizer.step()
        plain.scheduler.step()
        plain.optimizer.zero_grad()
    assert changed(plain.state(), mine.state()) == []


@pytest.mark.parametrize(
    ("left", "words"), [(1, "1 backward without a step was dropped"), (3, "3 backwards without a step were dropped")]
)
@pytest.mark.parametrize("steps", [0, 2])
def test_a_backward_that_no_step_takes_is_named_at_the_end(steps, left, words):
    training = Training()
    training.good(steps)
    for _ in range(left):
        training.guard.backward(training.loss() / left)
    training.guard.close()
    assert words in training.console.lines[-1]
    assert (steps == 0) == (training.console.lines == [f"stayfinite: {words}"])


def test_accumulation_that_ends_with_a_step_leaves_nothing_to_name():
    training = Training()
    for _ in range(3):
        training.guard.backward(training.loss() / 2)
        training.guard.backward(training.loss() / 2)
        training.guard.step()
    training.bad()
    training.guard.close()
    assert "dropped" not in training.console.lines[-1]


def test_a_guard_that_was_never_used_says_nothing():
    training = Training()
    training.guard.close()
    assert not training.console.lines
