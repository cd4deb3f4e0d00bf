"""A guard watches a plan's margins: a module that nears the end of its format moves up one, before it overflows."""

import json

import pytest
import torch

from precision import small_models as small
from precision.test_applying import plan_of
from stayfinite import Guard, Policy
from stayfinite.precision.applying import applied_to


def trained(model, run_dir, steps=6, grow=lambda model, step: None):
    model, optimizer, ids, forward = small.training(model, lr=1e-4)
    guard = Guard(model, optimizer, policy=Policy(sample_every=1), run_dir=run_dir)
    for step in range(steps):
        grow(model, step)
        optimizer.zero_grad()
        guard.step(forward(ids))
    guard.close()
    text = (run_dir / "events.jsonl").read_text() if (run_dir / "events.jsonl").exists() else ""
    events = [json.loads(line) for line in text.splitlines()]
    return [event for event in events if event["event"] == "plan-margin"]


def test_a_module_that_nears_fp16_s_end_moves_to_fp32_before_it_overflows(tmp_path):
    model, _, ids, _ = small.training(small.healthy())
    gate, largest = model.blocks[1].gate, []
    with torch.no_grad():
        model.blocks[1].up.weight.mul_(1e-3)
        model.blocks[1].up.bias.zero_()
        hook = gate.register_forward_hook(lambda _m, _a, out: largest.append(out.abs().max()))
        model(ids)
        hook.remove()
        for p in gate.parameters():
            p.mul_(0.6 * 65504 / largest[0])
        model.blocks[1].down.weight.mul_(1e-3)

    @torch.no_grad()
    def growing(model, _step):
        for p in gate.parameters():
            p.mul_(1.1)

    plan_of(model, base="fp16").apply(model)
    told = trained(model, tmp_path, steps=4, grow=growing)
    assert [(event["module"], event["to_precision"]) for event in told] == [("blocks.1.gate", "fp32")]
    assert 0.75 < told[0]["share"] < 1
    assert applied_to(model).assignment.formats == {"blocks.1.gate": "fp32"}


def test_a_layer_whose_inputs_vanish_in_fp8_moves_up_to_bf16(tmp_path):
    pytest.importorskip("torchao")
    model = small.healthy()
    plan_of(model, blocks__1__up="fp8", blocks__0__up="fp8").apply(model)

    def outlier(model, step):
        if step == 3:
            with torch.no_grad():
                model.blocks[1].norm2.bias[3] = 2e6
                model.blocks[1].up.weight[:, 3] = 0
                model.blocks[1].gate.weight[:, 3] = 0

    told = trained(model, tmp_path, grow=outlier)
    assert [(event["module"], event["to_precision"]) for event in told] == [("blocks.1.up", "bf16")]
    assert type(model.blocks[1].up) is torch.nn.Linear
    assert type(model.blocks[0].up).__name__ == "Float8Linear"


@pytest.mark.parametrize("base", ["bf16", "fp16"])
def test_a_healthy_plan_is_left_alone_and_its_training_is_the_same_with_a_guard(tmp_path, base):
    guarded, plain = small.healthy(), small.healthy()
    plan = plan_of(guarded, base=base, blocks__1__down="fp32")
    plan.apply(guarded)
    assert trained(guarded, tmp_path) == []
    plan.apply(plain)
    plain, optimizer, ids, forward = small.training(plain, lr=1e-4)
    for _ in range(6):
        optimizer.zero_grad()
        forward(ids).backward()
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(guarded.parameters(), plain.parameters(), strict=True))
