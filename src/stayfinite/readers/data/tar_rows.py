"""Rows of WebDataset tar files: members that differ only in their suffix form a row.

`0001.jpg`, `0001.json` and `0001.txt` form one row with the columns `image`, the keys of the JSON object, and `text`;
`0001.img1.jpg` and `0001.img2.jpg` fill `img1` and `img2`. Images are not read: their value is a path into the archive,
`pairs.tar/0001.img1.jpg`, for `member_bytes`.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Broken, Chunk, Gathered, Source
from stayfinite.readers.data.text_lines import LONGEST

TAR = ".tar"
TEXTS = {"txt": "text", "text": "text", "caption": "caption", "cls": "label"}
"""Suffixes of text members and the columns they fill."""
PICTURES = frozenset({"jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "ppm"})
END = bytes(tarfile.BLOCKSIZE)  # the block after the last member of a complete archive


def tar_chunks(source: Source) -> Iterator[Chunk]:
    """The rows of an archive; a truncated one ends with a broken place."""
    found = Gathered(source)
    row: dict[str, Any] = {}
    key, number = "", 0
    with source.path.open("rb") as file:
        for member in _members(file):
            if isinstance(member, str):
                # The current row may be incomplete, so it is dropped.
                found.broken.append(Broken(number + 1, member, ends=True))
                row = {}
                break
            folder, _, name = member.name.rpartition("/")
            stem, _, ending = name.partition(".")
            if (path := f"{folder}/{stem}") != key:
                if row:
                    found.add(row, number)
                key, number, row = path, number + 1, {}
            found.size += _take(row, source.path, member, ending.lower(), file, number, found.broken)
            if found.full:
                yield found.chunk(member.offset_data + member.size)
    if row:
        found.add(row, number)
    yield found.chunk(source.size)


def _members(file: IO[bytes]) -> Iterator[tarfile.TarInfo | str]:
    """Yield the files of an archive in order; at the end, a sentence if it is truncated or damaged."""
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep every one of them
                if member.isfile():
                    yield member
            file.seek(archive.offset)
            if file.read(tarfile.BLOCKSIZE) != END:
                yield "reading stopped here: the archive is truncated (no end mark)"
    except (tarfile.TarError, OSError, ValueError) as error:
        yield f"reading stopped here: the archive is truncated or damaged: {error}"


def _take(
    row: dict[str, Any], path: Path, member: tarfile.TarInfo, ending: str, file: IO[bytes], number: int,
    broken: list[Broken],
) -> int:  # fmt: skip
    """Add a member to its row; return the characters added."""
    before, _, kind = ending.rpartition(".")
    if kind in PICTURES:
        row[before or "image"] = f"{path / member.name}"
        return 0
    if kind != "json" and kind not in TEXTS:
        return 0
    if member.size > LONGEST:
        broken.append(Broken(number, f"{member.name} has more than {LONGEST >> 20} MiB"))
        return 0
    file.seek(member.offset_data)
    text = file.read(member.size).decode("utf-8", "surrogateescape")
    if kind != "json":
        row[before or TEXTS[kind]] = text.strip()
        return len(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        broken.append(Broken(number, f"{member.name}: not JSON: {str(error).partition(': line')[0]}"))
        return 0
    row |= value if isinstance(value, Mapping) else {before or "json": value}
    return len(text)


def tar_of(path: str | Path) -> Path | None:
    """The archive that contains this path; None for a path on disk."""
    return next((each for each in Path(path).parents if each.suffix.lower() == TAR and each.is_file()), None)


def has_member(path: str | Path) -> bool:
    """Whether a path names a file in an archive."""
    archive = tar_of(path)
    return archive is not None and Path(path).relative_to(archive).as_posix() in _index(archive)


def member_bytes(path: str | Path) -> bytes:
    """The bytes of a file in an archive. Raises UsageError if the archive lacks it or was truncated since."""
    archive = tar_of(path)
    place = None if archive is None else _index(archive).get(Path(path).relative_to(archive).as_posix())
    if archive is None or place is None:
        raise UsageError(f"{path}: no such file in the archive")
    with archive.open("rb") as file:
        file.seek(place[0])
        data = file.read(place[1])
    if len(data) != place[1]:
        raise UsageError(f"{path}: the archive is truncated in this file")
    return data


@cache
def _index(archive: Path) -> dict[str, tuple[int, int]]:
    """Offset and size of each file of an archive."""
    with archive.open("rb") as file:
        members = _members(file)
        return {each.name: (each.offset_data, each.size) for each in members if not isinstance(each, str)}
