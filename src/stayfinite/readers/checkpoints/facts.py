"""Facts about a checkpoint, its files and its tensors. Plain data, no judgment; dtypes by their safetensors names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "C128": 16, "C64": 8, "C32": 4,
    "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
"""Bytes per element."""

BITS = {name: 8 * size for name, size in BYTES.items()} | {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits per element; sub-byte dtypes are packed, and only their position is known."""

FLOATS = frozenset(name for name in BYTES if name[0] in "FBC" and name != "BOOL")
"""Dtypes that can hold NaN or infinity."""

OF_TORCH = {
    "float64": "F64", "double": "F64", "float32": "F32", "float": "F32", "float16": "F16", "half": "F16",
    "bfloat16": "BF16", "complex128": "C128", "complex64": "C64", "complex32": "C32", "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint64": "U64",
    "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL", "qint8": "I8", "quint8": "U8", "qint32": "I32",
}  # fmt: skip
"""By `torch.NAME`."""

OF_STORAGE = {
    "DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16",
    "ComplexDoubleStorage": "C128", "ComplexFloatStorage": "C64", "LongStorage": "I64", "IntStorage": "I32",
    "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage": "BOOL",
    "QInt8Storage": "I8", "QUInt8Storage": "U8", "QInt32Storage": "I32", "UntypedStorage": "U8",
}  # fmt: skip
"""By the storage class `torch.NAME`."""


TroubleKind = Literal[
    "truncated", "damaged", "unreadable", "incomplete", "hash", "unread", "dangerous", "foreign", "note"
]


MOST_AXES = 64  # more than any tensor has


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """A problem with a file or a checkpoint."""

    kind: TroubleKind
    """``truncated``, ``damaged``, ``hash``: data is lost. ``incomplete``: a part is missing. ``unreadable``: the OS
    refused access. ``unread``: not checked, possibly fine. ``dangerous``: loading it would run code. ``foreign``: not a
    checkpoint. ``note``: harmless."""

    text: str
    """What, where, expected and found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """The location of one tensor's values in a file."""

    name: str
    dtype: str
    """A name in ``dtypes.BYTES``."""

    shape: tuple[int, ...]
    offset: int
    """First byte, from the start of the file."""

    nbytes: int
    """Bytes from the first to the last element."""

    stride: tuple[int, ...] | None = None
    """In elements; None if contiguous."""

    origin: tuple[int, ...] | None = None
    """Start of this shard in the whole tensor; None if it is not a shard."""


@dataclass(kw_only=True, slots=True)
class _Facts:
    path: Path
    troubles: list[Trouble] = field(default_factory=list)

    def complain(self, kind: TroubleKind, text: str) -> None:
        self.troubles.append(Trouble(kind=kind, text=text))


@dataclass(kw_only=True, slots=True)
class FileFacts(_Facts):
    """One file: its contents and its problems."""

    size: int = 0
    format: str = "unknown"
    places: list[Place] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    """Non-finite plain numbers, by path."""

    marks: dict[str, int] = field(default_factory=dict)
    """Top-level integers that may give the step."""

    strangers: tuple[str, ...] = ()
    """Classes and functions that it refers to and that were not loaded."""

    sha256: str | None = None
    """The expected hash, if a file next to it gives one."""

    vouched_by: str = ""
    """Name of the file that gives the hash."""


@dataclass(kw_only=True, slots=True)
class CheckpointFacts(_Facts):
    """Files that together form one training state, at a directory or file."""

    kind: str
    """``stayfinite``, ``transformers``, ``dcp``, ``deepspeed``, ``directory`` or ``file``."""

    files: list[FileFacts] = field(default_factory=list)
    step: int | None = None
    order: float = 0.0
    """Write time, used if steps do not give the order."""

    exempt: frozenset[str] = frozenset()
    """Tensors that may hold infinity according to the checkpoint's own manifest."""

    @property
    def size(self) -> int:
        """Total bytes."""
        return sum(file.size for file in self.files)

    @property
    def tensors(self) -> int:
        """Number of tensors or tensor shards."""
        return sum(len(file.places) for file in self.files)


@dataclass(kw_only=True, slots=True)
class TensorValues:
    """Statistics of one tensor or shard."""

    nan: int = 0
    infinite: int = 0
    first: tuple[int, ...] | None = None
    """Index of the first non-finite element."""

    largest: float = 0.0
    """Largest finite magnitude."""

    smallest: float = 0.0
    """The lowest finite number if it is negative, of all elements that are the tensor's own; else 0."""

    constant: float | None = None
    """The value of all elements, if they share one finite value."""

    @property
    def bad(self) -> int:
        """Number of non-finite elements."""
        return self.nan + self.infinite
