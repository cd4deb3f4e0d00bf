"""Read ``tokens/NAME.npz`` and ``latents/NAME.npy``, paired by name. Errors name the file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stayfinite.errors import UsageError

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
