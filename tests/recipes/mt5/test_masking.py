from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stayfinite.errors import UsageError
from stayfinite.recipes.language.blocks import PrefixLanguageModel, SpanCorruption, spans_of

END = 1
SENTINELS = tuple(range(1099, 999, -1))
blocks = st.lists(st.integers(2, 999), min_size=2, max_size=700)
seeds = st.integers(0, 2**62)
densities = st.floats(0.01, 0.99)
spans = st.floats(1, 20)


@settings(max_examples=200, deadline=None)
@given(blocks, seeds, densities, spans)
def test_input_and_target_give_the_text_back(block, seed, density, span):
    masking = SpanCorruption(sentinels=SENTINELS, end=END, density=density, mean_span=span)
    assert masking.whole(masking(block, seed)) == block


@settings(max_examples=200, deadline=None)
@given(blocks, seeds, densities, spans)
def test_the_target_is_never_the_input_and_no_token_is_in_both(block, seed, density, span):
    masking = SpanCorruption(sentinels=SENTINELS, end=END, density=density, mean_span=span)
    example = masking(block, seed)
    plain = [[token for token in side if token < 1000] for side in (example.source, example.target)]
    assert example.source != example.target
    assert len(plain[0]) + len(plain[1]) == len(block) + 2  # an end mark each
    assert all(len(side) > 1 for side in plain)


@settings(max_examples=200, deadline=None)
@given(blocks, seeds)
def test_sentinels_come_in_order_and_one_more_closes_the_target(block, seed):
    masking = SpanCorruption(sentinels=SENTINELS, end=END)
    example = masking(block, seed)
    given_ = [token for token in example.source if token >= 1000]
    asked = [token for token in example.target if token >= 1000]
    assert given_ == list(SENTINELS[: len(given_)])
    assert asked == list(SENTINELS[: len(given_) + 1])
    assert example.source[-1] == END
    assert example.target[-2:] == [asked[-1], END]
    # No two gaps side by side: they would be one.
    assert all(not {one, two} <= set(SENTINELS) for one, two in zip(example.source, example.source[1:], strict=False))


def test_fifteen_per_cent_are_taken_out_in_spans_of_three():
    masking = SpanCorruption(sentinels=SENTINELS, end=END)
    block = list(range(2, 402))
    examples = [masking(block, seed) for seed in range(50)]
    taken = [sum(token < 1000 for token in example.target) - 1 for example in examples]
    gaps = [sum(token >= 1000 for token in example.source) for example in examples]
    assert set(taken) == {60}
    assert set(gaps) == {20}


def test_every_place_of_a_short_text_can_be_a_gap():
    masking = SpanCorruption(sentinels=SENTINELS, end=END)
    block = list(range(2, 14))
    gone = {token for seed in range(200) for token in masking(block, seed).target if token < 1000}
    assert gone == {END, *block}


def test_the_same_seed_gives_the_same_mask_and_another_seed_another():
    masking = SpanCorruption(sentinels=SENTINELS, end=END)
    block = list(range(2, 102))
    assert masking(block, 7) == masking(block, 7)
    assert len({tuple(masking(block, seed).target) for seed in range(20)}) == 20


@settings(max_examples=100, deadline=None)
@given(blocks, seeds)
def test_a_prefix_and_its_continuation_are_the_text(block, seed):
    masking = PrefixLanguageModel(end=END)
    example = masking(block, seed)
    assert masking.whole(example) == block
    assert len(example.source) > 1
    assert len(example.target) > 1
    assert example.source[-1] == example.target[-1] == END


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"sentinels": [9]}, "1 sentinels"),
        ({"density": 0.0}, "share between 0 and 1"),
        ({"mean_span": float("nan")}, "at least 1"),
    ],
)
def test_a_corruption_that_cannot_work_is_refused(changed, said):
    with pytest.raises(UsageError, match=said):
        SpanCorruption(**({"sentinels": SENTINELS, "end": END} | changed))


def test_what_a_model_wrote_is_taken_apart_by_its_sentinels():
    written = [0, 1099, 5, 6, 1098, 7, 1097, 1, 8, 8]
    assert spans_of(written, SENTINELS, (0, 1)) == {1099: [5, 6], 1098: [7], 1097: []}
    assert spans_of([0, 5, 6, 1], SENTINELS, (0, 1)) == {1099: [5, 6]}
    assert spans_of([], SENTINELS, (0, 1)) == {1099: []}
