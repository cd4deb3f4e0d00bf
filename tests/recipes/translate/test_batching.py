"""Batches: every row once, like lengths together, within a budget, in an order that can be foretold and joined."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from stayfinite.recipes.seq2seq.batching import (
    IGNORED,
    Example,
    LengthBuckets,
    Padding,
    labels_in,
    loading_of,
    tokens_in,
)

lengths = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=1, max_size=200)


def rounded(length):
    return -(-length // 8) * 8


@given(lengths, st.integers(1, 9), st.sampled_from([0, 1, 4, 64]))
def test_every_row_comes_once_an_epoch(rows, size, spread):
    sampler = LengthBuckets(rows, size, spread=spread)
    for _ in range(2):
        assert sorted(row for batch in sampler for row in batch) == list(range(len(rows)))


@given(lengths, st.integers(16, 2000))
def test_a_batch_keeps_to_its_budget_padding_included(rows, budget):
    sampler = LengthBuckets(rows, 1, tokens=budget)
    for batch in sampler:
        sides = [max(rounded(rows[row][side]) for row in batch) for side in (0, 1)]
        assert len(batch) == 1 or sum(sides) * len(batch) <= budget


@given(lengths, st.integers(50, 600), st.integers(0, 5))
def test_the_batches_of_coming_epochs_are_counted_exactly_and_counting_changes_nothing(rows, budget, seed):
    one, other = (LengthBuckets(rows, 1, tokens=budget, spread=2, seed=seed) for _ in range(2))
    planned = one.counts(4)
    drawn = [list(one) for _ in range(4)]
    assert planned == [len(batches) for batches in drawn]
    assert drawn == [list(other) for _ in range(4)]


def test_epochs_differ_and_seeds_differ():
    rows = [(number % 30 + 1, 5) for number in range(200)]
    sampler = LengthBuckets(rows, 8)
    assert list(sampler) != list(sampler)
    assert list(LengthBuckets(rows, 8, seed=1)) != list(LengthBuckets(rows, 8, seed=2))


def test_the_global_generator_is_neither_read_nor_moved():
    rows = [(5, 5)] * 50
    torch.manual_seed(1)
    first = list(LengthBuckets(rows, 4, seed=3))
    before = torch.get_rng_state()
    torch.manual_seed(2)
    assert list(LengthBuckets(rows, 4, seed=3)) == first
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), before)


def test_buckets_need_less_padding_than_chance():
    torch.manual_seed(0)
    rows = [Example([3] * int(length), [3] * int(length)) for length in torch.randint(4, 120, (600,))]

    def padded(buckets):
        loading = loading_of(rows, 0, torch.device("cpu"), batch_size=16, buckets=buckets)
        return sum(batch["input_ids"].numel() + batch["labels"].numel() for batch in loading.loader)

    exact = sum(row.length for row in rows)
    assert padded(True) < 1.15 * exact
    assert padded(False) > 1.5 * exact


def test_a_long_source_with_a_short_target_does_not_stand_beside_the_opposite():
    chance = torch.Generator().manual_seed(0)
    sides = torch.randint(4, 120, (600, 2), generator=chance).tolist()  # both sides at random: the hardest case
    rows = [Example([3] * source, [3] * target) for source, target in sides]
    sampler = loading_of(rows, 0, torch.device("cpu"), batch_size=16).sampler
    batches = [Padding(pad=0)([rows[row] for row in batch]) for batch in sampler]
    padded = sum(batch["input_ids"].numel() + batch["labels"].numel() for batch in batches)
    by_sum = sorted(rows, key=lambda row: row.length)
    batches = [by_sum[start : start + 16] for start in range(0, 600, 16)]
    of_the_sum = sum(
        16 * (max(len(row.source) for row in batch) + max(len(row.target) for row in batch)) for batch in batches
    )
    assert padded < 0.97 * of_the_sum, "even though its own lengths are rounded up"


def test_without_a_gpu_no_length_is_rounded_up():
    batch = Padding(pad=0, multiple=1)([Example([5, 6, 1], [7, 1]), Example([5, 1], [7, 8, 9, 1])])
    assert (batch["input_ids"].shape, batch["labels"].shape) == ((2, 3), (2, 4))


def test_a_batch_is_padded_masked_and_counted():
    batch = Padding(pad=0)([Example([5, 6, 1], [7, 1]), Example([5, 1], [7, 8, 9, 1])])
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 8)
    assert batch["input_ids"][1].tolist() == [5, 1, 0, 0, 0, 0, 0, 0]
    assert batch["attention_mask"].sum(1).tolist() == [3, 2]
    assert batch["labels"][0].tolist() == [7, 1] + [IGNORED] * 6
    assert (int(labels_in(batch)), int(tokens_in(batch))) == (6, 11)
