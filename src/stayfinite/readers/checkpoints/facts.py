"""What is known of a checkpoint, its files and its tensors. Plain data; nothing here judges."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

TroubleKind = Literal[
    "truncated", "damaged", "unreadable", "incomplete", "hash", "unread", "dangerous", "foreign", "note"
]


MOST_AXES = 64
"""More than any tensor has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """Something about a file that is not as it should be."""

    kind: TroubleKind
    """``truncated``, ``damaged``, ``hash``: what was written is gone. ``incomplete``: something that belongs to it is
    missing. ``unreadable``: the system refuses. ``unread``: sound perhaps, and not looked into. ``dangerous``: loading
    it would run code. ``foreign``: no checkpoint at all. ``note``: worth a line, no harm."""

    text: str
    """What, where, expected against found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where the numbers of one tensor lie in a file."""

    name: str
    dtype: str
    """As in ``dtypes.BYTES``."""

    shape: tuple[int, ...]
    offset: int
    """Of its first byte, from the beginning of the file."""

    nbytes: int
    """From its first byte to its last."""

    stride: tuple[int, ...] | None = None
    """In elements; None where the elements lie one after the other."""

    origin: tuple[int, ...] | None = None
    """Where this piece begins in the whole tensor, if it is a piece of one."""


@dataclass(kw_only=True, slots=True)
class FileFacts:
    """One file: what it holds, and what is wrong with it."""

    path: Path
    size: int = 0
    format: str = "unknown"
    places: list[Place] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    """Plain numbers in it that are not finite, by their path."""

    marks: dict[str, int] = field(default_factory=dict)
    """Whole numbers at the top that may tell the step."""

    strangers: tuple[str, ...] = ()
    """Classes and functions that it asks for and that were not loaded."""

    sha256: str | None = None
    """What its hash should be, where something beside it says so."""

    vouched_by: str = ""
    """The name of the file that gave the hash."""

    def complain(self, kind: TroubleKind, text: str) -> None:
        """Add a trouble."""
        self.troubles.append(Trouble(kind=kind, text=text))


@dataclass(kw_only=True, slots=True)
class CheckpointFacts:
    """Files that together are one state of a training."""

    path: Path
    """The directory, or the file."""

    kind: str
    """``stayfinite``, ``transformers``, ``dcp``, ``deepspeed``, ``directory`` or ``file``."""

    files: list[FileFacts] = field(default_factory=list)
    step: int | None = None
    order: float = 0.0
    """When it was written, where steps do not tell."""

    troubles: list[Trouble] = field(default_factory=list)
    """What is wrong with it as a whole."""

    exempt: frozenset[str] = frozenset()
    """Tensors that may hold infinity, because whoever wrote the checkpoint says so."""

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    @property
    def tensors(self) -> int:
        """How many tensors, or pieces of them, it holds."""
        return sum(len(file.places) for file in self.files)


@dataclass(kw_only=True, slots=True)
class TensorValues:
    """What the numbers of one tensor, or of one piece of it, came to."""

    nan: int = 0
    infinite: int = 0
    first: tuple[int, ...] | None = None
    """The index of the first element that is not finite."""

    largest: float = 0.0
    """Largest magnitude among the finite ones."""

    constant: float | None = None
    """The value that all elements have, if they all have the same finite one."""

    @property
    def bad(self) -> int:
        """How many elements are not finite."""
        return self.nan + self.infinite
