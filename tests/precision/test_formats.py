"""Number formats: ranges as torch has them, rounding as the hardware does it."""

import pytest
import torch

from stayfinite.errors import UsageError
from stayfinite.precision.formats import BF16, E4M3, E5M2, FORMATS, FP16, TF32, format_named
from stayfinite.rules.cards import card_asked_for


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "tf32"])
def test_the_edges_of_a_format_are_those_of_its_dtype(name):
    kind = FORMATS[name]
    edges = torch.tensor([kind.largest, kind.smallest_normal, kind.smallest_subnormal, 1 + kind.epsilon])
    assert torch.equal(kind.rounded(edges), edges)
    assert float(kind.rounded(torch.tensor(kind.smallest_subnormal / 2.1))) == 0.0
    assert float(kind.rounded(torch.tensor(1 + kind.epsilon / 2.1))) == 1.0


def test_what_does_not_fit_is_not_finite():
    for kind in (FP16, E4M3, E5M2):
        assert not torch.isfinite(kind.rounded(torch.tensor(kind.largest * 1.2)))
    assert torch.isfinite(BF16.rounded(torch.tensor(1e38)))


@pytest.mark.parametrize("kind", [E4M3, E5M2])
def test_fp8_rounds_as_torch_s_casts_do(kind):
    generator = torch.Generator().manual_seed(0)
    spread = torch.exp2(torch.randint(-20, 9, (20000,), generator=generator).float())
    values = (torch.randn(20000, generator=generator) * spread).clamp(-kind.largest, kind.largest)
    assert torch.equal(kind.rounded(values), values.to(kind.dtype).float())


def test_tf32_keeps_ten_bits_and_the_range():
    values = torch.tensor([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, -1e38, 0.0, float("inf")])
    rounded = TF32.rounded(values)
    # Ties go to the even neighbor: down at one half of a step, up at three halves.
    assert rounded[:4].tolist() == [1.0, 1 + 2**-10, 1.0, 1 + 2 * 2**-10]
    assert abs(float(rounded[4]) / -1e38 - 1) <= 2**-11
    assert rounded[5:].tolist() == [0.0, float("inf")]


@pytest.mark.parametrize(
    ("card", "has"),
    [
        ("P100", "fp32"),
        ("T4", "fp32 fp16"),
        ("V100", "fp32 fp16"),
        ("A100", "fp32 tf32 bf16 fp16"),
        ("L4", "fp32 tf32 bf16 fp16 fp8_e4m3 fp8_e5m2"),
        ("H100", "fp32 tf32 bf16 fp16 fp8_e4m3 fp8_e5m2"),
    ],
)
def test_each_card_has_its_formats(card, has):
    assert [name for name, kind in FORMATS.items() if kind.on(card_asked_for(card))] == has.split()


def test_names_and_dtypes_lead_to_formats():
    assert format_named("BF16") is BF16
    with pytest.raises(UsageError, match="fp8_e4m3"):
        format_named("fp12")
