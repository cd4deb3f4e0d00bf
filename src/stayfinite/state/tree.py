"""Encode a nested Python structure as plain JSON and named tensors, and decode it. No pickle.

JSON has no tuples, bytes, infinities or non-string keys; these become marked objects such as ``{"!": "tuple", "v": [1,
2]}``. All other values are written as they are, so the file is readable.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stayfinite.errors import StateError

STORED = {
    getattr(torch, name): code
    for name, code in {
        "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64",
        "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
        "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
        "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0",
        "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ",
    }.items()
    if hasattr(torch, name)
}  # fmt: skip
"""Dtypes of a safetensors file, with their names there."""


MARK = "!"

NATIVE_BITS = 63
"""Larger integers are written as hex: other JSON readers lose them, and Python limits decimals."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """An encoded structure."""

    tree: Any
    """Plain JSON, without NaN."""

    tensors: dict[str, Tensor]
    """The original tensors, not copies, by their path in the structure; tied ones once."""


def encode(value: Any, path: str = "") -> Encoded:
    """Encode a structure.

    ``decode`` returns an equal one, except that a defaultdict becomes a dict, a numpy or enum number a plain one,
    ``torch.Size`` a tuple, a parameter a tensor.

    Arguments:
        value: dicts, lists, tuples, sets, numbers, strings, bytes, tensors, numpy arrays, dtypes and devices.
        path: prefix of the tensors' names.

    Raises:
        StateError: something cannot be saved; the message says where it is.
    """
    encoder = _Encoder()
    return Encoded(tree=encoder.encode(value, path), tensors=encoder.tensors)


def decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Decode a structure; tied tensors become one object.

    Raises:
        StateError: the tree is damaged, or a tensor is missing.
    """
    try:
        return _decode(tree, tensors)
    except (TypeError, ValueError, AttributeError, binascii.Error, RecursionError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"a saved tree is damaged: {type(error).__name__}: {error}") from error


class _Encoder:
    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._names: dict[Any, str] = {}
        self._open: set[int] = set()

    def encode(self, value: Any, path: str) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic):
            value = value.item()
        match value:
            case None | bool():
                return value
            case int():
                number = int(value)
                return number if number.bit_length() <= NATIVE_BITS else _marked("int", hex(number))
            case float():
                return float(value) if math.isfinite(value) else _marked("float", repr(float(value)))
            case str():
                return str.__str__(value)
            case bytes() | bytearray():
                return _marked("bytes", base64.b64encode(value).decode("ascii"))
            case torch.dtype() | torch.device():
                return _marked(type(value).__name__, str(value).removeprefix("torch."))
            case Tensor():
                return _marked("tensor", self._tensor(value, path))
        if numpy is not None and isinstance(value, numpy.ndarray):
            return _marked("array", self._array(value, path))
        if id(value) in self._open:
            raise StateError(f"{path or 'the state'} contains itself and cannot be saved")
        self._open.add(id(value))
        try:
            return self._collection(value, path)
        except RecursionError:
            raise StateError(f"{path[:80] or 'the state'} … is nested too deeply to save") from None
        finally:
            self._open.discard(id(value))

    def _collection(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            kind = "counter" if isinstance(value, Counter) else "ordered" if isinstance(value, OrderedDict) else "dict"
            if kind == "dict" and all(isinstance(key, str) and key != MARK for key in value):
                return {str.__str__(key): self.encode(each, _below(path, key)) for key, each in value.items()}
            if any(isinstance(key, Tensor) for key in value):
                raise StateError(f"{path or 'the state'} has a tensor as a key, which cannot be saved")
            pairs = [
                [self.encode(key, f"a key of {path}"), self.encode(each, _below(path, key))]
                for key, each in value.items()
            ]
            return _marked(kind, pairs)
        if isinstance(value, list):
            return self._items(value, path)
        if type(value) in (tuple, torch.Size):
            return _marked("tuple", self._items(value, path))
        if isinstance(value, set):
            return _marked("set", [self.encode(each, f"a member of {path}") for each in value])
        raise StateError(
            f"{path or 'the state'} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be saved "
            "without pickle",
            fix="let state_dict() return numbers, strings, tensors, and lists, tuples and dicts of them",
        )

    def _items(self, values: Sequence[Any], path: str) -> list[Any]:
        # Python's random state is 625 numbers, in every snapshot.
        if all(type(each) is int for each in values) and max(map(int.bit_length, values), default=0) <= NATIVE_BITS:
            return [*values]
        return [self.encode(each, _below(path, i)) for i, each in enumerate(values)]

    def _tensor(self, tensor: Tensor, path: str) -> str:
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            what = "meta" if tensor.is_meta else "quantized" if tensor.is_quantized else f"{tensor.layout}"
            raise StateError(f"{path or 'the state'} is a {what} tensor, which cannot be saved")
        if tensor.dtype not in STORED:
            raise StateError(f"{path or 'the state'} is a tensor of {tensor.dtype}, which safetensors does not support")
        key: Any = id(tensor)
        if type(tensor) in (Tensor, torch.nn.Parameter, torch.nn.Buffer) and tensor.numel():
            key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        if key not in self._names:
            name, again = path, 0
            while name in self.tensors:
                again += 1
                name = f"{path}~{again}"
            self._names[key] = name
            self.tensors[name] = tensor.detach()
        return self._names[key]

    def _array(self, array: Any, path: str) -> str:
        try:
            tensor = torch.from_numpy(array.copy(order="C"))
        except TypeError as error:
            raise StateError(f"{path} is a numpy array of {array.dtype}, which cannot be saved") from error
        return self._tensor(tensor, path)


def _decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, list):
        return [_decode(each, tensors) for each in tree]
    if not isinstance(tree, dict):
        return tree
    if MARK not in tree:
        return {key: _decode(each, tensors) for key, each in tree.items()}
    kind: Any = tree[MARK]
    inner: Any = tree.get("v")
    match kind:
        case "int":
            return int(inner, 16)
        case "float":
            return float(inner)
        case "bytes":
            return base64.b64decode(inner, validate=True)
        case "dtype":
            return next(dtype for dtype in STORED if str(dtype) == f"torch.{inner}")
        case "device":
            return torch.device(inner)
        case "tensor" | "array":
            if inner not in tensors:
                raise StateError(f"the saved tensor {inner!r} is missing")
            return tensors[inner] if kind == "tensor" else tensors[inner].numpy().copy()
        case "tuple":
            return tuple(_decode(each, tensors) for each in inner)
        case "set":
            return {_decode(each, tensors) for each in inner}
        case "dict" | "ordered" | "counter":
            pairs = [(_decode(key, tensors), _decode(each, tensors)) for key, each in inner]
            return dict(pairs) if kind == "dict" else OrderedDict(pairs) if kind == "ordered" else Counter(dict(pairs))
    raise StateError(
        f"a saved tree holds a {kind!r}, which this version of stayfinite does not support",
        fix="use the version of stayfinite that wrote it",
    )


def _marked(kind: str, inner: Any) -> dict[str, Any]:
    return {MARK: kind, "v": inner}


def _below(path: str, key: object) -> str:
    word = "/".join(str(each) for each in key) if isinstance(key, tuple) else str(key)
    return f"{path}.{word}" if path else word
