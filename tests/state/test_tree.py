from __future__ import annotations

import json
import math
from collections import Counter, OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stayfinite.errors import StateError
from stayfinite.state.tree import STORED, decode, encode

numbers = st.integers() | st.integers(min_value=2**60, max_value=2**200) | st.floats(allow_nan=True)
leaves = (
    st.none() | st.booleans() | numbers | st.text() | st.binary() | st.sampled_from([torch.float16, torch.bfloat16])
)
plain_keys = st.text() | st.integers() | st.none()
keys = plain_keys | st.tuples(plain_keys, plain_keys)


@st.composite
def tensors(draw: Any) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    dtype = draw(st.sampled_from(sorted(STORED, key=str)))
    size = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
    raw = draw(st.binary(min_size=size, max_size=size))
    if dtype is torch.bool:
        raw = bytes(byte & 1 for byte in raw)
    flat = torch.frombuffer(bytearray(raw), dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)
    return flat.view(dtype).view(shape)


structures = st.recursive(
    leaves | tensors(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        bits = [t.contiguous().view(-1).view(torch.uint8) if t.numel() else torch.empty(0) for t in (a, b)]
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(x, y) for x, y in zip(a.values(), b.values(), strict=True))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)


def there_and_back(value: Any) -> Any:
    encoded = encode(value)
    text = json.dumps(encoded.tree, allow_nan=False)
    return decode(json.loads(text), encoded.tensors)


@settings(max_examples=150, deadline=None)
@given(structures)
def test_any_structure_comes_back_as_it_was(value: Any) -> None:
    assert same(value, there_and_back(value))


def test_kinds_of_dicts_and_numbers_of_numpy() -> None:
    value = {
        "d": defaultdict(int, {"a": 1}), "o": OrderedDict([("x", 1), ("!", 2)]), "c": Counter({30: 1, 80: 2}),
        "n": [np.float32(0.5), np.int64(3), np.bool_(True)], "a": np.arange(6, dtype=np.uint32).reshape(2, 3),
        "s": torch.Size([1, 2]), "set": {1, 2}, "mark": {"!": "tuple", "v": [1]}, "device": torch.device("cpu"),
    }  # fmt: skip
    back = there_and_back(value)
    assert back["d"] == {"a": 1}
    assert type(back["d"]) is dict
    assert back["o"] == value["o"]
    assert type(back["o"]) is OrderedDict
    assert back["c"] == value["c"]
    assert sorted(back["c"].elements()) == [30, 80, 80]
    assert back["n"] == [0.5, 3, True]
    assert np.array_equal(back["a"], value["a"])
    assert back["a"].dtype == np.uint32
    assert back["s"] == (1, 2)
    assert back["set"] == {1, 2}
    assert back["mark"] == value["mark"]
    assert back["device"] == torch.device("cpu")


def test_tied_tensors_are_saved_once_and_come_back_tied() -> None:
    weight = torch.nn.Parameter(torch.randn(3, 2))
    encoded = encode({"embed": weight, "head": weight.data, "other": weight.data.t()}, "m")
    assert list(encoded.tensors) == ["m.embed", "m.other"]
    back = decode(encoded.tree, encoded.tensors)
    assert back["embed"] is back["head"]


def test_names_that_would_collide_stay_apart() -> None:
    value = {"a": {"b": torch.zeros(1)}, "a.b": torch.ones(1), ("a", "b"): torch.full((1,), 2.0)}
    assert same(value, there_and_back(value))


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, {"f": lambda x: x}]}, "a.1.f is a builtins.function"),
        ({"a": (object(),)}, "a.0 is a builtins.object"),
        ({"a": namedtuple("Point", "x y")(1, 2)}, "a is a"),
        ({"a": torch.eye(2).to_sparse()}, "a is a torch.sparse_coo tensor"),
        ({"a": torch.empty(2, device="meta")}, "a is a meta tensor"),
        ({"a": torch.zeros(2, dtype=torch.complex128)}, "a is a tensor of torch.complex128"),
        ({"a": np.array(["x"])}, "a is a numpy array"),
        ({torch.zeros(1): 1}, "a tensor as a key"),
    ],
)
def test_what_cannot_be_saved_is_named_with_its_place(value: Any, where: str) -> None:
    with pytest.raises(StateError, match=where):
        encode(value)


def test_a_structure_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append({"again": loop})
    with pytest.raises(StateError, match="0.again contains itself"):
        encode(loop)


@pytest.mark.parametrize(
    "tree",
    [{"!": "tensor", "v": "gone"}, {"!": "bytes", "v": "%"}, {"!": "pickle", "v": "x"}, {"!": "dict", "v": [[1]]},
     {"!": "int", "v": None}, {"!": "dict", "v": [[[], 1]]}, {"!": "tensor", "v": []}],
)  # fmt: skip
def test_a_damaged_tree_is_refused(tree: Any) -> None:
    with pytest.raises(StateError):
        decode({"a": tree}, {})
