"""Rows of a directory: tokens in memory, latents on disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stayfinite.errors import UsageError
from stayfinite.recipes.diffusion.files import FilePair, find_pairs, open_latents, read_latent, read_tokens
from stayfinite.recipes.diffusion.layout import Layout

MEMORY = 256 * 2**20
"""Latents up to this many bytes are held in memory; otherwise they are read on demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Origin of a row."""

    pair: FilePair
    number: int | None
    """None for a file that holds one row without a row dimension."""

    def __str__(self) -> str:
        return f"{self.pair.name}" if self.number is None else f"{self.pair.name} row {self.number}"


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
        row = self.rows[index]
        return f"{row.pair.latents}" if row.number is None else f"{row.pair.latents} row {row.number}"


def read_corpus(directory: Path, *, patch: int, length: int | None = None) -> Corpus:
    """Read the tokens of every file, and the shapes of the latents.

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
    for pair in find_pairs(directory):
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
        ids=torch.from_numpy(np.concatenate([_fit(each, longest) for each in ids]).astype(np.int64)),
        mask=torch.from_numpy(np.concatenate([_fit(each, longest) for each in masks])),
        layout=_layout(*next(iter(shapes.items())), patch),
        cut=sum(int(each[:, longest:].any(1).sum()) for each in masks),
    )
    if 4 * len(rows) * math.prod(on_disk.layout.array) > MEMORY:
        return on_disk
    return replace(on_disk, latents=torch.stack([on_disk.latent(index) for index in range(len(rows))]))


def joined(first: Corpus, second: Corpus) -> Corpus:
    """Rows of two directories, the first one's first. Raises UsageError if their latents have different shapes."""
    if first.layout != second.layout:
        raise UsageError(
            f"latents of {second.rows[0].pair.latents} have shape {list(second.layout.array)}, those of "
            f"{first.rows[0].pair.latents} {list(first.layout.array)}",
            fix="training and validation need the same latent shape",
        )
    longest = max(first.ids.shape[1], second.ids.shape[1])
    ids, masks = (
        torch.cat([F.pad(each, (0, longest - each.shape[1])) for each in both])
        for both in ((first.ids, second.ids), (first.mask, second.mask))
    )
    held = [each.latents for each in (first, second) if each.latents is not None]
    return Corpus(
        rows=[*first.rows, *second.rows], ids=ids, mask=masks, layout=first.layout,
        latents=torch.cat(held) if len(held) == 2 else None, cut=first.cut + second.cut,
    )  # fmt: skip


def _layout(array: tuple[int, ...], path: Path, patch: int) -> Layout:
    try:
        return Layout(array=array, patch=patch)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", fix=error.fix) from error


def _fit(rows: np.ndarray[Any, Any], length: int) -> np.ndarray[Any, Any]:
    """Rows truncated or zero-padded to this length."""
    cut = rows[:, :length]
    return np.pad(cut, ((0, 0), (0, length - cut.shape[1])))
