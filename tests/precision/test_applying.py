"""A plan applied: exactly the named modules change, training goes on, and everything can be undone."""

import copy
import pickle

import pytest
import torch
from torch import nn

from precision.small_models import healthy, training
from stayfinite.errors import UsageError
from stayfinite.precision.plan import PrecisionPlan
from stayfinite.precision.units import units_of


def plan_of(model, base="bf16", **formats):
    named = {name.replace("__", "."): kind.replace("_", "-") for name, kind in formats.items()}
    units = {name: type(module).__name__ for name, module in units_of(model)}
    return PrecisionPlan(base=base, formats=named, units=units)


def dtypes_of(model, ids):
    seen = {}
    hooks = [
        module.register_forward_hook(lambda _m, _a, out, name=name: seen.__setitem__(name, out.dtype))
        for name, module in units_of(model)
    ]
    out = model(ids)
    for hook in hooks:
        hook.remove()
    return seen, out


def test_named_modules_compute_in_fp32_and_their_neighbours_in_half():
    model, _, ids, _ = training(healthy())
    plan_of(model, blocks__1__down="fp32").apply(model)
    seen, out = dtypes_of(model, ids)
    linear = {name: kind for name, kind in seen.items() if isinstance(model.get_submodule(name), nn.Linear)}
    assert [name for name, kind in linear.items() if kind is torch.float32] == ["blocks.1.down"]
    assert set(linear.values()) == {torch.float32, torch.bfloat16}
    assert out.dtype is torch.float32


def test_a_model_is_bit_for_bit_itself_after_undo():
    model, _, ids, forward = training(healthy())
    classes = {name: type(module) for name, module in model.named_modules()}
    before = forward(ids)
    plan = plan_of(model, blocks__0__up="fp8", blocks__1__down="fp32")
    plan.apply(model)
    assert forward(ids) != before
    plan.undo(model)
    assert torch.equal(forward(ids), before)
    assert {name: type(module) for name, module in model.named_modules()} == classes


@pytest.mark.parametrize("kind", ["fp8", "fp8_rowwise"])
def test_fp8_layers_train_with_the_same_parameters(kind):
    pytest.importorskip("torchao")
    model, optimizer, ids, forward = training(healthy())
    held = dict(model.named_parameters())
    plan_of(model, blocks__0__up=kind, blocks__1__qkv=kind).apply(model)
    assert type(model.blocks[0].up).__name__ == "Float8Linear"
    assert {name: id(p) for name, p in model.named_parameters()} == {name: id(p) for name, p in held.items()}
    first = forward(ids).item()
    for _ in range(12):
        optimizer.zero_grad()
        forward(ids).backward()
        optimizer.step()
    assert forward(ids).item() < first - 0.2


def test_copies_and_pickles_keep_the_plan_and_their_own_weights():
    model, _, ids, _ = training(healthy())
    plan = plan_of(model, blocks__1__down="fp32")
    plan.apply(model)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(ids), model(ids))
        with torch.no_grad():
            twin.blocks[1].down.weight.zero_()
        assert not torch.equal(twin(ids), model(ids))
        plan.undo(twin)
        assert type(twin) is type(healthy())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_computes_by_the_plan(backend):
    model, _, ids, _ = training(healthy())
    plan_of(model, blocks__1__down="fp32").apply(model)
    expected = model(ids)
    expected.sum().backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    found = compiled(ids)
    found.sum().backward()
    assert torch.allclose(found, expected, atol=1e-2)
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.nn.functional.cosine_similarity(p.grad.flatten(), gradient.flatten(), dim=0) > 0.999


def test_checkpointed_blocks_recompute_by_the_plan():
    losses, gradients = [], []
    for checkpointed in (False, True):
        model, _, ids, forward = training(healthy(checkpointed=checkpointed))
        plan_of(model, blocks__1__down="fp32").apply(model)
        loss = forward(ids)
        loss.backward()
        losses.append(loss)
        gradients.append(model.blocks[0].up.weight.grad)
    assert torch.equal(*losses)
    assert torch.equal(*gradients)


def test_weights_in_half_are_multiplied_in_fp32_where_that_is_planned():
    model, _, ids, _ = training(healthy().to(torch.bfloat16))
    with torch.no_grad():
        expected = nn.functional.linear(
            torch.ones(2, 64), model.blocks[1].down.weight.float(), model.blocks[1].down.bias.float()
        )
    plan_of(model, base="fp32", blocks__1__down="fp32").apply(model)
    assert torch.equal(model.blocks[1].down(torch.ones(2, 64, dtype=torch.bfloat16)), expected.to(torch.bfloat16))
    model(ids).sum().backward()
    assert model.blocks[1].down.weight.grad.dtype is torch.bfloat16


def test_a_plan_for_another_model_is_refused_with_what_is_missing():
    plan = plan_of(healthy(), blocks__1__down="fp32")
    with pytest.raises(UsageError, match=r"it has no blocks\.1\.down"):
        plan.apply(healthy(blocks=1))
    other = healthy()
    other.blocks[1].down = nn.Identity()
    with pytest.raises(UsageError, match="is a Identity, planned as Linear"):
        plan.apply(other)
    model = healthy()
    plan.apply(model)
    with pytest.raises(UsageError, match="already"):
        plan.apply(model)


def test_a_plan_survives_its_file(tmp_path):
    plan = plan_of(healthy(), base="fp16", blocks__1__down="fp32")
    again = PrecisionPlan.load(plan.save(tmp_path / "precision.json"))
    assert again == plan
    assert again.scaler("cpu").get_scale() == plan.loss_scale


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a precision plan"),
        ('{"version": 9, "base": "bf16", "formats": {}, "units": {}}', "version 9"),
        ('{"version": 1, "base": "fp7", "formats": {}, "units": {}}', "unknown format 'fp7'"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path, text, words):
    (tmp_path / "precision.json").write_text(text)
    with pytest.raises(UsageError, match=words):
        PrecisionPlan.load(tmp_path / "precision.json")
    with pytest.raises(UsageError, match="No such file"):
        PrecisionPlan.load(tmp_path / "none.json")
