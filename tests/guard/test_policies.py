"""Protect, watch, strict; and the budgets that end a training which cannot be saved."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from torch.nn import functional as F

from quick_ones import diagonal
from stayfinite import BadStep, Guard, GuardClosed, Policy, TrainingDiverged, TrainingStopped
from tiny_training import (
    FAULTS,
    NOT_FINITE,
    Lines,
    TinyNet,
    Training,
    all_finite,
    batch,
    both_gates,
    changed,
    fingerprint,
)

# -- watch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "optimizer", "precision"),
    diagonal(FAULTS, ["AdamW-fused", "SGD-foreach", "user-written"], ["fp32", "fp16-autocast"]),
)
def test_watching_never_interferes(optimizer, fault, precision):
    mine, plain = (Training(optimizer, precision, policy=Policy.watch()) for _ in range(2))
    for each in [None, None, None, fault, None, None]:
        mine.bad(each)
        plain.plain(each)
    mine.guard.flush()
    assert changed(plain.state(), mine.state()) == []
    if plain.scaler is not None:
        assert mine.scaler.state_dict() == plain.scaler.state_dict()
    assert not any(decision.refused for decision in mine.guard.decisions)
    assert mine.guard.decisions[3].code not in ("finite", "large-gradient")


def test_watching_reports_what_it_sees():
    training = Training(policy=Policy.watch())
    training.good(3)
    training.bad("nan-loss")
    training.good(30)  # every later step is NaN: far beyond any budget, and still not stopped
    training.guard.close()
    assert [d.code for d in training.guard.decisions][3] == "loss-not-finite"
    assert training.guard.decisions[3].reason.endswith(" (taken; monitoring only)")
    assert not all_finite(training)
    (line,) = [line for line in training.console.lines if "step 4" in line]
    assert line.startswith("stayfinite: step 4: the loss is NaN; ")
    assert line.endswith(" (taken; monitoring only)")
    assert line.count("taken") == 1
    assert "31 bad ones taken while monitoring" in training.console.lines[-1]


def test_watching_says_of_an_unusual_gradient_that_it_would_be_limited_and_was_taken():
    training = Training("SGD-fused", policy=Policy.watch(), max_norm=None)
    training.good(24)
    training.guard.step(training.loss() * 1e4)
    training.guard.flush()
    last = training.guard.decisions[-1]
    assert (last.action, last.code, last.limit) == ("accept", "unusual-gradient", None)
    (line,) = [line for line in training.console.lines if "step 25" in line]
    assert "; would be limited to " in line
    assert line.endswith(" (taken; monitoring only)")
    assert line.count("taken") == 1


# -- strict ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
def test_strict_stops_at_the_first_bad_step_with_the_weights_untouched(fault):
    training = Training(policy=Policy.strict() if fault in NOT_FINITE else Policy.strict(spikes="refuse"))
    training.good(4)
    before = training.state()
    with pytest.raises(BadStep) as caught:
        training.bad(fault)
    assert (caught.value.step, caught.value.code) == (5, "strict")
    assert "step 5" in str(caught.value)
    assert "loss" in str(caught.value)
    assert changed(before, training.state()) == []
    assert all(p.grad is None for p in training.model.parameters())


def test_strict_names_step_loss_parameters_and_batch():
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters())
    guard = Guard(
        model, optimizer, policy=Policy.strict(), console=Lines(),
        forward=lambda pair: F.mse_loss(model(pair["x"]), pair["y"]),
    )  # fmt: skip
    for number in (1, 2):
        x, y = batch(number)
        guard.step(guard.forward({"x": x, "y": y}))
    y[0, 0] = math.nan
    with pytest.raises(BadStep) as caught:
        guard.step(guard.forward({"x": x, "y": y}))
    text = str(caught.value)
    assert "step 3, batch 3 (x float32[32, 8], y float32[32, 4])" in text
    assert "loss is nan" in text
    assert "all 6 gradients are NaN or inf" in text
    assert "fix: " in text


def test_strict_lets_a_scaler_look_for_its_scale():
    training = Training("AdamW-plain", "fp16-autocast", init_scale=2.0**30, policy=Policy.strict())
    training.good(25)
    assert training.guard.decisions[0].code == "scale-search"
    assert not all(decision.refused for decision in training.guard.decisions)


def test_strict_stops_only_the_step_that_is_bad_and_the_guard_is_used_up():
    training = Training(policy=Policy.strict())
    training.good()
    with pytest.raises(BadStep):
        training.bad("last-parameter")
    before = training.state()
    for call in (training.good, training.guard.flush):
        with pytest.raises(GuardClosed, match="training stopped at step 2"):
            call()
    training.guard.close()
    assert changed(before, training.state()) == []


# -- budgets ---------------------------------------------------------------------------------------------------------


@both_gates
def test_too_many_vetoes_in_a_row_end_the_training_and_say_what_was_tried(policy):
    policy = Policy.refuse_spikes(gate=policy.gate, max_vetoes_in_a_row=3, max_cuts=0)
    training = Training("AdamW-fused", policy=policy)
    before = training.settled(3)
    with pytest.raises(TrainingDiverged) as caught:
        training.bad_ones(["nan-loss", "inf-element", "spike", "nan-loss"])
    error = caught.value
    assert (error.step, error.code) == (7, "vetoes-in-a-row")
    assert "4 steps in a row were refused" in str(error)
    for reason in ("2 with a NaN loss", "1 with NaN or inf gradients", "1 with a loss spike"):
        assert reason in str(error)
    assert "\n  Weights unchanged by the refused steps.\n  fix: " in str(error)
    assert isinstance(error, TrainingStopped)
    assert not isinstance(error, BadStep)
    assert changed(before, training.state()) == []


def test_a_stop_and_the_summary_count_reasons_and_not_rungs(tmp_path):
    training = Training(policy=Policy(snapshots=False), run_dir=tmp_path)
    training.good(3)
    with pytest.raises(TrainingDiverged) as caught:
        training.bad_ones(["nan-loss"] * 30)
    assert (
        "27 steps in a row were refused, all with a NaN loss; cutting the learning rate after 21 did not help"
    ) in str(caught.value)
    assert "27 refused (27 loss-not-finite)" in training.console.lines[-1]


@both_gates
def test_too_many_vetoes_in_total_end_the_training(policy):
    training = Training("AdamW-fused", policy=Policy(gate=policy.gate, max_vetoes=2))
    with pytest.raises(TrainingDiverged) as caught:
        training.bad_ones([None, None, "nan-loss"] * 5)
    assert (caught.value.step, caught.value.code) == (9, "vetoes-in-total")
    assert "3 steps in all were refused, all with a NaN or infinite loss" in str(caught.value)


@both_gates
def test_the_search_for_a_scale_is_not_held_against_the_budget(policy):
    policy = Policy(gate=policy.gate, max_vetoes_in_a_row=1, max_vetoes=1)
    training = Training("AdamW-fused", "fp16-autocast", init_scale=2.0**32, policy=policy)
    training.settled(30)
    codes = [d.code for d in training.guard.decisions]
    assert codes.count("scale-search") > 5
    assert {"finite", "large-gradient"} & set(codes)


@both_gates
def test_a_collapsing_scale_ends_the_training(policy):
    policy = Policy(gate=policy.gate, max_vetoes_in_a_row=3, scale_search=6, max_cuts=0)
    training = Training("AdamW-fused", "fp16-autocast", policy=policy)
    training.good(2)
    with pytest.raises(TrainingDiverged, match="4 steps in a row were refused, all with NaN or inf gradients"):
        training.bad_ones(["inf-element"] * 20)
    codes = [d.code for d in training.guard.decisions if d.refused]
    assert codes == ["scale-search"] * 6 + ["gradient-not-finite"] * 3 + ["vetoes-in-a-row"]


@both_gates
def test_no_count_of_failures_makes_a_nan_acceptable(policy):
    policy = Policy(gate=policy.gate, max_vetoes_in_a_row=200, max_vetoes=None, level_change_after=2)
    training = Training("SGD-fused", policy=policy)
    before = training.settled(2)
    for _ in range(60):
        training.bad("nan-element")
    training.guard.flush()
    assert changed(before, training.state()) == []


@both_gates
def test_a_level_that_is_really_new_is_accepted_after_a_bounded_number_of_steps(policy):
    training = Training("AdamW-fused", policy=Policy.refuse_spikes(gate=policy.gate, level_change_after=3))
    training.good(20)
    for _ in range(5):
        training.bad("spike")
    training.guard.flush()
    assert [d.code for d in training.guard.decisions[20:]][:4] == ["loss-spike"] * 3 + ["new-level"]
    assert not training.guard.decisions[24].refused


# -- single promises -------------------------------------------------------------------------------------------------


@both_gates
@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_refused_though_its_gradients_are_zero(policy, loss):
    training = Training("AdamW-fused", policy=policy)
    before = training.settled(3)
    training.guard.step(training.loss() * 0 + loss)
    training.guard.flush()
    decision = training.guard.decisions[-1]
    assert (decision.action, decision.code, decision.signals.grad_norm) == ("veto", "loss-not-finite", 0.0)
    assert "gradients are finite" in decision.reason
    assert changed(before, training.state()) == []


@both_gates
@pytest.mark.parametrize("optimizer", ["AdamW-fused", "SGD-fused"])
def test_weight_decay_does_not_shrink_the_weights_at_a_veto(policy, optimizer):
    training = Training(optimizer, policy=policy)
    for group in training.optimizer.param_groups:
        group["weight_decay"] = 10.0
    before = fingerprint(model=training.model.state_dict())
    training.bad("nan-loss")
    training.guard.flush()
    assert changed(before, fingerprint(model=training.model.state_dict())) == []


@both_gates
def test_finite_gradients_whose_norm_is_not_are_refused(policy):
    training = Training("AdamW-fused", policy=policy)
    training.good(2)
    # The square of each is a float32, the sum of the squares is not.
    hooks = [p.register_hook(_one_large) for p in (training.model.up.bias, training.model.down.bias)]
    training.good()
    for hook in hooks:
        hook.remove()
    training.guard.flush()
    decision = training.guard.decisions[-1]
    assert decision.refused
    assert "grad norm is inf: it overflows although each gradient is finite" in decision.reason
    assert all_finite(training)


def _one_large(grad):
    large = torch.zeros_like(grad)
    large.view(-1)[0] = 1.5e19
    return large


@both_gates
def test_the_first_fault_of_a_run_is_explained_by_the_parameter_it_sits_in(policy):
    training = Training("AdamW-fused", policy=policy)
    training.bad("last-parameter")
    training.guard.flush()
    decision = training.guard.decisions[0]
    assert decision.signals.bad_parameters == ("down.bias",)
    assert decision.reason.endswith("1 of 6 gradients are NaN or inf, first down.bias")


def test_the_description_says_where_the_step_is_judged_and_what_it_costs():
    assert "no host sync on the CPU" in Training().guard.describe()
    device = Training("AdamW-fused", policy=Policy(gate="device")).guard.describe()
    assert "no host sync" in device
    assert "TinyNet: 6 tensors, 484 parameters, float32" in device
    assert "monitor only" in Training(policy=Policy.watch()).guard.describe()
    assert "fp16 scaler" in Training(precision="fp16-autocast").guard.describe()


@pytest.mark.parametrize(
    ("policy", "name", "words"),
    [
        (Policy(), "default", "gradients above 4x the median norm are limited; the next 64 steps are on probation"),
        (Policy.refuse_spikes(), "refuse_spikes", "finite spikes beyond 6 sigma are refused too"),
        (Policy.only_nonfinite(), "only_nonfinite", "NaN and inf are refused; finite steps are taken as they are"),
        (
            Policy.watch(),
            "watch",
            "monitor only: NaN, inf and gradients above 4x the median norm are reported; every step is taken\n",
        ),
        (Policy.watch(spikes="ignore"), "watch", "monitor only: NaN and inf are reported; every step is taken\n"),
        (Policy.watch(spikes="refuse"), "watch", "NaN, inf and finite spikes beyond 6 sigma are reported; every step"),
        (Policy.strict(), "strict", "stops at the first refused step"),
        (Policy(), "default", "after 21 refused steps in a row: cut the rate, roll back, stop; limit 257 in total"),
        (Policy(max_vetoes=None), "default", "after 21 refused steps in a row: cut the rate, roll back, stop\n"),
    ],
)
def test_the_description_names_the_policy_and_says_what_it_does(policy, name, words):
    said = Training(policy=policy).guard.describe()
    assert f"policy: {name}; " in said
    assert words in said


def test_what_ends_a_training_can_be_sent_to_another_process():
    error = TrainingDiverged("it went wrong", step=7, code="vetoes-in-a-row", fix="lower the learning rate")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.step, copy.code, str(copy)) == (error.step, error.code, str(error))
