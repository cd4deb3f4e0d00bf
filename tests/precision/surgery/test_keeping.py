"""Linear layers that fp16 autocast cannot make overflow, in any model; nothing else changes."""

from __future__ import annotations

import copy
import io
import math

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import oversized_models as planted
from stayfinite.errors import UsageError
from stayfinite.precision.surgery import keep_in_range
from stayfinite.precision.surgery.files import train_a_little
from stayfinite.precision.surgery.measuring import measure

pytest.importorskip("transformers")

KINDS = ["t5 gated", "t5 relu", "mt5", "byt5", "llama", "qwen3", "gemma", "gemma3", "bart", "pegasus"]
QUICK = [
    pytest.param(kind, fault, marks=[] if (kind, fault) in chosen else pytest.mark.slow)
    for chosen in [{("t5 gated", "branch"), ("gemma3", "hidden")}]
    for kind in KINDS
    for fault in ("branch", "hidden")
]


def fp16():
    return torch.autocast("cpu", torch.float16)


def in_fp16(model, batch):
    with fp16():
        return model(**batch).loss


def oversized(kind="llama", fault="branch"):
    model = planted.plant(planted.build(kind), fault).eval()
    return model, planted.batches(model)


def two_layers():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


@pytest.mark.parametrize(("kind", "fault"), QUICK)
def test_it_trains_in_fp16_as_in_fp32_and_without_it_it_does_not(kind, fault):
    model, given = oversized(kind, fault)
    common = {"steps": 4, "exponents": {}, "lr": 1e-4}
    fp32 = train_a_little(model, given, precision="fp32", network="original", **common)
    kept = train_a_little(model, given, precision="fp16", network="kept", keep=True, **common)
    assert not math.isfinite(in_fp16(model, given[0]).item())
    assert kept.overflows == 0
    assert kept.scaled >= 2
    assert kept.last_loss == pytest.approx(fp32.last_loss, rel=0.02)


def test_the_function_and_the_weights_are_the_same_to_the_last_bit():
    model, given = oversized("t5 gated")
    weights = copy.deepcopy(model.state_dict())
    before = model(**given[0]).logits
    kept = keep_in_range(model)
    in_fp16(model, given[0])
    assert all(name.endswith("wo") for name in kept.scaled)
    assert torch.equal(model(**given[0]).logits, before)
    assert model.state_dict().keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    kept.remove()
    assert {type(module) for module in model.modules() if isinstance(module, nn.Linear)} == {nn.Linear}


def test_a_healthy_model_is_only_watched():
    model = planted.build("llama").eval()
    plain = copy.deepcopy(model)
    kept = keep_in_range(model)
    for batch in planted.batches(model):
        assert torch.equal(in_fp16(model, batch), in_fp16(plain, batch))
    assert kept.scaled == []


def searched(model, forward):
    """The gradients at the highest loss scale at which all are finite, as a GradScaler finds it."""
    for exponent in range(16, -80, -1):
        model.zero_grad()
        (forward().float().mean() * 2.0**exponent).backward()
        found = [parameter.grad * 2.0**-exponent for parameter in model.parameters()]
        if all(gradient.isfinite().all() for gradient in found):
            return found
    raise AssertionError("no loss scale is low enough")


@pytest.mark.parametrize("size", [1e5, 1e7, 1e9])
@pytest.mark.parametrize("weights", [1e-4, 1.0, 1e6])
def test_outputs_and_gradients_are_those_of_fp32_within_rounding(size, weights):
    model = two_layers()
    with torch.no_grad():
        model[0].weight.mul_(weights)
        model[0].bias.mul_(size)
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(1)) * size
    expected = [model(x), *searched(model, lambda: model(x))]
    keep_in_range(model)

    def forward():
        with fp16():
            return model(x)

    for fp32, kept in zip(expected, [forward(), *searched(model, forward)], strict=True):
        assert float((fp32 - kept).detach().norm() / fp32.detach().norm()) < 5e-3


def test_a_spike_leaves_no_trace():
    model, x = two_layers(), torch.randn(32, 8)
    keep_in_range(model)
    with fp16():
        model(x * 1e7)
        after = model(x)
    torch.testing.assert_close(after, model(x), rtol=1e-2, atol=1e-3)


def test_large_batches_among_small_ones_are_noticed_whenever_they_come():
    model = two_layers()
    kept = keep_in_range(model, every=10)
    overflows = 0
    with fp16():
        for step in range(200):
            size = 1e6 if step > 100 and step % 10 == 3 else 1.0
            overflows += not model(torch.randn(4, 8) * size).isfinite().all()
    assert overflows <= 2
    assert kept.scaled == ["0", "2"]


def test_weights_that_outgrow_the_range_are_noticed():
    model = nn.Sequential(nn.Linear(8, 1))
    keep_in_range(model, every=1)
    with fp16():
        for _ in range(40):
            with torch.no_grad():
                model[0].weight.mul_(2)
            assert model(torch.randn(4, 8) * 1e-3).isfinite().all()


@pytest.mark.parametrize("layer", ["encoder.block.0.layer.1.DenseReluDense.wi_0", "lm_head"], ids=["gate", "logits"])
def test_what_no_written_weight_can_rescale_is_given_back_in_fp32(layer):
    model = planted.build("t5 gated").eval()
    given = planted.batches(model)
    size = measure(model, given, lambda batch: model(**batch))[f"{layer}:out"].largest
    with torch.no_grad():
        model.get_submodule(layer).weight.mul_(5 * 65504 / size)
    keep_in_range(model)
    assert in_fp16(model, given[0]).item() == pytest.approx(model(**given[0]).loss.item(), rel=0.02)


class Gated(nn.Module):
    """A product between two layers that only fp16 cannot hold."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.up, self.down = nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def test_a_product_that_overflows_between_layers_is_finite_from_the_second_pass_on():
    model, x = Gated(), torch.randn(64, 8) * 700
    keep_in_range(model)
    with fp16():
        assert [bool(model(x).isfinite().all()) for _ in range(3)] == [False, True, True]


def test_a_batch_with_nan_scales_no_layer():
    model = two_layers()
    kept, x = keep_in_range(model), torch.randn(4, 8)
    x[0, 0] = torch.nan
    with fp16():
        assert model(x).isnan().any()
    assert kept.scaled == []


def test_a_layer_that_is_no_longer_kept_is_left_out():
    first, second = two_layers(), two_layers()
    of_first = keep_in_range(first)
    keep_in_range(second)
    with fp16():
        first(torch.randn(4, 8))
        of_first.remove()
        second(torch.full((4, 8), torch.inf))
    assert type(first[0]) is nn.Linear


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_pass_that_is_computed_twice_finds_the_same_factors(reentrant):
    model = two_layers()
    xs = [torch.randn(4, 8) * size for size in (1.0, 1e3, 1e6)]
    expected = searched(model, lambda: torch.cat([model(x) for x in xs]))
    keep_in_range(model)

    def forward():
        with fp16():
            each = [checkpoint(model, x.requires_grad_(), use_reentrant=reentrant) for x in xs]
        return torch.cat(each)

    with fp16():
        # A layer that begins to give out fp32 between a pass and its repetition is torch's CheckpointError.
        model(xs[-1])
    for fp32, kept in zip(expected, searched(model, forward), strict=True):
        assert float((fp32 - kept).detach().norm() / fp32.detach().norm()) < 5e-3


def test_evaluations_averages_and_copies_are_kept_too(tmp_path):
    model, given = oversized()
    keep_in_range(model)
    average = AveragedModel(model)
    in_fp16(model, given[0])
    stored = io.BytesIO()
    torch.save(model, stored)
    stored.seek(0)
    with torch.no_grad():
        for each in (model, average, copy.deepcopy(model), torch.load(stored, weights_only=False)):
            assert math.isfinite(in_fp16(each, given[0]).item())
    model.save_pretrained(tmp_path)
    assert torch.equal(type(model).from_pretrained(tmp_path).eval()(**given[0]).logits, model(**given[0]).logits)


@pytest.mark.parametrize("order", ["before", "after"])
def test_adapters_come_before_or_after(order):
    peft = pytest.importorskip("peft")
    model, given = oversized()
    config = peft.LoraConfig(target_modules=["down_proj"], task_type="CAUSAL_LM")
    if order == "before":
        model = peft.get_peft_model(model, config)
    keep_in_range(model)
    if order == "after":
        model = peft.get_peft_model(model, config)
    model.eval()
    assert in_fp16(model, given[0]).item() == pytest.approx(model(**given[0]).loss.item(), rel=0.02)


def test_accelerate_whose_autocast_begins_inside_the_model_is_no_obstacle():
    accelerate = pytest.importorskip("accelerate")
    model = two_layers()
    kept = keep_in_range(model)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    try:
        accelerator = accelerate.Accelerator(cpu=True, mixed_precision="fp16")
        accelerator.native_amp = True  # what it is on a GPU
        assert accelerator.prepare(model)(torch.randn(4, 8) * 1e6).isfinite().all()
    finally:
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    assert kept.scaled == ["0", "2"]


@pytest.mark.slow
def test_compiled_as_one_graph_it_computes_the_same():
    model, x = two_layers(), torch.randn(4, 8) * 1e6
    keep_in_range(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with fp16():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-2, atol=1.0)
    torch._dynamo.reset()


def test_no_random_number_is_used_and_no_statistics_are_updated():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    plain, x = copy.deepcopy(model), torch.randn(8, 4)
    keep_in_range(model)
    found = []
    for each in (plain, model):
        torch.manual_seed(1)
        with fp16():
            found.append(each(x))
    assert torch.equal(*found)
    assert all(torch.equal(*pair) for pair in zip(plain.buffers(), model.buffers(), strict=True))


def test_other_formats_and_empty_batches_are_left_alone():
    model = two_layers()
    plain, kept = copy.deepcopy(model), keep_in_range(model)
    x = torch.randn(4, 8) * 1e6
    assert torch.equal(model(x), plain(x))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(x), plain(x))
    with fp16():
        assert model(x[:0]).shape == (0, 4)
    assert kept.scaled == []


def test_a_layer_whose_weight_is_computed_is_not_kept():
    model = two_layers()
    nn.utils.parametrizations.weight_norm(model[0])
    x = torch.randn(4, 8)
    keep_in_range(model)
    with fp16():
        half = model(x).float()
    torch.testing.assert_close(half, model(x), rtol=1e-2, atol=1e-2)


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
