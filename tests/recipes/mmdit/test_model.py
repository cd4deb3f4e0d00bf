from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.model import SIZES, MMDiT, Shape, flops_of_row, measures_of

SHAPE = Shape(vocabulary=32, length=16, positions=9, channels=36, width=96, depth=3, heads=4)


def drawn(std: float) -> MMDiT:
    """With weights at random, also where they begin at 0."""
    torch.manual_seed(0)
    model = MMDiT(SHAPE)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model


def inputs(shape: Shape, rows: int = 2, device: str = "cpu"):
    return (
        torch.randint(shape.vocabulary, (rows, shape.length), device=device),
        torch.ones(rows, shape.length, dtype=torch.bool, device=device),
        torch.randn(rows, shape.positions, shape.channels, device=device),
        torch.rand(rows, device=device),
        torch.rand(rows, device=device),
    )


@pytest.mark.parametrize(
    ("size", "millions"), [("tiny", 1), ("small", 15), ("medium", 115), ("large", 385), ("huge", 910)]
)
def test_a_size_has_as_many_parameters_as_it_says(size, millions):
    found = SIZES[size]
    with torch.device("meta"):
        model = MMDiT(replace(SHAPE, width=found.width, depth=found.depth, heads=found.heads))
    count = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    assert count == pytest.approx(millions, rel=0.13)


def test_measures_can_be_asked_for_one_by_one():
    assert measures_of("small", None, 2, None).depth == 2
    with pytest.raises(UsageError, match="the heads dividing the width"):
        measures_of("small", 100, None, 3)


def test_the_counted_operations_are_those_that_torch_counts():
    shape = replace(SHAPE, width=32, depth=2)
    model = MMDiT(shape)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        text, latent = model(*inputs(shape, rows=4))
        (text.sum() + latent.sum()).backward()
    assert 4 * flops_of_row(shape) == pytest.approx(counter.get_total_flops(), rel=0.1)


def test_both_streams_see_each_other():
    model = drawn(0.1)
    ids, mask, latent, *times = inputs(SHAPE)
    text, pixels = model(ids, mask, latent, *times)
    assert not torch.allclose(model(ids, mask, latent + 1, *times)[0], text, atol=1e-3)
    assert not torch.allclose(model((ids + 1) % 32, mask, latent, *times)[1], pixels, atol=1e-3)


def test_padding_is_not_looked_at():
    model = drawn(0.1)
    ids, mask, latent, *times = inputs(SHAPE)
    mask[:, 10:] = False
    text, pixels = model(ids, mask, latent, *times)
    ids[:, 10:] = 5
    again, same = model(ids, mask, latent, *times)
    assert torch.equal(text[:, :10], again[:, :10])
    assert torch.equal(pixels, same)


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without bf16 says so, and computes
def test_in_bf16_it_says_nearly_the_same_and_answers_in_float32():
    torch.manual_seed(0)
    model = MMDiT(SHAPE)
    given = inputs(SHAPE)
    text, pixels = model(*given)
    with torch.autocast("cpu", torch.bfloat16):
        half_text, half_pixels = model(*given)
    assert half_text.dtype == half_pixels.dtype == torch.float32
    assert torch.allclose(text, half_text, atol=0.05)
    assert torch.allclose(pixels, half_pixels, atol=0.05)


def test_latents_a_thousand_spreads_away_do_not_overflow_in_half_precision():
    model = drawn(0.05)
    ids, mask, latent, *times = inputs(SHAPE)
    with torch.autocast("cpu", torch.float16):
        text, pixels = model(ids, mask, 1000 * latent, *times)
    assert torch.isfinite(text).all()
    assert torch.isfinite(pixels).all()
