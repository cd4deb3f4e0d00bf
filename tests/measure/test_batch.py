import pytest
import torch

from stayfinite.measure.batch import LONGEST, batch_in_words


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        (torch.zeros(8, 3), "float32[8, 3]"),
        ({"ids": torch.zeros(2, 4, dtype=torch.int64), "n": 3}, "ids int64[2, 4], n int"),
        ((torch.zeros(2), torch.zeros((), dtype=torch.bfloat16)), "(float32[2], bfloat16[])"),
        ([1, 2.0, "a", None, 5], "(int, float, str, NoneType, …)"),
        ("a sentence", "str"),
        (None, "NoneType"),
    ],
)
def test_a_batch_is_put_into_words(batch, words):
    assert batch_in_words(batch) == words


def test_a_long_description_is_cut():
    words = batch_in_words({f"column_{i}": torch.zeros(1) for i in range(100)})
    assert len(words) == LONGEST
    assert words.endswith("…")
