"""Encode a batch as plain JSON and named tensors, and decode it. No pickle.

Extends ``state.tree`` to ``BatchEncoding``, dataclasses, named tuples and packed sequences; these come back as objects
with the same items and attributes. What cannot be written is left out and listed.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections import UserDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from stayfinite.errors import StateError
from stayfinite.state.tree import STORED, decode, encode

LONG = 64
"""Longer lists are treated as data, such as words, and not searched."""


def own_copy(batch: Any) -> Any:
    """The same tensors in new containers, so items that a forward pass pops or adds do not change the original."""
    kind = type(batch)
    if kind is dict:
        return {name: own_copy(item) for name, item in batch.items()}
    if kind is list or kind is tuple:
        return kind(batch) if len(batch) > LONG else kind([own_copy(item) for item in batch])
    if isinstance(batch, UserDict):
        twin = copy.copy(batch)
        twin.data = own_copy(batch.data)
        return twin
    return copy.copy(batch) if isinstance(batch, dict | list) else batch


def tensors_of(batch: Any) -> list[Tensor]:
    """Tensors of a batch that are found without a deep search."""
    if isinstance(batch, Tensor):
        return [batch]
    items: Iterable[Any]
    if isinstance(batch, dict | UserDict):
        items = batch.values()
    elif isinstance(batch, list | tuple) and len(batch) <= LONG:
        items = batch
    else:
        return []
    found: list[Tensor] = []
    for item in items:
        if isinstance(item, Tensor):
            found.append(item)
        elif not isinstance(item, str | int | float):
            found += tensors_of(item)
    return found


KIND = "stayfinite"
"""Key that marks an encoded object."""

ANOTHER = "use another incident of the run"
"""Fix for a damaged incident."""

DEEPEST = 32
SHOWN = 20


class Fields(dict[str, Any]):
    """Items that are also attributes, replacing an unavailable class: a ``BatchEncoding``, a dataclass."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the batch has no {name!r}; it has {', '.join(map(repr, self))}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move every tensor, as ``BatchEncoding.to`` does."""
        for name, item in self.items():
            if isinstance(item, Tensor):
                self[name] = item.to(*args, **kwargs)
        return self


class Row(tuple[Any, ...]):
    """A named tuple whose class is unavailable."""

    _fields: tuple[str, ...]

    @classmethod
    def of(cls, fields: tuple[str, ...], values: list[Any]) -> Row:
        """Create a row from names and values."""
        row = cls(values)
        row._fields = fields
        return row

    def __getattr__(self, name: str) -> Any:
        if name != "_fields" and name in self._fields:
            return self[self._fields.index(name)]
        raise AttributeError(name)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchForm:
    """An encoded batch."""

    tree: Any
    tensors: dict[str, Tensor]
    """The original tensors, not copies, by path."""
    left_out: list[str] = field(default_factory=list)
    """What could not be written, with its path."""
    stands_for: dict[str, str] = field(default_factory=dict)
    """Original classes of replaced objects, by path."""

    @property
    def nbytes(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


def take_apart(batch: Any) -> BatchForm:
    """Encode a batch. Never fails: what cannot be written is left out."""
    walk = _Walk()
    encoded = encode(walk.plain(batch, "", 0), "batch")
    return BatchForm(
        tree=encoded.tree, tensors=encoded.tensors, left_out=walk.left_out[:SHOWN], stands_for=walk.stands_for
    )


def put_together(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Decode a batch; what was left out is None.

    Raises:
        StateError: the tree is damaged, or a tensor is missing.
    """
    return _raised(decode(tree, tensors))


class _Walk:
    """Converts a batch for ``encode``."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self.stands_for: dict[str, str] = {}

    def plain(self, value: Any, path: str, depth: int) -> Any:
        if depth > DEEPEST:
            return self._without(value, path, "is nested too deeply")
        match value:
            case None | bool() | int() | float() | str() | bytes() | bytearray() | torch.dtype() | torch.device():
                return value
            case Tensor():
                return self._tensor(value, path)
            case PackedSequence():
                parts = [value.data, value.batch_sizes, value.sorted_indices, value.unsorted_indices]
                return {
                    KIND: "packed",
                    "v": [self.plain(part, f"{path}.{i}", depth + 1) for i, part in enumerate(parts)],
                }
            case Enum():
                return self._without(value, path)
            case tuple() if hasattr(value, "_fields"):
                self.stands_for[path] = _class_of(value)
                items = [self.plain(item, _below(path, i), depth + 1) for i, item in enumerate(value)]
                return {KIND: "row", "fields": list(map(str, value._fields)), "v": items}
            case list() | tuple():
                items = [self.plain(item, _below(path, i), depth + 1) for i, item in enumerate(value)]
                return items if isinstance(value, list) else tuple(items)
            case set() | frozenset():
                return self._tried(set(value), path)
            case dict() if type(value) is dict and KIND not in value:
                return {
                    key: self.plain(item, _below(path, key), depth + 1)
                    for key, item in value.items()
                    if self._is_key(key, path)
                }
            case Mapping():
                return self._fields(value, dict(value.items()), path, depth)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
            return self._tried(value, path)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            held = {each.name: getattr(value, each.name, None) for each in dataclasses.fields(value)}
            return self._fields(value, held, path, depth)
        attributes: Any = getattr(value, "__dict__", None)
        if attributes and not callable(value) and not isinstance(value, type):
            return self._fields(value, attributes, path, depth)
        return self._without(value, path)

    def _fields(self, value: Any, held: Mapping[Any, Any], path: str, depth: int) -> Any:
        self.stands_for[path] = _class_of(value)
        items = {
            str(key): self.plain(item, _below(path, key), depth + 1)
            for key, item in held.items()
            if self._is_key(key, path)
        }
        return {KIND: "fields", "v": items}

    def _tensor(self, tensor: Tensor, path: str) -> Any:
        tensor = tensor.detach()
        if type(tensor) is not Tensor:
            tensor = tensor.as_subclass(Tensor)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested:
            return self._without(tensor, path, "is a tensor not stored as one block")
        if tensor.dtype in STORED:
            return tensor.resolve_conj().resolve_neg()
        # A dtype unknown to safetensors, such as complex128: keep its bytes.
        try:
            raw = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
        except RuntimeError:
            return self._without(tensor, path, f"is a tensor of {tensor.dtype}")
        dtype = str(tensor.dtype).removeprefix("torch.")
        return {KIND: "bytes", "dtype": dtype, "shape": list(tensor.shape), "v": raw}

    def _tried(self, value: Any, path: str) -> Any:
        try:
            encode(value)
        except StateError:
            return self._without(value, path)
        return value

    def _is_key(self, key: Any, path: str) -> bool:
        if isinstance(key, str | int | float | bool | bytes | None):
            return True
        self._without(key, path, "is a key that cannot be written")
        return False

    def _without(self, value: Any, path: str, why: str = "cannot be written without pickling it") -> dict[str, Any]:
        self.left_out.append(f"{path or 'the batch'} ({_class_of(value)}) {why}")
        return {KIND: "left out", "v": _class_of(value)}


def _raised(value: Any) -> Any:
    if isinstance(value, list):
        return [_raised(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_raised(item) for item in value)
    if not isinstance(value, dict):
        return value
    kind = value.get(KIND)
    if kind is None:
        return {key: _raised(item) for key, item in value.items()}
    inner: Any = value.get("v")
    try:
        match kind:
            case "left out":
                return None
            case "fields":
                return Fields({key: _raised(item) for key, item in inner.items()})
            case "row":
                return Row.of(tuple(map(str, value["fields"])), [_raised(item) for item in inner])
            case "packed":
                return PackedSequence(*inner)
            case "bytes":
                dtype = getattr(torch, str(value["dtype"]))
                if not isinstance(inner, Tensor) or not isinstance(dtype, torch.dtype):
                    raise StateError("a tensor of the saved batch is damaged", fix=ANOTHER)
                return inner.view(dtype).reshape(value["shape"])
    except (TypeError, KeyError, AttributeError, RuntimeError, ValueError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"the saved batch is damaged: {type(error).__name__}: {error}", fix=ANOTHER) from error
    raise StateError(
        f"the saved batch holds a {kind!r}, which this version of stayfinite does not support",
        fix="read it with the stayfinite that wrote it",
    )


def _class_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _below(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
