"""Rows in portions: none is lost, and memory that runs out costs time and nothing else."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stayfinite.recipes.models import in_portions


class Card:
    """Room for so many rows at a time."""

    def __init__(self, room):
        self.room = room
        self.done, self.tried = [], []

    def work(self, rows):
        self.tried.append(len(rows))
        if len(rows) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.14 GiB.")
        self.done += rows


@given(rows=st.lists(st.integers(), max_size=40), size=st.integers(1, 50), room=st.integers(1, 50))
def test_every_row_is_done_once_and_in_order_however_little_fits(rows, size, room):
    card, told = Card(room), []
    in_portions(rows, size, card.work, lambda done, of: told.append((done, of)))
    assert card.done == rows
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1:] == ([(len(rows), len(rows))] if rows else [])


def test_what_fits_is_not_made_smaller_and_what_does_not_is_halved_once(capsys):
    card = Card(room=5)
    in_portions(list(range(16)), 8, card.work)
    assert card.tried == [8, 4, 4, 4, 4]
    assert capsys.readouterr().err == "out of memory with 8 rows at a time: continuing with 4\n"
    card = Card(room=8)
    in_portions(list(range(16)), 8, card.work)
    assert card.tried == [8, 8]
    assert capsys.readouterr().err == ""


def test_a_single_row_that_does_not_fit_is_the_end():
    with pytest.raises(torch.OutOfMemoryError):
        in_portions([1, 2], 2, Card(room=0).work)


def test_another_error_is_not_taken_for_it():
    def work(rows):
        raise RuntimeError(f"shapes do not match for {len(rows)}")

    with pytest.raises(RuntimeError, match="for 2"):
        in_portions([1, 2], 2, work)
