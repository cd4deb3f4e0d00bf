"""Read tokens/NAME.npz and latents/NAME.npy, paired by name: tokens in memory, latents on disk."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stayfinite.errors import UsageError

MEMORY = 256 * 2**20
"""Latents up to this many bytes are held in memory; otherwise they are read on demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Origin of a row."""

    pair: FilePair
    number: int | None
    """None for a file that holds one row without a row dimension."""

    def __str__(self) -> str:
        return self.within(self.pair.name)

    def within(self, file: str | Path) -> str:
        """The row in a file, for messages."""
        return f"{file}" if self.number is None else f"{file} row {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Rows of text and latent."""

    rows: Sequence[Row]
    ids: Tensor
    """(rows, longest), padded with 0."""
    mask: Tensor
    """(rows, longest), false for padding."""
    layout: Layout
    latents: Tensor | None = None
    """(rows, positions, channels) if they fit in memory."""
    cut: int = 0
    """Number of truncated texts."""
    own: int = 0
    """Number of rows of the first directory, which come first."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Tensor:
        """Tokens of each row, without padding."""
        return self.mask.sum(1)

    def latent(self, index: int) -> Tensor:
        """The latent of a row, (positions, channels), from memory or its file.

        Raises:
            UsageError: the file cannot be read.
        """
        if self.latents is not None:
            return self.latents[index]
        row = self.rows[index]
        array = read_latent(row.pair.latents, row.number)
        if array.shape != self.layout.array:
            raise UsageError(f"{row.pair.latents}: shape {list(array.shape)}, earlier {list(self.layout.array)}")
        return self.layout.to_positions(torch.from_numpy(array))

    def where(self, index: int) -> str:
        """The latent's file and row, for messages."""
        return self.rows[index].within(self.rows[index].pair.latents)


def read_corpus(*directories: Path, patch: int, length: int | None = None) -> Corpus:
    """Read the tokens of every file of one or more directories, and the shapes of the latents.

    Arguments:
        patch: see Layout.
        length: maximum tokens per row; default: the longest row.

    Raises:
        UsageError: a file is missing, unreadable or inconsistent.
    """
    rows: list[Row] = []
    ids: list[np.ndarray[Any, Any]] = []
    masks: list[np.ndarray[Any, Any]] = []
    shapes: dict[tuple[int, ...], Path] = {}
    pairs = [find_pairs(directory) for directory in directories]
    for pair in chain(*pairs):
        its_ids, its_mask, several = read_tokens(pair.tokens)
        array = open_latents(pair.latents)
        if several and (array.ndim < 2 or array.shape[0] != len(its_ids)):
            raise UsageError(
                f"{pair.latents} has shape {list(array.shape)}, but {pair.tokens} has {len(its_ids)} rows",
                fix="save one latent per row of tokens, rows first",
            )
        shapes.setdefault(array.shape[1:] if several else array.shape, pair.latents)
        if len(shapes) > 1:
            (first, path), (other, _) = shapes.items()
            raise UsageError(
                f"latents of {pair.latents} have shape {list(other)}, those of {path} {list(first)}",
                fix="use one latent shape in a run",
            )
        rows += [Row(pair=pair, number=number if several else None) for number in range(len(its_ids))]
        ids.append(np.where(its_mask, its_ids, 0))  # padding may hold any number
        masks.append(its_mask)
    longest = max(each.shape[1] for each in ids)
    if length is not None:
        longest = min(longest, length)
    on_disk = Corpus(
        rows=rows,
        own=sum(map(len, ids[: len(pairs[0])])),
        ids=torch.from_numpy(np.concatenate([_fit(each, longest) for each in ids]).astype(np.int64)),
        mask=torch.from_numpy(np.concatenate([_fit(each, longest) for each in masks])),
        layout=_layout(*next(iter(shapes.items())), patch),
        cut=sum(int(each[:, longest:].any(1).sum()) for each in masks),
    )
    if 4 * len(rows) * math.prod(on_disk.layout.array) > MEMORY:
        return on_disk
    return replace(on_disk, latents=torch.stack([on_disk.latent(index) for index in range(len(rows))]))


def _layout(array: tuple[int, ...], path: Path, patch: int) -> Layout:
    try:
        return Layout(array=array, patch=patch)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", fix=error.fix) from error


def _fit(rows: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """Rows truncated or zero-padded to this length."""
    cut = rows[:, :length]
    return np.pad(cut, ((0, 0), (0, length - cut.shape[1])))


TOKENS, LATENTS = "tokens", "latents"
HIGHEST = 2**22
"""Upper limit of token ids: no tokenizer has as many."""
HOW = "a directory with tokens/NAME.npz (input_ids, attention_mask) and latents/NAME.npy, paired by name"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePair:
    """Tokens and latents with the same name."""

    name: str
    tokens: Path
    latents: Path


def find_pairs(directory: Path) -> list[FilePair]:
    """The pairs of a directory, by name. Raises UsageError if there is none, or a partner is missing."""
    if not directory.is_dir():
        raise UsageError(f"{directory} is not a directory", fix=f"name {HOW}")
    tokens = {path.stem: path for path in sorted((directory / TOKENS).glob("*.npz"))}
    latents = {path.stem: path for path in sorted((directory / LATENTS).glob("*.npy"))}
    if not tokens and not latents:
        raise UsageError(f"{directory} holds neither tokens/*.npz nor latents/*.npy", fix=f"name {HOW}")
    alone = [f"{tokens[name]} has no {LATENTS}/{name}.npy" for name in tokens if name not in latents]
    alone += [f"{latents[name]} has no {TOKENS}/{name}.npz" for name in latents if name not in tokens]
    if alone:
        more = f", and {len(alone) - 3} more files" if len(alone) > 3 else ""
        raise UsageError("; ".join(alone[:3]) + more, fix="write the missing file, or move its partner away")
    return [FilePair(name=name, tokens=tokens[name], latents=latents[name]) for name in sorted(tokens)]


def read_tokens(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], bool]:
    """Ids and mask of a file, each (rows, length), and whether the file has several rows.

    Raises:
        UsageError: unreadable or invalid.
    """
    with _named(path), path.open("rb") as file, np.load(file, allow_pickle=False) as held:
        missing = [name for name in ("input_ids", "attention_mask") if name not in held.files]
        if missing:
            raise UsageError(
                f"{path} holds no {' and no '.join(missing)}; it has {', '.join(held.files) or 'nothing'}",
                fix="np.savez(path, input_ids=..., attention_mask=...)",
            )
        ids, mask = held["input_ids"], held["attention_mask"]
    if ids.ndim not in (1, 2) or ids.shape != mask.shape or ids.size == 0:
        raise UsageError(
            f"{path}: input_ids of shape {list(ids.shape)} and attention_mask of shape {list(mask.shape)}",
            fix="both (length), or both (rows, length), and not empty",
        )
    held = np.where(mask != 0, ids, 0)
    if not np.issubdtype(ids.dtype, np.integer) or int(held.min()) < 0 or int(held.max()) >= HIGHEST:
        raise UsageError(
            f"{path}: input_ids of {ids.dtype}, from {held.min()} to {held.max()}: expected whole numbers from 0 to "
            f"below {HIGHEST:,}",
            fix="save the ids as the tokenizer returns them; labels with -100 are not input_ids",
        )
    return np.atleast_2d(ids), np.atleast_2d(mask) != 0, ids.ndim == 2


def open_latents(path: Path) -> np.ndarray[Any, Any]:
    """The array of a file, memory-mapped. Raises UsageError if unreadable, truncated or not numeric."""
    with _named(path):
        array: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray) or not (
        np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)
    ):
        raise UsageError(f"{path}: expected an array of numbers", fix="np.save(path, array_of_floats)")
    return array


def read_latent(path: Path, row: int | None) -> np.ndarray[Any, Any]:
    """One row of a file in float32; the whole array if ``row`` is None. Raises UsageError if unreadable."""
    array = open_latents(path)
    with _named(path), np.errstate(over="ignore"):  # overflow becomes inf, which is detected later
        return np.array(array if row is None else array[row], dtype=np.float32)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in any error."""
    try:
        yield
    except UsageError:
        raise
    except FileNotFoundError as error:
        raise UsageError(f"{path} is missing", fix="put it back, or move its partner away") from error
    except (OSError, ValueError, EOFError, KeyError, IndexError, zipfile.BadZipFile, zlib.error) as error:
        words = (str(error).splitlines() or [type(error).__name__])[0]
        raise UsageError(f"cannot read {path}: {words}", fix="save it again, or remove it and its partner") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Shape of a latent: vector (D), sequence (positions, channels) or grid (channels, height, width).

    A grid is cut into ``patch`` x ``patch`` squares, one position each.

    Raises:
        UsageError: another number of dimensions, or a grid not divisible by the patch.
    """

    array: tuple[int, ...]
    patch: int = 1

    def __post_init__(self) -> None:
        if not 1 <= len(self.array) <= 3 or 0 in self.array:
            raise UsageError(
                f"a latent of shape {list(self.array)}",
                fix="save (D), (positions, channels) or (channels, height, width) per row of tokens",
            )
        if self.patch < 1:
            raise UsageError(f"--patch {self.patch}: expected at least 1", fix="--patch 2, for example")
        if len(self.array) == 3 and any(side % self.patch for side in self.array[1:]):
            raise UsageError(
                f"--patch {self.patch} does not divide a grid of {self.array[1]} x {self.array[2]}",
                fix="--patch 1, or a divisor of both sides",
            )

    @property
    def positions(self) -> int:
        if len(self.array) == 3:
            return (self.array[1] // self.patch) * (self.array[2] // self.patch)
        return self.array[0] if len(self.array) == 2 else 1

    @property
    def channels(self) -> int:
        """Numbers per position."""
        return self.array[0] * self.patch**2 if len(self.array) == 3 else self.array[-1]

    def to_positions(self, latent: Tensor) -> Tensor:
        """(..., *array) -> (..., positions, channels)."""
        if len(self.array) == 3:
            return F.pixel_unshuffle(latent, self.patch).flatten(-2).mT.contiguous()
        ahead = latent.shape[: latent.ndim - len(self.array)]
        return latent.reshape(*ahead, self.positions, self.channels)

    def to_array(self, positions: Tensor) -> Tensor:
        """(..., positions, channels) -> (..., *array)."""
        if len(self.array) == 3:
            _, height, width = self.array
            grid = positions.mT.unflatten(-1, (height // self.patch, width // self.patch))
            return F.pixel_shuffle(grid, self.patch).contiguous()
        return positions.reshape(*positions.shape[:-2], *self.array)
