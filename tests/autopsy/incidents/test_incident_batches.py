"""A batch goes to the disk and comes back, whatever it is made of; what cannot go is named."""

from __future__ import annotations

import json
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from stayfinite.autopsy.incidents.batch_form import own_copy, put_together, take_apart, tensors_of
from stayfinite.errors import StateError
from stayfinite.state.tree import STORED


def there_and_back(batch):
    form = take_apart(batch)
    return put_together(json.loads(json.dumps(form.tree)), {name: t.clone() for name, t in form.tensors.items()})


plain = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | some.text() | some.binary(),
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.dictionaries(some.text(), inner, max_size=4)
        | some.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=20,
)


@given(plain)
def test_plain_structures_come_back_equal(batch):
    assert there_and_back(batch) == batch


@pytest.mark.parametrize("dtype", [*STORED, torch.complex128])
def test_tensors_of_every_dtype_come_back_to_the_last_bit(dtype):
    tensor = torch.arange(64, dtype=torch.uint8).view(dtype) if dtype is not torch.bool else torch.tensor([True, False])
    back = there_and_back({"x": tensor.reshape(2, -1)})["x"]
    assert back.dtype is dtype
    assert back.shape == (2, tensor.numel() // 2)
    assert back.contiguous().view(torch.uint8).flatten().tolist() == tensor.view(torch.uint8).tolist()


def test_empty_transposed_and_scalar_tensors_come_back():
    batch = [torch.empty(0, 3), torch.arange(6.0).reshape(2, 3).t(), torch.tensor(2.5), torch.zeros(3, 2)[:, 1]]
    for one, other in zip(batch, there_and_back(batch), strict=True):
        assert torch.equal(one, other)


def test_one_tensor_under_two_names_is_written_once():
    ids = torch.arange(4)
    form = take_apart({"input_ids": ids, "labels": ids})
    assert len(form.tensors) == 1
    back = there_and_back({"input_ids": ids, "labels": ids})
    assert back["labels"] is back["input_ids"]


def test_a_batch_encoding_comes_back_with_items_attributes_and_to():
    transformers = pytest.importorskip("transformers")
    batch = transformers.BatchEncoding({"input_ids": torch.arange(6).reshape(2, 3), "labels": torch.ones(2, 3)})
    form = take_apart(batch)
    assert form.stands_for == {"": "transformers.tokenization_utils_base.BatchEncoding"}
    back = there_and_back(batch).to("cpu")
    assert torch.equal(back["input_ids"], batch["input_ids"])
    assert torch.equal(back.labels, batch["labels"])
    assert sorted({**back}) == ["input_ids", "labels"]
    with pytest.raises(AttributeError, match="no 'attention_mask'; it has 'input_ids', 'labels'"):
        _ = back.attention_mask


Pair = namedtuple("Pair", "left right")


@dataclass
class Sample:
    x: torch.Tensor
    words: list[str]


def test_named_tuples_dataclasses_and_objects_keep_their_names():
    batch = [Pair(torch.ones(2), "a"), Sample(torch.zeros(3), ["b"]), SimpleNamespace(y=torch.ones(1), n=4)]
    pair, sample, thing = there_and_back(batch)
    assert torch.equal(pair.left, torch.ones(2))
    assert pair[1] == pair.right == "a"
    assert torch.equal(sample.x, torch.zeros(3))
    assert sample.words == ["b"]
    assert thing.n == 4


def test_packed_sequences_come_back_as_such():
    batch = pack_sequence([torch.ones(3, 2), torch.zeros(2, 2)])
    back = there_and_back({"packed": batch})["packed"]
    assert isinstance(back, PackedSequence)
    assert torch.equal(back.data, batch.data)
    assert torch.equal(back.batch_sizes, batch.batch_sizes)


def test_numpy_arrays_and_numbers_come_back():
    back = there_and_back({"a": np.arange(6.0).reshape(2, 3), "n": np.int64(3), "m": OrderedDict(b=1)})
    assert np.array_equal(back["a"], np.arange(6.0).reshape(2, 3))
    assert back["n"] == 3
    assert back["m"]["b"] == 1


def test_what_cannot_be_written_is_named_and_left_out():
    batch = {
        "x": torch.ones(2),
        "sparse": torch.eye(3).to_sparse(),
        "words": np.array([object()], dtype=object),
        "call": len,
        "nested": [iter(())],
    }
    form = take_apart(batch)
    assert len(form.left_out) == 4
    assert any(each.startswith("sparse (torch.Tensor)") for each in form.left_out)
    assert any(each.startswith("nested.0 (list_iterator)") or "nested.0" in each for each in form.left_out)
    back = there_and_back(batch)
    assert torch.equal(back["x"], torch.ones(2))
    assert back["sparse"] is back["call"] is None


def test_a_batch_that_contains_itself_is_cut_off():
    batch = {"x": torch.ones(1)}
    batch["self"] = batch
    assert any("nested too deeply" in each for each in take_apart(batch).left_out)


@pytest.mark.parametrize(
    "tree",
    [{"stayfinite": "python", "v": "print(1)"}, {"stayfinite": "row", "v": 3}, {"stayfinite": "fields", "v": [1]},
     {"stayfinite": "packed", "v": None}, {"stayfinite": "bytes", "dtype": "load", "shape": [1], "v": 1},
     {"!": "tensor", "v": "gone"}],
)  # fmt: skip
def test_a_damaged_or_foreign_tree_is_refused_and_not_guessed(tree):
    with pytest.raises(StateError):
        put_together(tree, {})


# -- holding on to it ------------------------------------------------------------------------------------------------


def test_what_a_forward_pass_does_to_the_containers_leaves_the_original_alone():
    batch = {"x": torch.ones(1), "more": [{"y": torch.ones(1)}]}
    mine = own_copy(batch)
    mine.pop("x")
    mine["more"][0].clear()
    assert sorted(batch) == ["more", "x"]
    assert batch["more"][0]["y"] is not None
    assert own_copy(batch)["x"] is batch["x"]


@pytest.mark.parametrize("kind", [UserDict, OrderedDict])
def test_an_opaque_mapping_is_held_in_a_twin_of_its_own_kind(kind):
    batch = kind(x=torch.arange(4), y=torch.ones(4))
    mine = own_copy(batch)
    assert type(mine) is kind
    batch.pop("x")
    assert mine["x"].tolist() == [0, 1, 2, 3]


def test_tensors_are_found_in_nested_batches_and_long_lists_are_left_alone():
    x, y, z = (torch.full((1,), float(i)) for i in range(3))
    assert tensors_of({"x": x, "more": [y, {"z": z}], "words": ["a", 1], "none": None}) == [x, y, z]
    assert tensors_of([x] * 1000) == []
