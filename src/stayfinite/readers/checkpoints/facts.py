"""Facts about a checkpoint, its files and its tensors. Plain data without judgment."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

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
class FileFacts:
    """One file: its contents and its problems."""

    path: Path
    size: int = 0
    format: str = "unknown"
    places: list[Place] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
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

    def complain(self, kind: TroubleKind, text: str) -> None:
        self.troubles.append(Trouble(kind=kind, text=text))


@dataclass(kw_only=True, slots=True)
class CheckpointFacts:
    """Files that together form one training state."""

    path: Path
    """The directory or file."""

    kind: str
    """``stayfinite``, ``transformers``, ``dcp``, ``deepspeed``, ``directory`` or ``file``."""

    files: list[FileFacts] = field(default_factory=list)
    step: int | None = None
    order: float = 0.0
    """Write time, used if steps do not give the order."""

    troubles: list[Trouble] = field(default_factory=list)
    """Problems of the checkpoint as a whole."""

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

    constant: float | None = None
    """The value of all elements, if they share one finite value."""

    @property
    def bad(self) -> int:
        """Number of non-finite elements."""
        return self.nan + self.infinite
