"""Factors that follow a training: any model with linear layers stays in fp16's range, and nothing else changes."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

import oversized_models as planted
from stayfinite.errors import UsageError
from stayfinite.precision.surgery import keep_in_range
from stayfinite.precision.surgery.measuring import measure
from stayfinite.precision.surgery.trials import train_a_little

pytest.importorskip("transformers")

KINDS = ["t5 gated", "t5 relu", "mt5", "byt5", "llama", "qwen3", "gemma", "gemma3", "bart", "pegasus"]
QUICK = [
    pytest.param(kind, fault, marks=[] if (kind, fault) in chosen else pytest.mark.slow)
    for chosen in [{("t5 gated", "branch"), ("gemma3", "hidden")}]
    for kind in KINDS
    for fault in ("branch", "hidden")
]


def in_fp16(model, batch):
    with torch.autocast("cpu", torch.float16):
        return model(**batch).loss


def oversized(kind="llama", fault="branch"):
    model = planted.plant(planted.build(kind), fault).eval()
    return model, planted.batches(model)


@pytest.mark.parametrize(("kind", "fault"), QUICK)
def test_it_trains_in_fp16_as_in_fp32_and_without_it_it_does_not(kind, fault):
    model, given = oversized(kind, fault)
    common = {"steps": 4, "exponents": {}, "lr": 1e-4}
    fp32 = train_a_little(model, given, precision="fp32", network="original", **common)
    kept = train_a_little(model, given, precision="fp16", network="kept", keep=True, **common)
    assert not math.isfinite(in_fp16(model, given[0]).item())
    assert kept.overflows == 0
    assert kept.moves >= 1
    assert kept.last_loss == pytest.approx(fp32.last_loss, rel=0.02)


@pytest.mark.parametrize(
    "kind", ["t5 gated", *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS if kind != "t5 gated")]
)
def test_the_function_and_the_weights_are_the_same_to_the_last_bit(kind):
    model, given = oversized(kind)
    weights = copy.deepcopy(model.state_dict())
    before = model(**given[0]).logits
    kept = keep_in_range(model)
    in_fp16(model, given[0])
    assert kept.exponents
    assert torch.equal(model(**given[0]).logits, before)
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    classes = {type(module) for module in model.modules()}
    kept.remove()
    assert not any("scaled_from" in vars(type(module)) for module in model.modules())
    assert classes != {type(module) for module in model.modules()}
    assert torch.equal(model(**given[0]).logits, before)


def test_a_healthy_model_is_only_watched():
    model = planted.build("llama").eval()
    kinds = [type(module) for module in model.modules()]
    kept = keep_in_range(model)
    for batch in planted.batches(model):
        in_fp16(model, batch).backward()
    assert not kept.moves
    assert [type(module) for module in model.modules()] == kinds


def test_activations_that_grow_take_the_factors_along():
    model, given = oversized()
    kept = keep_in_range(model, every=1)
    for _ in range(4):
        assert math.isfinite(in_fp16(model, given[0]).item())
        with torch.no_grad():
            model.model.layers[1].mlp.down_proj.weight.mul_(5)
    assert len(kept.moves) > 1
    assert kept.moves[-1].because == "model.layers.1.mlp.down_proj:out"
    assert kept.moves[-1].largest > kept.moves[0].largest


def test_after_a_leap_beyond_the_range_the_next_step_is_finite():
    model, given = oversized()
    keep_in_range(model, every=1)
    in_fp16(model, given[0])
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(1e5)
    losses = [in_fp16(model, given[0]).item() for _ in range(2)]
    assert not math.isfinite(losses[0])
    assert math.isfinite(losses[1])


@pytest.mark.parametrize("layer", ["encoder.block.0.layer.1.DenseReluDense.wi_0", "lm_head"], ids=["gate", "logits"])
def test_what_no_written_weight_can_rescale_is_given_back_in_fp32(layer):
    model = planted.build("t5 gated").eval()
    given = planted.batches(model)
    size = measure(model, given, lambda batch: model(**batch))[f"{layer}:out"].largest
    with torch.no_grad():
        model.get_submodule(layer).weight.mul_(5 * 65504 / size)
    keep_in_range(model)
    assert in_fp16(model, given[0]).item() == pytest.approx(model(**given[0]).loss.item(), rel=0.02)


class Plain(nn.Module):
    """An architecture nobody knows, with a bias, whose hidden values and inputs are too large."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 1)
        nn.init.constant_(self.first.bias, 3e5)

    def forward(self, x):
        return self.last(torch.nn.functional.silu(self.first(x * 3e5)))


def test_an_unknown_architecture_is_kept_in_range_by_its_linear_layers():
    model = Plain()
    x = torch.randn(4, 8)
    with torch.autocast("cpu", torch.float16):
        assert not model(x).isfinite().all()
    kept = keep_in_range(model)
    with torch.autocast("cpu", torch.float16):
        found = model(x)
    torch.testing.assert_close(found, model(x), rtol=5e-3, atol=0)
    (found.sum() * 2.0**-16).backward()  # a loss scale: the gradients themselves are as large
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert {"first input", "first output", "last input"} <= kept.exponents.keys()


def test_adapters_around_linear_layers_are_no_obstacle():
    peft = pytest.importorskip("peft")
    model, given = oversized()
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["down_proj"], task_type="CAUSAL_LM")).eval()
    keep_in_range(adapted)
    loss = in_fp16(adapted, given[0])
    assert loss.item() == pytest.approx(adapted(**given[0]).loss.item(), rel=0.02)


def test_the_first_look_uses_no_random_number_and_updates_no_statistics():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    plain, x = copy.deepcopy(model), torch.randn(8, 4)
    keep_in_range(model)
    found = []
    for each in (plain, model):
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.float16):
            found.append(each(x))
    assert torch.equal(*found)
    assert all(torch.equal(*pair) for pair in zip(plain.buffers(), model.buffers(), strict=True))


def test_other_passes_are_left_alone():
    model, given = oversized()
    kept = keep_in_range(model)
    model(**given[0])
    with torch.autocast("cpu", torch.bfloat16):
        model(**given[0])
    with torch.no_grad():
        in_fp16(model, given[0])
    assert not kept.moves


def test_a_kept_model_can_be_copied_and_saved(tmp_path):
    model, given = oversized()
    before = model(**given[0]).logits
    keep_in_range(model)
    in_fp16(model, given[0])
    assert torch.equal(copy.deepcopy(model)(**given[0]).logits, before)
    model.save_pretrained(tmp_path)
    assert torch.equal(type(model).from_pretrained(tmp_path).eval()(**given[0]).logits, before)


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (nn.Linear(2, 2).half(), {}, "half precision"),
        (nn.LayerNorm(2), {}, "no nn.Linear"),
        (nn.Linear(2, 2), {"every": 0}, "every=0"),
    ],
)
def test_wrong_use_is_refused(model, options, said):
    with pytest.raises(UsageError, match=said):
        keep_in_range(model, **options)
