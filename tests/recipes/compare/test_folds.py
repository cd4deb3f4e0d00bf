from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from stayfinite.errors import UsageError
from stayfinite.recipes.images.data import apart_from, split
from stayfinite.recipes.images.pairs import SIMILAR, Pair

NAMES = [f"{number:02}.png" for number in range(16)]
PAIRS = [Pair(first=one, second=two, label=number % 3) for number, (one, two) in enumerate(combinations(NAMES, 2))]


def test_every_pair_is_held_out_in_exactly_one_fold() -> None:
    held = [pair.key for fold in range(5) for pair in split(PAIRS, folds=5, fold=fold).validation]
    assert sorted(held) == sorted(pair.key for pair in PAIRS)


def test_a_pair_falls_into_the_fold_of_its_swap() -> None:
    swapped = [replace(pair, first=pair.second, second=pair.first) for pair in PAIRS]
    for fold in range(5):
        keys = [{pair.key for pair in split(each, folds=5, fold=fold).validation} for each in (PAIRS, swapped)]
        assert keys[0] == keys[1]


def test_folds_are_equally_large_and_have_equally_many_similar_ones() -> None:
    made = [split(PAIRS, folds=4, fold=fold).validation for fold in range(4)]
    assert max(map(len, made)) - min(map(len, made)) <= 1
    similar = [sum(pair.label == SIMILAR for pair in fold) for fold in made]
    assert max(similar) - min(similar) <= 1


def test_the_order_of_the_table_does_not_matter() -> None:
    one, two = (split(each, folds=5, fold=2).validation for each in (PAIRS, PAIRS[::-1]))
    assert {pair.key for pair in one} == {pair.key for pair in two}


def test_images_kept_apart_stand_on_one_side_only() -> None:
    made = split(PAIRS, folds=4, fold=1, apart="images")
    assert made.shared_images == 0
    assert made.left_out == len(PAIRS) - len(made.training) - len(made.validation) > 0
    assert split(PAIRS, folds=4, fold=1).shared_images > 0


def test_a_column_of_folds_decides() -> None:
    given = [replace(pair, fold=7 if number < 10 else 3) for number, pair in enumerate(PAIRS)]
    assert len(split(given, folds=5, fold=7).validation) == 10
    with pytest.raises(UsageError, match="--fold 0: expected 3 to 7"):
        split(given, folds=5, fold=0)


def test_a_fold_for_some_pairs_only_is_an_error_with_the_line() -> None:
    given = [replace(PAIRS[0], fold=1), replace(PAIRS[1], where="pairs.csv:3")]
    with pytest.raises(UsageError, match=r"pairs.csv:3: the fold is empty"):
        split(given, folds=5, fold=1)


def test_one_fold_holds_nothing_out() -> None:
    with pytest.raises(UsageError, match="at least two"):
        split(PAIRS, folds=1, fold=0)


def test_too_few_pairs_for_a_side_are_an_error() -> None:
    with pytest.raises(UsageError, match="no pairs left for"):
        split(PAIRS[:1], folds=5, fold=0)


def test_validation_pairs_are_taken_out_of_training_in_either_order() -> None:
    swapped = [replace(pair, first=pair.second, second=pair.first) for pair in PAIRS[:5]]
    made = apart_from(PAIRS, swapped)
    assert len(made.training) == len(PAIRS) - 5
    assert made.left_out == 5
