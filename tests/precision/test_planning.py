"""A plan keeps exactly the modules that break, for each format, and leaves the training as it was."""

import copy
from itertools import product

import pytest
import torch
from torch import nn

import stayfinite
from precision import small_models as small
from quick_ones import quick_ones
from stayfinite.errors import UsageError
from stayfinite.precision.plan import Budget
from stayfinite.precision.planning import plan_precision
from stayfinite.precision.speed import Work, rates_of, seconds_of
from stayfinite.rules.cards import card_asked_for

FORMATS = {"tf32": ("tf32",), "bf16": ("bf16",), "fp16": ("fp16",), "fp8": ("bf16", "fp8")}
FEED_FORWARD = ["blocks.1.down", "blocks.1.gate", "blocks.1.up"]
BREAKING = [
    (small.huge_feed_forward, {"fp16": ["blocks.1.down", "blocks.1.gate"]}),
    (small.outlier_channel, {"fp8": ["blocks.1.gate", "blocks.1.up"]}),
    (small.outlier_token, {"fp16": FEED_FORWARD, "fp8": ["blocks.1.down"]}),
    (small.tiny_gradients, {"fp16": [name.replace("1", "0") for name in FEED_FORWARD]}),
    (small.wide_head, {"tf32": ["head"], "bf16": ["head"], "fp16": ["head"], "fp8": ["head"]}),
]


def planned(kind, plant=None, **kwargs):
    model = small.healthy()
    if plant is not None:
        plant(model)
    model, optimizer, ids, forward = small.training(model, lr=1e-7)
    return plan_precision(model, optimizer, ids, forward, formats=FORMATS[kind], steps=2, **kwargs)


def kept_by(plan, kind):
    """Modules that do not compute in the format that was asked for, though they multiply."""
    if kind != "fp8":
        return sorted(plan.assignment.named("fp32"))
    eight = plan.assignment.named("fp8", "fp8-rowwise")
    assert "head" not in eight
    others = [name for name, each in plan.units.items() if each == "Linear" and name not in eight]
    # The head is never in fp8; it is counted where it breaks.
    return sorted(name for name in others if name != "head" or name in plan.breaks("fp8"))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_healthy_model_keeps_nothing(kind):
    plan = planned(kind)
    assert kept_by(plan, kind) == []
    assert plan.cosine > 0.98


CASES = [*product(BREAKING, FORMATS)]
BROKEN = [(broken, kind) for broken, kind in CASES if kind in broken[1]]


@pytest.mark.parametrize(
    "case",
    quick_ones(CASES, *BROKEN, (BREAKING[0], "bf16")),
    ids=[f"{plant.__name__}-{kind}" for (plant, _), kind in CASES],
)
def test_exactly_the_modules_that_break_are_kept(case):
    (plant, breaking), kind = case
    plan = planned(kind, plant)
    assert plan.base != "fp32"
    assert kept_by(plan, kind) == breaking.get(kind, [])
    assert plan.cosine > 0.98


def test_what_a_plan_promises_for_fp16_holds_when_it_is_applied():
    model = small.healthy()
    small.huge_feed_forward(model)
    model, optimizer, ids, forward = small.training(model, lr=1e-7)
    plan = plan_precision(model, optimizer, ids, forward, formats=("fp16",), steps=0)
    full = forward(ids).item()
    naive = plan_precision(model, optimizer, ids, forward, formats=("fp16",), steps=0, budget=Budget(local=1e9))
    assert plan.sentence().startswith("fp16 autocast; blocks.1.down, blocks.1.gate in fp32: ")
    plan.apply(model)
    assert abs(forward(ids).item() - full) < plan.budget.loss * full
    plan.undo(model)
    # A wider budget does not let an overflow pass.
    assert set(naive.formats) == set(plan.formats)


def test_planning_leaves_the_training_bit_for_bit_as_it_was():
    model, optimizer, ids, forward = small.training(nn.Sequential(small.healthy(), nn.Dropout(0.1)))
    forward(ids).backward()
    optimizer.step()
    model[0].blocks[1].eval()
    state, moments = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
    gradients = [p.grad.clone() for p in model.parameters()]
    modes = [module.training for module in model.modules()]
    rng = torch.get_rng_state()
    plan_precision(model, optimizer, iter([ids, ids.flip(0)]), forward, gpu="H100", steps=2)
    assert all(torch.equal(a, b) for a, b in zip(state.values(), model.state_dict().values(), strict=True))
    after = optimizer.state_dict()
    assert str(after["param_groups"]) == str(moments["param_groups"])
    for number, values in moments["state"].items():
        assert all(torch.equal(values[name], after["state"][number][name]) for name in values)
    assert all(torch.equal(a, p.grad) for a, p in zip(gradients, model.parameters(), strict=True))
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), rng)
    assert not any(module._forward_hooks or "forward" in vars(module) for module in model.modules())


def test_the_training_s_own_autocast_does_not_hide_the_fp32_step():
    model, optimizer, ids, forward = small.training(small.healthy(), lr=1e-7)

    def under_autocast(batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return forward(batch)

    plain, wrapped = (
        plan_precision(model, optimizer, ids, each, formats=("bf16",), steps=0) for each in (forward, under_autocast)
    )
    assert wrapped.gradient == pytest.approx(plain.gradient, rel=0.1)
    assert wrapped.gradient > 1e-4


@pytest.mark.parametrize(("card", "bases"), [("T4", {"fp32", "fp16"}), ("A100", {"fp32", "tf32", "bf16", "fp16"})])
def test_only_what_the_card_has_is_planned(card, bases):
    model, optimizer, ids, forward = small.training(small.healthy())
    plan = stayfinite.plan_precision(model, optimizer, ids, forward, gpu=card, steps=0)
    assert {option.base for option in plan.options} == bases
    assert f"estimated for {card_asked_for(card).with_article}" in plan.sentence()


def test_a_large_layer_gains_from_fp8_and_a_small_one_does_not():
    rates = rates_of(card_asked_for("H100"))
    large = Work(name="", products=2.0 * 16384 * 4096 * 4096, weights=4096**2, moved=2 * 16384 * 4096)
    small_one = Work(name="", products=2.0 * 1024 * 512 * 512, weights=512**2, moved=2 * 1024 * 512)
    order = ["fp8", "bf16", "tf32", "fp32"]
    times = [seconds_of(large, kind, "bf16" if kind in ("fp8", "bf16") else kind, rates) for kind in order]
    assert times == sorted(times)
    assert seconds_of(small_one, "fp8", "bf16", rates) > seconds_of(small_one, "bf16", "bf16", rates)


def test_wrong_use_is_said_before_anything_runs():
    model, optimizer, ids, forward = small.training(small.healthy())
    with pytest.raises(UsageError, match="unknown format 'int4'"):
        plan_precision(model, optimizer, ids, forward, formats=("int4",))
    with pytest.raises(UsageError, match="the model is not on a GPU"):
        plan_precision(model, optimizer, ids, forward, gpu="this")
    with pytest.raises(UsageError, match="cosine in 0 to 1"):
        Budget(cosine=1.5)
    with pytest.raises(UsageError, match="no batch"):
        plan_precision(model, optimizer, [], forward)
