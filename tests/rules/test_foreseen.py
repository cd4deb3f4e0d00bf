"""What a look before training shows is a fault only where the training is such that it happens."""

import pytest

from rules.example import Example
from stayfinite.rules.ranking import rank
from stayfinite.rules.registry import all_rules


def causes(**observed: object) -> list[str]:
    facts = Example(observed={name.replace("__", "."): value for name, value in observed.items()}).facts()
    return [found.cause for found in rank(facts, all_rules())]


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_what_only_fp16_cannot_hold_is_no_fault_elsewhere(precision: str) -> None:
    modules = ["decoder.block.5 3.1x"]
    assert causes(headroom__fp16_modules=modules, training__precision="fp16") == ["fp16-overflow"]
    assert causes(headroom__fp16_modules=modules, training__precision=precision) == []


def test_a_constant_that_fp16_refuses_is_an_overflow_and_a_missing_kernel_is_not() -> None:
    refused = "RuntimeError: value cannot be converted to type at::Half without overflow"
    assert causes(headroom__fp16_error=refused, training__precision="fp16") == ["fp16-overflow"]
    missing = "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'"
    assert causes(headroom__fp16_error=missing, training__precision="fp16") == []


def test_a_scale_below_one_is_a_collapse_to_come_and_a_usual_one_is_not() -> None:
    assert causes(headroom__largest_scale=2.0**-6, training__precision="fp16") == ["loss-scale-collapse"]
    assert causes(headroom__largest_scale=1024.0, training__precision="fp16") == []
    assert causes(headroom__largest_scale=2.0**-6, training__precision="bf16") == []


def test_gradients_that_become_zero_in_fp16_are_an_underflow() -> None:
    assert causes(headroom__lost_gradients=0.6, training__precision="fp16") == ["fp16-underflow"]
    assert causes(headroom__lost_gradients=0.02, training__precision="fp16") == []


def test_weights_that_stay_for_a_plainer_reason_are_not_blamed_on_the_gradient() -> None:
    assert causes(learning__falls=False, optimizer__lr=1e-3) == ["cannot-overfit-batch"]
    assert causes(learning__falls=False, optimizer__lr=0.0) == ["lr-zero"]
    assert causes(learning__falls=False, update__lost_share=0.9) == ["bf16-lost-updates"]


def test_a_batch_that_falls_only_at_a_lower_rate_speaks_of_the_rate() -> None:
    assert causes(learning__falls=False, learning__falls_at=0.01) == ["lr-too-high"]


def test_a_loader_without_batches_is_empty() -> None:
    assert causes(loader__batches=0) == ["empty-batch"]
    assert causes(loader__batches=8) == []
