from __future__ import annotations

import math

import torch

from stayfinite.recipes.running.logbook import Logbook


def test_losses_of_a_batch_are_shown_apart_and_only_finite_ones_are_averaged():
    said: list[str] = []
    book = Logbook(said.append, steps=4, every=2)
    for text in (1.0, math.nan, 3.0):
        book.add(torch.tensor(text), 10, {"text": torch.tensor(text), "latent": torch.tensor(0.5)}, flops=2e9)
        book.step(1e-3)
    assert "text 1.0000  latent 0.5000" in said[0]
    assert "text nan" in said[1]
    assert "FLOP/s" in said[0]
    assert book.flops_rate > 0


def test_a_program_without_parts_and_operations_shows_none():
    said: list[str] = []
    book = Logbook(said.append, steps=1, every=1)
    book.add(torch.tensor(2.0), 10)
    book.step(1e-3)
    assert "FLOP" not in said[0]
    assert "loss   2.0000  lr" in said[0]
