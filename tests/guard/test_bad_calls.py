"""Wrong calls in the loop and states that do not fit: a clear error, and nothing has changed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from stayfinite import (
    Guard,
    GuardClosed,
    LossError,
    ModelError,
    OptimizerError,
    OrderError,
    Policy,
    PolicyError,
    StateError,
    StayfiniteError,
    UsageError,
)
from tiny_training import TinyNet, Training, all_finite, batch, both_gates, changed, everything


@both_gates
@pytest.mark.parametrize(
    ("loss", "said", "remedy"),
    [
        (lambda t: t.loss().detach(), "detached", "torch.no_grad()"),
        (lambda t: t.loss().item(), "must be a tensor, not float", ".item()"),
        (lambda t: t.model(batch(1)[0]), "must be a scalar, but has shape [32, 4]", "loss.mean()"),
        (lambda t: torch.zeros(0, requires_grad=True), "must be a scalar, but has shape [0]", "loss.mean()"),
        (lambda t: SimpleNamespace(loss=t.loss()), "must be a tensor, not SimpleNamespace", "the tensor that the loss"),
        (lambda t: {"loss": t.loss()}, "must be a tensor, not dict", "the tensor that the loss"),
    ],
    ids=["detached", "number", "matrix", "empty", "output object", "dict"],
)
def test_what_cannot_be_a_loss(loss, said, remedy, policy):
    training = Training("AdamW-fused", policy=policy)
    before = training.settled(2) | everything(training.model, training.optimizer)
    for call in (training.guard.step, training.guard.backward):
        with pytest.raises(LossError) as caught:
            call(loss(training))
        assert said in str(caught.value)
        assert remedy in caught.value.fix
    assert changed(before, training.state() | everything(training.model, training.optimizer)) == []
    training.settled(1)
    assert len(training.guard.decisions) == 3


def test_a_loss_of_another_model_is_refused_at_the_first_step():
    training, other = Training(), TinyNet()
    before = training.state()
    with pytest.raises(LossError, match="gave no gradient to any parameter of the optimizer") as caught:
        training.guard.step(other(batch(1)[0]).square().mean())
    assert "compute the loss from this model's output" in caught.value.fix
    assert changed(before, training.state()) == []
    training.good()
    assert not training.guard.decisions[-1].refused


def test_a_loss_of_shape_one_is_a_loss():
    training = Training()
    training.guard.step(training.loss().reshape(1))
    assert not training.guard.decisions[-1].refused


@both_gates
def test_step_without_backward(policy):
    training = Training("AdamW-fused", policy=policy)
    before = training.state()
    with pytest.raises(OrderError, match="guard.backward") as caught:
        training.guard.step()
    assert "guard.step(loss)" in caught.value.fix
    training.good()
    with pytest.raises(OrderError):
        training.guard.step()  # the gradients of the step before are gone
    assert len(training.guard.decisions) == 1
    assert changed(before, training.state()) != []


@pytest.mark.parametrize("scaled", [False, True], ids=["fp32", "scaler"])
@pytest.mark.parametrize("accumulated", [0, 1])
def test_an_exception_inside_backward_leaves_no_stale_gradient(accumulated, scaled):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise RuntimeError("out of memory, say")

    precision = "fp16-autocast" if scaled else "fp32"
    training, spared = Training(precision=precision), Training(precision=precision)
    for each in (training, spared):
        each.good(2)
    for _ in range(accumulated):
        training.guard.backward(training.loss(9))
    with pytest.raises(RuntimeError, match="out of memory, say"):
        # The second layer has its gradient before the first one's backward fails.
        training.guard.step(F.mse_loss(training.model.down(Fails.apply(training.model.up(batch(1)[0]))), batch(1)[1]))
    assert all(p.grad is None for p in training.model.parameters())
    with pytest.raises(OrderError):
        training.guard.step()
    for each in (training, spared):
        each.good(2)
    assert changed(spared.state(), training.state()) == []


@pytest.mark.parametrize("precision", ["fp32", "fp16-autocast"])
def test_an_exception_inside_the_optimizer_leaves_no_stale_gradient(precision):
    training, spared = Training(precision=precision), Training(precision=precision)
    for each in (training, spared):
        each.good(2)

    def out_of_memory(*_):
        raise RuntimeError("out of memory, say")

    hook = training.optimizer.register_step_pre_hook(out_of_memory)
    with pytest.raises(RuntimeError, match="out of memory, say"):
        training.guard.step(training.loss(9))
    hook.remove()
    assert all(p.grad is None for p in training.model.parameters())
    for each in (training, spared):
        each.good(2)
    assert changed(spared.state(), training.state()) == []


@both_gates
@pytest.mark.parametrize("rate", [float("nan"), float("inf")])
def test_a_learning_rate_that_is_not_finite_stops_before_it_reaches_a_weight(rate, policy):
    training = Training("AdamW-fused", policy=policy)
    training.settled(2)
    before = everything(training.model, training.optimizer)
    usual = training.optimizer.param_groups[0]["lr"]
    for group in training.optimizer.param_groups[-1:]:  # one group is enough
        group["lr"] = rate
    with pytest.raises(OptimizerError, match=f"learning rate is {rate} at step 3"):
        training.good()
    training.optimizer.param_groups[-1]["lr"] = usual
    assert changed(before, everything(training.model, training.optimizer)) == []
    training.settled(1)
    assert [decision.step for decision in training.guard.decisions] == [1, 2, 3]


def test_a_guard_that_only_watches_stops_for_no_learning_rate():
    training = Training("AdamW-fused", policy=Policy.watch())
    training.optimizer.param_groups[0]["lr"] = float("nan")
    training.good()
    assert not all_finite(training)


def test_backward_before_the_guards_own_is_told_as_what_it_is():
    training = Training("AdamW-fused")
    training.good(2)
    before = everything(training.model, training.optimizer)
    loss = training.loss()
    loss.backward()
    with pytest.raises(OrderError, match="already ran") as caught:
        training.guard.step(loss)
    assert "remove your own loss.backward()" in caught.value.fix
    assert "a second time" in str(caught.value.__cause__)
    assert changed(before, everything(training.model, training.optimizer)) == []


def test_parts_that_are_no_numbers_are_refused_before_anything_happens():
    training = Training()
    before = everything(training.model, training.optimizer)
    with pytest.raises(LossError, match="part"):
        training.guard.step(training.loss(), parts={"each": torch.ones(3)})
    assert changed(before, everything(training.model, training.optimizer)) == []


def test_forward_that_was_never_given():
    with pytest.raises(UsageError, match="needs a forward function") as caught:
        Training().guard.forward(batch(1))
    assert "forward=" in caught.value.fix


@both_gates
def test_a_guard_that_is_closed_is_used_up(policy):
    training = Training("AdamW-fused", policy=policy)
    training.good(2)
    state = training.guard.state_dict()
    training.guard.close()
    training.guard.close()
    before = training.state() | everything(training.model, training.optimizer)
    calls = (
        lambda: training.guard.step(training.loss()), lambda: training.guard.backward(training.loss()),
        lambda: training.guard.forward(1), training.guard.flush,
        lambda: training.guard.load_state_dict(state),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(GuardClosed, match="guard.close\\(\\) was called") as caught:
            call()
        assert "build a new Guard" in caught.value.fix
    assert changed(before, training.state() | everything(training.model, training.optimizer)) == []
    assert len([line for line in training.console.lines if "2 steps" in line]) == 1
    assert training.guard.state_dict() == state  # what it remembers can still be saved


def test_an_error_in_the_loop_is_not_covered_up_by_the_guard():
    training = Training()
    training.good()
    with pytest.raises(ZeroDivisionError), training.guard:
        raise ZeroDivisionError
    with pytest.raises(GuardClosed, match="ended with ZeroDivisionError"):
        training.good()


# -- saved states ----------------------------------------------------------------------------------------------------


@both_gates
@pytest.mark.parametrize(
    "spoil",
    [
        lambda state: None, lambda state: [], lambda state: {}, lambda state: state | {"version": 99},
        lambda state: state | {"step": "many"}, lambda state: state | {"memory": {}},
        lambda state: state | {"memory": None}, lambda state: state | {"memory": state["memory"] | {"version": 99}},
        lambda state: state | {"memory": state["memory"] | {"ladder": {"spikes": {}}}},
        lambda state: state | {"memory": state["memory"] | {"trends": {"unheard": "of"}}},
    ],
    ids=["None", "list", "empty", "version", "step", "no memory", "memory None", "memory version", "ladder", "trends"],
)  # fmt: skip
def test_a_state_that_does_not_fit_is_not_loaded(spoil, policy):
    training = Training("AdamW-fused", policy=policy)
    training.good(3)
    state = training.guard.state_dict()
    with pytest.raises(StateError) as caught:
        training.guard.load_state_dict(spoil(state))
    assert caught.value.fix
    assert training.guard.state_dict() == state
    training.good()


def test_every_error_can_be_caught_by_one_name_and_by_python_s_own():
    assert issubclass(UsageError, StayfiniteError | ValueError)
    assert issubclass(OrderError, RuntimeError)
    assert issubclass(StateError, ValueError)


def test_a_model_whose_gradients_megatron_keeps_is_refused_with_the_guard_that_it_needs():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    Guard(model, optimizer)
    model.weight.main_grad = torch.zeros(2, 2)
    with pytest.raises(ModelError, match=r"megatron_guard\(model, optimizer, scheduler\)"):
        Guard(model, optimizer)


def test_a_policy_that_is_none_is_refused_in_words():
    model = torch.nn.Linear(4, 1)
    with pytest.raises(PolicyError, match="expected a Policy, not str"):
        Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), policy="strict")


@pytest.mark.parametrize("step", ["5000", 5000.0, True, [5000]])
def test_a_phase_that_begins_at_no_whole_number_is_refused_with_the_remedy(step):
    training = Training()
    training.good(2)
    with pytest.raises(UsageError, match=r"guard\.expect\(step=.*expected a whole number") as caught:
        training.guard.expect("longer sequences", step=step)
    assert "step=5000" in caught.value.fix
    training.guard.expect("longer sequences", step=4)
    training.guard.expect("longer sequences", step=torch.tensor(5))
    training.good(4)
    assert sum("new phase: longer sequences" in line for line in training.console.lines) == 2


def test_wrong_arguments_are_errors_of_the_guard_and_name_the_one_that_was_meant():
    model = TinyNet()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(TypeError, match=r"^Guard\(\): missing a required argument: 'optimizer'$"):
        Guard(model)
    with pytest.raises(TypeError, match=r"^Guard\(\) has no argument 'shceduler'; did you mean 'scheduler'\?$"):
        Guard(model, optimizer, shceduler=None)
