"""torch.save: since 1.6 an uncompressed zip with a pickle and one member per storage.

The format before 1.6 is still available on request: five pickles followed by the storages.
"""

from __future__ import annotations

from typing import BinaryIO

from stayfinite.readers.checkpoints.facts import BYTES, FileFacts, Place
from stayfinite.readers.checkpoints.formats.pickled_tensors import (
    Contents,
    Pickled,
    Storage,
    contents_of,
    plain_stride,
    span,
    tell_of,
)
from stayfinite.readers.malformed import Malformed
from stayfinite.readers.pickles.inert import Bounds, Inert, read_inert
from stayfinite.readers.pickles.torch_files import (
    Entry,
    Part,
    data_offset,
    read_directory,
    read_old,
    read_zipped,
)

BOUNDS = Bounds(longest=256 << 20, operations=5_000_000)  # limits of a checkpoint's pickle


def read_zip(file: BinaryIO, facts: FileFacts, start: int = 0, size: int | None = None) -> Inert:
    """Add the places of all tensors of an archive. Raises Malformed if it cannot be read_zip."""
    size = facts.size if size is None else size
    facts.format = "torch"
    part = Part(file, start, size)
    members = read_directory(part)
    root, pickle = read_zipped(part, members, BOUNDS)
    _check_byteorder(part, members.get(f"{root}byteorder"))
    contents = contents_of(pickle)
    take_over(facts, pickle, contents)
    starts: dict[str, tuple[int, int]] = {}
    compressed: list[Entry] = []
    for tensor in contents.tensors:
        key = tensor.storage.key
        if key not in starts:
            starts[key] = _locate(facts, part, members, f"{root}data/{key}", tensor, size, compressed)
        at, length = starts[key]
        if at >= 0:
            add_place(facts, tensor, start + at, length)
    if compressed:
        total = sum(entry.size for entry in compressed)
        facts.complain(
            "unread",
            f"{len(compressed)} storages are compressed and claim {total:,} bytes, first {compressed[0].name}; torch "
            "never compresses, so they were not unpacked",
        )
    return pickle


def take_over(facts: FileFacts, pickle: Inert, contents: Contents) -> None:
    """Record what a pickle holds besides tensors."""
    facts.numbers.update(contents.numbers)
    facts.marks.update(contents.marks)
    tell_of(facts, pickle.globals)
    for what in contents.odd[:5]:
        facts.complain("unread", f"tensor {what}; not checked")


def add_place(facts: FileFacts, tensor: Pickled, at: int, length: int) -> None:
    """Add a tensor whose storage starts at byte ``at`` and has ``length`` bytes."""
    begin, nbytes = span(tensor)
    if begin + nbytes > length:
        text = f"{tensor.name} would end at byte {begin + nbytes:,} of its storage of {length:,}"
        facts.complain("damaged", text)
        return
    place = Place(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=tensor.shape,
        offset=at + begin,
        nbytes=nbytes,
        stride=plain_stride(tensor),
    )
    facts.places.append(place)


def _check_byteorder(part: Part, entry: Entry | None) -> None:
    if entry is None or not entry.stored:
        return
    part.seek(data_offset(part, entry))
    if part.read(6) == b"big":
        raise Malformed("it was written on a big-endian machine; values not checked", kind="unread")


def _locate(
    facts: FileFacts,
    part: Part,
    members: dict[str, Entry],
    name: str,
    tensor: Pickled,
    size: int,
    compressed: list[Entry],
) -> tuple[int, int]:
    """Offset and byte count of a storage in the archive; an offset of -1 if unavailable."""
    nowhere = (-1, 0)
    entry = members.get(name)
    if entry is None:
        facts.complain("damaged", f"storage {name} of {tensor.name} is missing from the archive")
        return nowhere
    if not entry.stored:
        compressed.append(entry)
        return nowhere
    expected = tensor.storage.elements * BYTES[tensor.storage.dtype]
    if entry.size < expected:
        text = f"storage {name} of {tensor.name} has {entry.size:,} bytes, its pickle says {expected:,}"
        facts.complain("truncated", text)
        return nowhere
    try:
        at = data_offset(part, entry)
    except Malformed as error:
        facts.complain(error.kind, error.text)
        return nowhere
    if at + entry.size > size:
        facts.complain("truncated", f"storage {name} of {tensor.name} would end past the end of the file")
        return nowhere
    return at, entry.size


def read_legacy(file: BinaryIO, facts: FileFacts) -> None:
    """Add the places of all tensors. Raises Malformed if it cannot be read_legacy."""
    facts.format = "torch (old, no zip)"
    pickle = read_old(file, BOUNDS)
    contents = contents_of(pickle)
    take_over(facts, pickle, contents)
    keys = read_inert(file, BOUNDS).value
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Malformed("the list of its storages is damaged")
    starts = _starts(file, facts, keys, {tensor.storage.key: tensor.storage for tensor in contents.tensors})
    for tensor in contents.tensors:
        if tensor.storage.key in starts:
            add_place(facts, tensor, *starts[tensor.storage.key])


def _starts(
    file: BinaryIO, facts: FileFacts, keys: list[str], storages: dict[str, Storage]
) -> dict[str, tuple[int, int]]:
    """Offset and byte count of each storage. The length of a storage without a tensor is unknown."""
    starts: dict[str, tuple[int, int]] = {}
    at = file.tell()
    for number, key in enumerate(keys):
        storage = storages.get(key)
        if storage is None:
            facts.complain("unread", f"storage {key} belongs to no tensor; {len(keys) - number} were not checked")
            break
        file.seek(at)
        elements = int.from_bytes(file.read(8), "little")
        length = storage.elements * BYTES[storage.dtype]
        if at + 8 + length > facts.size:
            lost = len(keys) - number
            facts.complain(
                "truncated", f"it is truncated: {facts.size:,} bytes, {lost} of {len(keys)} storages are missing"
            )
            break
        if elements != storage.elements:
            facts.complain("damaged", f"storage {key} has {elements:,} elements, its pickle says {storage.elements:,}")
            break
        starts[key] = (at + 8, length)
        at += 8 + length
    return starts
