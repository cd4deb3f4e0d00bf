"""Tensors described by a torch file's pickle: names, shapes, and the part of a storage that each one views."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stayfinite.readers.checkpoints.facts import BYTES, MOST_AXES, OF_STORAGE, OF_TORCH, FileFacts
from stayfinite.readers.pickles.inert import Global, Inert, Made, Pairs, Persistent

_DANGEROUS = frozenset({
    "os", "posix", "nt", "subprocess", "sys", "shutil", "socket", "pty", "runpy", "importlib", "code", "codeop",
    "ctypes", "multiprocessing", "webbrowser", "asyncio", "pickle", "marshal", "commands", "timeit", "pdb", "cProfile",
    "profile", "trace", "http", "urllib", "requests",
})  # fmt: skip
_DANGEROUS_BUILTINS = frozenset({
    "eval", "exec", "compile", "open", "__import__", "getattr", "setattr", "breakpoint", "input", "globals",
})  # fmt: skip
_FURNITURE = ("torch", "collections", "numpy", "_codecs", "copyreg", "builtins", "__builtin__", "ml_dtypes")


def is_dangerous(found: Global) -> bool:
    """Whether malware uses this to run code; no checkpoint needs it."""
    module, *rest = found.module.split(".")
    if module in ("builtins", "__builtin__"):
        return found.name.split(".")[0] in _DANGEROUS_BUILTINS
    if module == "torch":
        return found.name.split(".")[-1] in ("load", "system", "eval") or "hub" in rest
    return module in _DANGEROUS


def tell_of(facts: FileFacts, found: Iterable[Global]) -> None:
    """Record foreign globals, which ``torch.load(weights_only=True)`` may refuse, and report dangerous ones."""
    found = tuple(found)
    foreign = [str(each) for each in found if each.module.split(".")[0] not in _FURNITURE]
    facts.strangers = (*facts.strangers, *foreign)
    dangerous = [str(each) for each in found if is_dangerous(each)]
    if dangerous:
        facts.complain("dangerous", f"loading it would call {', '.join(dangerous[:5])}; none of it was run")


DEEPEST = 60
LARGEST = 1 << 62
_UNNAMED = frozenset({"_parameters", "_buffers", "_modules"})
_MARKS = frozenset({
    "global_step", "global_steps", "step", "steps", "iteration", "iter", "iter_num", "num_updates",
    "dp_world_size", "mp_world_size",
})  # fmt: skip
_REBUILT = ("_rebuild_parameter", "_rebuild_parameter_with_state")


class Storage(NamedTuple):
    """A block of values outside the pickle."""

    key: str
    dtype: str
    elements: int


class Pickled(NamedTuple):
    """A tensor: a view of a storage."""

    name: str
    storage: Storage
    dtype: str
    start: int
    """In elements of its own dtype."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(slots=True)
class Contents:
    """The contents of a pickle."""

    tensors: list[Pickled] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    marks: dict[str, int] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    """Tensors that could not be interpreted."""


def contents_of(pickle: Inert) -> Contents:
    """Walk through all objects once, at any depth and with shared references."""
    found = Contents()
    seen: set[int] = set()
    todo: list[tuple[Any, tuple[str, ...]]] = [(pickle.value, ())]
    while todo:
        value, path = todo.pop()
        if isinstance(value, float):
            if not math.isfinite(value) and len(found.numbers) < 1000:
                found.numbers[".".join(path)] = value
            continue
        if not isinstance(value, Made | Pairs | list | tuple) or isinstance(value, Global) or id(value) in seen:
            continue
        seen.add(id(value))
        if len(path) > DEEPEST:
            found.odd.append(".".join(path[:3]) + " …: nested too deeply")
            continue
        if isinstance(value, Made) and (form := _rebuilding(value)) is not None:
            _add(found, ".".join(path), *form)
            # Subclasses hold more than the values, such as the scales of a quantized weight.
            todo.extend((each, path) for each in (value.state, *_outer(value)) if each is not None)
            continue
        todo.extend(reversed(_children(value, path, found)))
    return found


def _children(value: Any, path: tuple[str, ...], found: Contents) -> list[tuple[Any, tuple[str, ...]]]:
    if isinstance(value, Pairs):
        return _named(value.pairs, path, found)
    if isinstance(value, Made):
        if isinstance(value.callee, Global) and value.callee.name in _REBUILT and isinstance(value.args, tuple):
            return [(each, path) for each in value.args[:1]] + [(value.state, path)]
        parts = _named(value.pairs, path, found) + [(each, (*path, str(i))) for i, each in enumerate(value.items)]
        return [*parts, (value.args, path), (value.names, path), (value.state, path)]
    if isinstance(value, Persistent):
        return []
    many = len(value) > 1
    return [(each, (*path, str(i)) if many else path) for i, each in enumerate(value)]


def _named(pairs: list[tuple[Any, Any]], path: tuple[str, ...], found: Contents) -> list[tuple[Any, tuple[str, ...]]]:
    parts = []
    for key, value in pairs:
        plain = isinstance(key, str) or (isinstance(key, int) and abs(key) < LARGEST)
        name = str(key) if plain else type(key).__name__
        if not path and name in _MARKS and type(value) is int and 0 <= value < LARGEST:
            found.marks[name] = value
        parts.append((value, path if name in _UNNAMED else (*path, name[:200])))
    return parts


def _outer(value: Made) -> tuple[Any, ...]:
    """The parts of ``_rebuild_from_type_v2(function, type, arguments, state)`` other than the tensor."""
    if isinstance(value.callee, Global) and value.callee.name == "_rebuild_from_type_v2":
        return tuple(value.args[3:])
    return ()


def _rebuilding(value: Made) -> tuple[str, tuple[Any, ...]] | None:
    """Name and arguments of torch's rebuild function, if the value is such a call."""
    callee, args = value.callee, value.args
    if not isinstance(callee, Global) or not isinstance(args, tuple):
        return None
    if callee.name == "_rebuild_from_type_v2" and len(args) >= 3:
        callee, args = args[0], args[2]
        if not isinstance(callee, Global) or not isinstance(args, tuple):
            return None
    known = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor")
    return (callee.name, args) if callee.name in known else None


def _add(found: Contents, name: str, function: str, args: tuple[Any, ...]) -> None:
    try:
        storage = _storage(args[0])
        dtype: str | None = storage.dtype
        if function == "_rebuild_tensor_v3":
            named = next(each for each in args[4:] if isinstance(each, Global) and each.module == "torch")
            dtype = OF_TORCH.get(named.name)
        start, shape, stride = args[1], whole_numbers(args[2]), whole_numbers(args[3])
        if shape is None or stride is None:
            raise ValueError("has an impossible shape or stride")
        if dtype is None or type(start) is not int or not 0 <= start < LARGEST or len(shape) != len(stride):
            raise ValueError("has an unknown form")
    except (ValueError, IndexError, TypeError, StopIteration) as error:
        found.odd.append(f"{name}: {error}")
        return
    found.tensors.append(Pickled(name=name, storage=storage, dtype=dtype, start=start, shape=shape, stride=stride))


def _storage(reference: Any) -> Storage:
    if not isinstance(reference, Persistent) or not isinstance(reference.key, tuple) or len(reference.key) < 5:
        raise ValueError("has no storage in this file")
    _, kind, key, _, elements = reference.key[:5]
    dtype = OF_STORAGE.get(kind.name) if isinstance(kind, Global) else None
    if dtype is None or not isinstance(key, str) or type(elements) is not int or not 0 <= elements < LARGEST:
        # Print only the name: printing nested tuples can take forever.
        what = kind if isinstance(kind, Global) else type(kind).__name__
        raise ValueError(f"has an unknown storage type: {what}")
    return Storage(key=key, dtype=dtype, elements=elements)


def whole_numbers(value: Any) -> tuple[int, ...] | None:
    """A shape, stride or offset; None if the value cannot be one."""
    if isinstance(value, Made) and isinstance(value.args, tuple) and value.args:  # torch.Size((2, 3))
        value = value.args[0]
    if not isinstance(value, tuple | list) or len(value) > MOST_AXES:
        return None
    return tuple(value) if all(type(each) is int and 0 <= each < LARGEST for each in value) else None


def span(tensor: Pickled) -> tuple[int, int]:
    """First byte of a tensor in its storage, and the byte count to its last element."""
    size = BYTES[tensor.dtype]
    if 0 in tensor.shape:
        return tensor.start * size, 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride, strict=True))
    return tensor.start * size, (last + 1) * size


def plain_stride(tensor: Pickled) -> tuple[int, ...] | None:
    """The stride; None if contiguous."""
    expected = 1
    for n, step in zip(reversed(tensor.shape), reversed(tensor.stride), strict=True):
        if n != 1 and step != expected:
            return tensor.stride
        expected *= max(n, 1)
    return None
