import dataclasses

import pytest
import torch
from torch import nn

from stayfinite.core.signals import Signals
from stayfinite.core.spikes import Verdict
from stayfinite.measure.gradients import measure_gradients
from stayfinite.measure.reading import Reading, pack, unpack
from stayfinite.measure.roster import take_roster

NAN, INF = float("nan"), float("inf")


def roster_with(*gradients, dtypes=None):
    """A roster of parameters p0, p1, … with these gradients; None for none."""
    dtypes = dtypes or [torch.float32] * len(gradients)
    model = nn.ParameterDict(
        {f"p{i}": nn.Parameter(torch.zeros(1, dtype=dtype)) for i, dtype in enumerate(dtypes)}
    )  # fmt: skip
    for (parameter, grad), dtype in zip(zip(model.values(), gradients, strict=True), dtypes, strict=True):
        parameter.grad = None if grad is None else torch.tensor([grad], dtype=dtype)
    return take_roster(model, torch.optim.SGD(model.parameters(), lr=0.1))


def reading_of(roster, **more):
    plain = Reading(
        step=7, loss=torch.tensor(2.5), gradients=measure_gradients(roster), lr=1e-3, loss_scale=None, parts={},
        batch=3, batch_shape="float32[8]",
    )  # fmt: skip
    return dataclasses.replace(plain, **more)


def there_and_back(roster, verdict=None, **more):
    reading = reading_of(roster, **more)
    numbers = [] if verdict is None else [reading.loss.item(), reading.gradients.total.item(), float(verdict), INF]
    judged = None if verdict is None else torch.tensor(numbers, dtype=torch.float64)
    envelope, values = pack(reading, judged)
    return unpack(envelope, values.tolist(), roster)


def test_a_plain_reading_arrives_as_it_was_sent():
    opened = there_and_back(roster_with(3.0, 4.0))
    assert opened.signals == Signals(
        step=7, loss=2.5, grad_norm=5.0, lr=1e-3, loss_scale=None, parts={}, batch=3, batch_shape="float32[8]",
        bad_parameters=(), bad_count=0, silent=0, parameters=2,
    )  # fmt: skip
    assert opened.verdict is Verdict.FINE
    assert opened.norms == {"p0": 3.0, "p1": 4.0}


def test_parts_scale_learning_rate_and_verdict_do_not_get_mixed_up():
    opened = there_and_back(
        roster_with(3.0, None, 4.0),
        verdict=Verdict.LOSS_SPIKE | Verdict.NEW_LEVEL,
        parts={"kl": torch.tensor(0.25), "ce": torch.tensor([[0.5]])},
        loss_scale=torch.tensor(1024.0),
        lr=torch.tensor(0.125),
    )
    assert opened.signals.parts == {"kl": 0.25, "ce": 0.5}
    assert (opened.signals.loss_scale, opened.signals.lr) == (1024.0, 0.125)
    assert opened.verdict is Verdict.LOSS_SPIKE | Verdict.NEW_LEVEL
    assert opened.norms == {"p0": 3.0, "p2": 4.0}


@pytest.mark.parametrize("scaled", [True, False])
def test_a_learning_rate_that_lives_on_another_device_travels_behind_the_scale(scaled):
    roster = roster_with(3.0, 4.0)
    judged = torch.tensor([2.5, 5.0, float(Verdict.GRADIENT_SPIKE), 1.5], dtype=torch.float64)
    envelope, values = pack(reading_of(roster, loss_scale=torch.tensor(64.0) if scaled else None), judged)
    envelope = dataclasses.replace(envelope, lr=None, lr_inside=True)
    values = values.tolist()
    opened = unpack(envelope, [*values[:-2], 0.125, *values[-2:]], roster)
    assert opened.signals.lr == 0.125
    assert opened.signals.loss_scale == (64.0 if scaled else None)
    assert (opened.verdict, opened.limit) == (Verdict.GRADIENT_SPIKE, 1.5)


def test_a_loss_arrives_with_all_its_bits():
    loss = torch.tensor(1 / 3, dtype=torch.float64)
    assert there_and_back(roster_with(1.0), loss=loss).signals.loss == 1 / 3


@pytest.mark.parametrize("loss", [NAN, INF, -INF])
def test_a_loss_that_is_not_finite_arrives_as_it_is(loss):
    assert str(there_and_back(roster_with(1.0), loss=torch.tensor(loss)).signals.loss) == str(loss)


@pytest.mark.parametrize(
    ("gradients", "silent"),
    [
        ((1.0, 1.0, 1.0), 0b000),
        ((None, 1.0, 1.0), 0b001),
        ((1.0, 0.0, 1.0), 0b010),
        ((0.0, 1.0, None), 0b101),
        ((None, None, None), 0b111),
        ((NAN, 0.0, INF), 0b010),
    ],
)
def test_a_parameter_is_silent_without_a_gradient_or_with_one_of_exactly_zero(gradients, silent):
    assert there_and_back(roster_with(*gradients)).signals.silent == silent


def test_silent_parameters_are_found_behind_others_of_another_dtype():
    dtypes = [torch.float32, torch.float64, torch.float32, torch.float64]
    assert there_and_back(roster_with(1.0, 0.0, 0.0, 1.0, dtypes=dtypes)).signals.silent == 0b0110


def test_the_first_bad_parameters_are_named_in_the_order_of_the_model():
    dtypes = [torch.float32, torch.float64] * 4
    signals = there_and_back(roster_with(NAN, 1.0, INF, -INF, NAN, NAN, NAN, 2.0, dtypes=dtypes)).signals
    assert signals.bad_parameters == ("p0", "p2", "p3", "p4", "p5")
    assert signals.bad_count == 6


def test_a_norm_that_overflows_alone_blames_no_parameter():
    signals = there_and_back(roster_with(3e38, 3e38)).signals
    assert signals.grad_norm == INF
    assert (signals.bad_parameters, signals.bad_count) == ((), 0)
