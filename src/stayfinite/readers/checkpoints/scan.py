"""Scan checkpoints: their structure and, unless quick, every value."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from stayfinite.readers.checkpoints.conclusion import conclude, found_at
from stayfinite.readers.checkpoints.facts import FileFacts
from stayfinite.readers.checkpoints.result import Scanned, ScanResult
from stayfinite.readers.checkpoints.sidecars import check_hash

Progress = Callable[[int, int], None]
"""``progress(done, total)`` in bytes; called from several threads."""


def scan(
    paths: Iterable[str | os.PathLike[str]],
    *,
    quick: bool = False,
    hashes: bool = True,
    progress: Progress | None = None,
) -> ScanResult:
    """Scan all checkpoints at the paths.

    Arguments:
        paths: files and directories.
        quick: skip values and hashes; needs no torch.
        hashes: compare SHA-256 hashes with a manifest or a hash file.
        progress: called with bytes done and total.

    Raises:
        OSError: a path does not exist.
    """
    found = found_at(paths)
    if not quick:
        _look(found, hashes, progress)
    return conclude(found, quick=quick)


def _look(found: list[Scanned], hashes: bool, progress: Progress | None) -> None:
    from stayfinite.readers.checkpoints.values.streaming import look_at, readable

    files = [file for each in found for file in each.facts.files]
    hashed = [file for file in files if file.sha256 is not None and hashes]
    total = sum(place.nbytes for file in files for place in readable(file)) + sum(file.size for file in hashed)
    done = 0

    def on_bytes(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(min(done, total), total)

    _hash(hashed, on_bytes)
    for each in found:
        each.values = look_at(each.facts.files, on_bytes)


def _hash(files: list[FileFacts], on_bytes: Callable[[int], None]) -> None:
    if files:
        with ThreadPoolExecutor(max_workers=min(len(files), os.cpu_count() or 1)) as pool:
            list(pool.map(lambda file: check_hash(file, on_bytes), files))
