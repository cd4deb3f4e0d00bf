"""Rows shared out among ranks: all of them once, whatever the number of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from stayfinite.errors import UsageError
from stayfinite.recipes.running.launch import goes_on, ranks_in_batch
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.running.records import write_launch
from stayfinite.recipes.running.sharding import refuse_unshardable
from stayfinite.recipes.running.sharing import Examples, Spare, refuse_idle, share_of, weights_in_step
from stayfinite.recipes.running.timing import Clock, TimedSchedule
from stayfinite.recipes.seq2seq.batching import IGNORED, Example, LengthBuckets, loading_of


def lengths(count: int) -> list[tuple[int, int]]:
    return [(3 + number % 11, 2 + number % 5) for number in range(count)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("tokens", [None, 90])
def test_the_shares_of_all_ranks_are_the_batches_of_one(ranks, tokens):
    alone = LengthBuckets(lengths(43), 8, tokens=tokens, seed=5)
    others = [LengthBuckets(lengths(43), 8, tokens=tokens, seed=5, rank=rank, ranks=ranks) for rank in range(ranks)]
    for _ in range(2):
        for whole, *shares in zip(alone, *others, strict=True):
            assert sorted(row for share in shares for row in share if not isinstance(row, Spare)) == sorted(whole)
            assert all(shares)


def test_a_batch_of_fewer_rows_than_ranks_leaves_the_others_a_row_that_teaches_nothing():
    assert share_of([7, 8], 1, 3) == [8]
    (spare,) = share_of([7, 8], 2, 3)
    assert isinstance(spare, Spare)
    row = Examples([Example([1], [2, 3])] * 9, lambda each: each.unlabelled)[spare]
    assert row.target == [IGNORED, IGNORED]


def test_a_loader_of_a_rank_without_a_row_gives_a_batch_without_labels():
    rows = [Example([5] * 4, [6, 1])]
    loader, _, _ = loading_of(rows, 0, torch.device("cpu"), batch_size=4, rank=1, ranks=2)
    (batch,) = loader
    assert (batch["labels"] == IGNORED).all()


def test_weights_add_up_to_one_over_the_batches_of_a_step():
    assert weights_in_step([torch.tensor(1), torch.tensor(3)], 1) == [0.25, 0.75]


@pytest.mark.parametrize(
    ("rows", "batch", "words"),
    [(3, None, "4 ranks but 3 training rows: 1 ranks would"), (9, 2, "4 ranks but batches of 2 rows: 2 ranks would")],
)
def test_a_rank_without_a_row_is_refused(rows, batch, words):
    with pytest.raises(UsageError, match=words):
        refuse_idle(rows, batch, 4)


@dataclass(frozen=True)
class Settings:
    batch_size: int = 8
    shard: bool = True


@pytest.fixture
def begun(tmp_path):
    """A run of two ranks with 8 rows each."""
    write_launch(tmp_path, "mt5", Settings(), ranks_in_batch=2)
    (tmp_path / "checkpoints" / "step-00000001").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(("ranks", "size", "counted"), [(2, 8, 2), (4, 8, 2), (1, 8, 2), (4, 4, 4), (1, 16, 1)])
def test_a_run_that_goes_on_keeps_the_rows_of_its_steps(begun, ranks, size, counted):
    said: list[str] = []
    config = Settings(size)
    assert goes_on(begun, "mt5", config, {"batch_size"}, said.append, ranks=ranks, per_rank=("batch_size",))
    assert ranks_in_batch(begun, config, ranks, ("batch_size",), resuming=True) == counted
    assert any("batches and steps stay the same" in line for line in said) == (size == 8 and ranks != 2)


def test_another_batch_over_all_ranks_is_refused(begun):
    with pytest.raises(UsageError, match="batch_size 8 -> 16"):
        goes_on(begun, "mt5", Settings(16), {"batch_size"}, print, ranks=2, per_rank=("batch_size",))


def test_ranks_with_one_clock_have_one_learning_rate():
    weight = torch.nn.Parameter(torch.zeros(1))
    told = iter([0.0, 30.0, 30.0])
    own = iter(range(100))
    clock = Clock(lambda _: next(told), clock=lambda: float(next(own)))
    schedule = TimedSchedule(torch.optim.SGD([weight], lr=1.0), "linear", warmup=0.0, minutes=1.0, clock=clock)
    schedule.step()  # the clock starts
    clock.agree()
    assert schedule.seconds == schedule.seconds == 30.0
    schedule.step()
    assert schedule.get_last_lr()[0] == pytest.approx(0.5)


def test_work_that_is_shared_out_comes_back_in_order():
    place = Place(device=torch.device("cpu"))
    assert place.shared_out(["ccc", "a", "bb"], lambda rows: [row.upper() for row in rows], size=len) == [
        "CCC",
        "A",
        "BB",
    ]
    assert place.shared_out([], lambda rows: [""], size=len) == [], "a tokenizer makes a text of no tokens"
    assert place.together(lambda: 3) == 3
    place.require_alike("rows", [1, 2])


def test_what_cannot_be_sharded_is_refused_by_its_flag():
    with pytest.raises(UsageError, match="--shard and --load-in-8bit cannot be combined"):
        refuse_unshardable(Settings(), compile=False, load_in_8bit=True)
    refuse_unshardable(Settings(shard=False), load_in_8bit=True)
