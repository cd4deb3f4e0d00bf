"""torch.distributed.checkpoint: a directory of ``.distcp`` files with a pickled index, ``.metadata``."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from stayfinite.readers.checkpoints.facts import CheckpointFacts, FileFacts
from stayfinite.readers.checkpoints.formats import torch_save
from stayfinite.readers.checkpoints.formats.pickled_tensors import whole_numbers
from stayfinite.readers.malformed import Malformed
from stayfinite.readers.pickles.inert import Made, Pairs, read_inert

TABLE = ".metadata"  # the index file


class Piece(NamedTuple):
    """A tensor or a shard of one in a file."""

    fqn: str
    origin: tuple[int, ...] | None
    """Start of the shard in the tensor."""

    offset: int
    length: int


def read(directory: Path, table: BinaryIO, into: CheckpointFacts, name: str = "") -> dict[str, list[Piece]]:
    """Return the pieces in each file according to the open index, and report missing ones to ``into``.

    ``name`` prefixes file names in these reports. Raises Malformed if the index cannot be read.
    """
    root = _fields(read_inert(table, torch_save.BOUNDS).value)
    files: dict[str, list[Piece]] = {}
    there: Counter[str] = Counter()
    for index, info in _pairs(root.get("storage_data")):
        key, where = _fields(index), _fields(info)
        fqn, path = key.get("fqn"), where.get("relative_path")
        place = whole_numbers((where.get("offset"), where.get("length")))
        if not isinstance(fqn, str) or not isinstance(path, str) or "/" in path or place is None:
            raise Malformed(f"{TABLE} gives a tensor an impossible offset")
        files.setdefault(path, []).append(Piece(fqn, whole_numbers(key.get("offset")), *place))
        there[fqn] += 1
    for fqn, form in _pairs(root.get("state_dict_metadata")):
        if isinstance(fqn, str):
            _check_whole(into, fqn, _fields(form), there[fqn])
    for path, pieces in files.items():
        if not (directory / path).exists():
            text = f"{name}{path} is missing; {TABLE} lists {len(pieces)} tensors in it, first {pieces[0].fqn}"
            into.complain("incomplete", text)
    return files


def read_file(file: BinaryIO, facts: FileFacts, pieces: list[Piece]) -> None:
    """Add the places of the pieces in one file."""
    facts.format = "dcp"
    if sum(piece.length for piece in pieces) > 2 * facts.size + (1 << 20):
        facts.complain("truncated", f"it has {facts.size:,} bytes, less than half of what {TABLE} lists")
        return
    for fqn, origin, offset, length in sorted(pieces, key=lambda piece: piece.offset):
        if offset < 0 or offset + length > facts.size:
            facts.complain(
                "truncated", (f"{fqn} should end at byte {offset + length:,}, but the file has {facts.size:,}")
            )
            continue
        before = len(facts.places)
        try:
            torch_save.read_zip(file, facts, offset, length)
        except Malformed as error:
            facts.complain(error.kind, f"{fqn}: {error.text}")
        facts.places[before:] = [
            replace(
                place,
                name=f"{fqn}.{place.name}" if place.name else fqn,
                origin=origin if origin is not None and len(origin) == len(place.shape) else None,
            )
            for place in facts.places[before:]
        ]
    facts.format = "dcp"


def _check_whole(into: CheckpointFacts, fqn: str, form: dict[str, Any], pieces: int) -> None:
    chunks, size = form.get("chunks"), whole_numbers(form.get("size"))
    if not isinstance(chunks, list) or size is None:
        return
    volume = sum(math.prod(whole_numbers(_fields(chunk).get("sizes")) or ()) for chunk in chunks)
    if pieces < len(chunks) or volume < math.prod(size):
        into.complain(
            "incomplete", f"{fqn} has {pieces} of {len(chunks)} pieces, {volume:,} of {math.prod(size):,} elements"
        )


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    return value.pairs if isinstance(value, Pairs | Made) else []


def _fields(value: Any) -> dict[str, Any]:
    """The fields of an object pickled as its ``__dict__``, with or without slots."""
    state = value.state if isinstance(value, Made) else None
    states = state if isinstance(state, tuple) else (state,)
    return {name: each for part in states for name, each in _pairs(part) if isinstance(name, str)}
