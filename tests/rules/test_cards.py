"""Cards are known by any of their names, and by what their architecture computes in."""

from __future__ import annotations

import pytest

from stayfinite.errors import UsageError
from stayfinite.rules.cards import CARDS, card_asked_for, card_named


@pytest.mark.parametrize(
    ("spelled", "name", "memory"),
    [
        ("t4", "T4", 15),
        ("Tesla T4", "T4", 15),
        ("NVIDIA A100-SXM4-80GB", "A100", 80),
        ("NVIDIA A100-PCIE-40GB", "A100", 40),
        ("a100-40gb", "A100", 40),
        ("A100 80 GB", "A100", 80),
        ("a100_80gb", "A100", 80),
        ("8xA100", "A100", 40),
        ("Tesla V100-SXM2-32GB", "V100", 32),
        ("V100", "V100", 16),
        ("rtx 3090", "RTX 3090", 24),
        ("3090", "RTX 3090", 24),
        ("NVIDIA GeForce RTX 3080 Ti", "RTX 3080 Ti", 12),
        ("2x RTX 4090", "RTX 4090", 24),
        ("gtx1080ti", "GTX 1080 Ti", 11),
        ("NVIDIA H100 80GB HBM3", "H100", 79.6),
        ("H100 NVL", "H100 NVL", 93.6),
        ("H200", "H200", 140.4),
        ("B200", "B200", 179),
        ("L4", "L4", 22.5),
        ("A10G", "A10G", 22.5),
        ("A6000", "RTX A6000", 48),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", 48),
        ("Quadro RTX 8000", "Quadro RTX 8000", 48),
        ("AMD Instinct MI300X", "MI300X", 192),
    ],
)
def test_a_card_is_found_however_it_is_spelled(spelled: str, name: str, memory: float) -> None:
    card = card_named(spelled)
    assert card is not None
    assert (card.name, card.memory_gib) == (name, memory)


def test_every_card_is_found_by_its_own_name() -> None:
    assert [card_named(card.name) for card in CARDS] == list(CARDS)


@pytest.mark.parametrize(
    ("name", "bf16", "tf32", "fp8", "flash"),
    [
        ("P100", False, False, False, False),
        ("V100", False, False, False, False),
        ("T4", False, False, False, False),
        ("RTX 2080 Ti", False, False, False, False),
        ("A100", True, True, False, True),
        ("RTX 3090", True, True, False, True),
        ("L4", True, True, True, True),
        ("H100", True, True, True, True),
        ("B200", True, True, True, True),
        ("RTX 5090", True, True, True, True),
        ("MI250X", True, False, False, True),
        ("MI300X", True, True, True, True),
    ],
)
def test_number_formats_follow_from_the_architecture(name: str, bf16: bool, tf32: bool, fp8: bool, flash: bool) -> None:
    card = card_asked_for(name)
    assert (card.bf16, card.tf32, card.fp8, card.flash_attention_2) == (bf16, tf32, fp8, flash)


@pytest.mark.parametrize(("spelled", "near"), [("h10", "H100"), ("rtx 3099", "RTX 3090"), ("mi300", "MI300X")])
def test_an_unknown_card_is_an_error_that_names_near_ones(spelled: str, near: str) -> None:
    assert card_named(spelled) is None
    with pytest.raises(UsageError, match=near):
        card_asked_for(spelled)


def test_what_is_no_card_at_all_is_told_which_are_known() -> None:
    with pytest.raises(UsageError, match="T4, V100"):
        card_asked_for("potato")
