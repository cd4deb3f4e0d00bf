"""What the tracer sees, and what it does not have to look at."""

import math
import threading

import pytest
import torch
from torch import nn

from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.steps.trace import trace_step
from stayfinite.autopsy.tracing.events import Health
from stayfinite.autopsy.tracing.looking import finite_together, health_now, surely_finite
from stayfinite.autopsy.tracing.tracer import Tracer
from stayfinite.state.rng import capture_rng


def a_step(model, forward, batch):
    return Step(model=model, forward=forward, batch=batch, rng=capture_rng())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64])
def test_one_bad_number_is_seen_and_a_sum_that_overflows_is_not_taken_for_one(dtype):
    fine = torch.full((512,), 600.0).to(dtype)
    assert health_now(fine) is Health.FINITE, "the sum of these is beyond fp16"
    for bad, health in ((math.nan, Health.NAN), (math.inf, Health.INFINITE), (-math.inf, Health.INFINITE)):
        spoilt = fine.clone()
        spoilt[7] = bad
        assert health_now(spoilt) is health
        assert finite_together([fine, spoilt, fine]) == ([True, False, True] if not dtype.is_complex else [False] * 3)
    both = fine.clone()
    both[0], both[1] = math.inf, -math.inf
    assert health_now(both) is Health.INFINITE
    assert not surely_finite(both)


def test_numbers_of_eight_bits_can_be_looked_at():
    tensor = torch.ones(4).to(torch.float8_e5m2)
    assert health_now(tensor) is Health.FINITE
    tensor[1] = math.inf
    assert health_now(tensor) is Health.INFINITE


def test_backward_is_not_run_where_the_forward_pass_explains_a_bad_loss():
    model = nn.Linear(3, 1)
    entered = []
    model.weight.register_hook(entered.append)
    forward_fault = trace_step(a_step(model, lambda x: (model(x) * 0.0 - 1.0).log().sum(), torch.randn(4, 3)))
    assert forward_fault.origin.event.operator == "aten.log"
    assert entered == []
    backward_fault = trace_step(a_step(model, lambda x: (model(x) * 0.0).sum().sqrt(), torch.randn(4, 3)))
    assert backward_fault.origin.event.phase == "backward"
    assert backward_fault.bad_gradients == ["weight", "bias"]
    assert len(entered) == 1


def test_lines_are_those_of_the_call_inside_of_modules_as_well():
    class Inner(nn.Module):
        def forward(self, x):
            return x.log()  # line of the fault

    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(Inner()))
    trace = trace_step(a_step(model, lambda x: (model(x) - 50.0).log().sum(), torch.randn(4, 3)))
    at = trace.origin.event
    line = Inner.forward.__code__.co_firstlineno + 1
    assert (at.module, at.user_place.file, at.user_place.line) == ("1.0", __file__, line)
    after = [event for event in trace.tracer.events if event.operator == "aten.sub"][-1]
    assert after.user_place.function.endswith("<lambda>"), "back outside of the modules"


def test_a_write_into_a_part_leaves_the_rest_to_whoever_wrote_it():
    model = nn.Linear(3, 3)
    with Tracer(model) as tracer:
        rest = torch.full((4, 3), math.nan)
        rest[0] = 1.0
        total = rest.sum()
    written = tracer.events[tracer.writer_of(rest)]
    assert written.after is Health.NAN
    assert tracer.events[tracer.writer_of(total)].before == (Health.NAN,)


def test_tracing_leaves_nothing_behind():
    model = nn.Linear(3, 1)
    step = a_step(model, lambda x: model(x).sum(), torch.randn(4, 3))
    trace_step(step)
    assert not nn.modules.module._global_forward_hooks
    assert not nn.modules.module._global_forward_pre_hooks
    assert model.weight.grad is None


def test_another_thread_that_trains_another_model_is_not_taken_for_a_part_of_the_step():
    torch.manual_seed(0)
    ours, other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1)), nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    class Meanwhile(nn.Module):
        def forward(self, x):
            left = threading.Event()
            inside = threading.Event()

            def stay(*_):
                inside.set()
                left.wait(100)

            def train():
                with other[1].register_forward_pre_hook(stay):
                    other(torch.randn(2, 3))

            thread = threading.Thread(target=train)
            thread.start()
            assert inside.wait(100)
            result = x.log()
            left.set()
            thread.join()
            return result

    ours.insert(1, Meanwhile())
    trace = trace_step(a_step(ours, lambda x: (ours(x) - 50.0).sum(), -torch.ones(4, 3)))
    assert trace.origin.event.operator == "aten.log"
    assert trace.module == "1"
