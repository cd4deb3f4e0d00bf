"""The learning rate of a log against the schedule that the settings declare."""

import math

import pytest

from rules.example import Example
from stayfinite.rules.optimization.planned_rate import departure

CONFIG = "learning_rate: 2e-5\nlr_scheduler_type: {kind}\nnum_train_epochs: 4\n"


def log_of(rates: list[float], epochs: float = 4.0) -> str:
    return "".join(
        f"{{'loss': {2.0 - 0.01 * index:.4f}, 'learning_rate': {rate}, 'epoch': {epochs * index / len(rates):.3f}}}\n"
        for index, rate in enumerate(rates)
    )


def cosine(count: int) -> list[float]:
    return [1e-5 * (1 + math.cos(math.pi * index / count)) for index in range(count)]


def linear(count: int) -> list[float]:
    return [2e-5 * (1 - index / count) for index in range(count)]


def test_a_rate_that_never_falls_departs_from_a_cosine() -> None:
    found = departure(Example(log=log_of([2e-5] * 12), config=CONFIG.format(kind="cosine")).facts())
    assert found is not None
    assert found.logged > 2 * found.planned


def test_a_rate_that_is_used_up_halfway_departs_from_a_linear_decay() -> None:
    rates = [*linear(6), *[0.0] * 6]
    found = departure(Example(log=log_of(rates), config=CONFIG.format(kind="linear")).facts())
    assert found is not None
    assert found.logged < found.planned


@pytest.mark.parametrize(("kind", "rates"), [("cosine", cosine(12)), ("linear", linear(12))])
def test_a_rate_that_follows_its_schedule_does_not_depart(kind: str, rates: list[float]) -> None:
    assert departure(Example(log=log_of(rates), config=CONFIG.format(kind=kind)).facts()) is None


@pytest.mark.parametrize(
    "extra", ["min_lr: 2e-6", "lr_scheduler_num_cycles: 3", "T_max: 500", "warmup_steps: 100\nmax_steps: -1"]
)
def test_a_start_or_another_shape_is_no_departure(extra: str) -> None:
    start = log_of([1.9e-5] * 6, epochs=0.3)
    assert departure(Example(log=start, config=CONFIG.format(kind="cosine") + extra).facts()) is None


def test_a_warmup_is_not_held_against_the_decay() -> None:
    rising = [2e-5 * index / 10 for index in range(1, 6)]
    config = CONFIG.format(kind="linear") + "warmup_ratio: 0.1\n"
    assert departure(Example(log=log_of(rising, epochs=0.4), config=config).facts()) is None
