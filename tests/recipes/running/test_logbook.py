"""A program's own lines."""

from __future__ import annotations

import math

import pytest
import torch

from stayfinite.recipes.running.logbook import Logbook


def told(losses, every=2, steps=10):
    said = []
    book = Logbook(said.append, steps=steps, every=every)
    for loss in losses:
        book.add(torch.tensor(loss), 100)
        book.step(1e-3)
    return book, said


def test_the_first_step_and_every_so_many_are_told():
    book, said = told([4.0, 2.0, 3.0, 1.0])
    assert [line[:30] for line in said] == [
        "step      1 of 10  loss   4.00", "step      2 of 10  loss   2.00", "step      4 of 10  loss   2.00",
    ]  # fmt: skip
    assert (book.first, book.last, book.steps_taken) == (4.0, 2.0, 4)


def test_losses_that_are_not_finite_are_left_out_of_the_mean():
    book, said = told([math.nan, math.nan, math.nan, 2.0, math.inf, 4.0])
    assert book.first == 2.0
    assert book.last == 4.0
    assert "nan" in said[0]
    assert len(said) == 4


def test_the_last_steps_count_without_a_line():
    book, said = told([4.0, 2.0, 1.0])
    book.finish()
    assert book.last == 1.0
    assert len(said) == 2


def test_an_unknown_number_of_steps_is_not_told():
    _, said = told([1.0], steps=None)
    assert said[0].startswith("step      1  loss")


def test_neither_the_first_step_nor_a_rest_counts_for_the_speed(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    book = Logbook(lambda line: None, steps=3, every=1)
    for seconds in (50.0, 1.0, 1.0):
        now[0] += seconds
        book.add(torch.tensor(1.0), 100)
        book.step(1e-3)
        with book.rest():
            now[0] += 30.0
    assert book.rate == pytest.approx(100.0)


def test_a_resumed_run_counts_on():
    said = []
    book = Logbook(said.append, steps=10, every=5)
    book.resume(7)
    book.add(torch.tensor(1.0), 1)
    book.step(1e-3)
    assert said[0].startswith("step      8 of 10")


def test_the_time_that_is_left_is_told_from_the_first_step_on(monkeypatch):
    now, said = [0.0], []
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    book = Logbook(said.append, steps=11, every=5, until=lambda: 40.0 if now[0] > 100 else None)
    for seconds in (60.0, *[6.0] * 9):
        now[0] += seconds
        book.add(torch.tensor(1.0), 100)
        book.step(1e-3)
    assert [line.rpartition("  ")[2] for line in said] == ["10 min left", "36 s left", "6 s left"]


def test_without_steps_only_the_time_that_was_asked_for_is_left():
    said = []
    book = Logbook(said.append, steps=None, every=1, until=lambda: 7300.0)
    book.add(torch.tensor(1.0), 100)
    book.step(1e-3)
    assert said[0].endswith("2.0 h left")


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
