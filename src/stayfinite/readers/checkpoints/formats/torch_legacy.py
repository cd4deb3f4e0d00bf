"""What torch.save wrote before 1.6, and still writes on demand: five pickles, and the storages after them."""

from __future__ import annotations

from typing import BinaryIO

from stayfinite.readers.checkpoints.dtypes import BYTES
from stayfinite.readers.checkpoints.facts import FileFacts, Malformed
from stayfinite.readers.checkpoints.formats.inert_pickle import Inert, read_inert
from stayfinite.readers.checkpoints.formats.pickled_tensors import Storage, contents_of
from stayfinite.readers.checkpoints.formats.torch_zip import LARGEST_PICKLE, add_place, take_over

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001


def looks_like(head: bytes) -> bool:
    """Whether a file that begins so is one: the first pickle is the magic number."""
    return MAGIC.to_bytes(10, "little") in head[:32]


def read(file: BinaryIO, facts: FileFacts) -> None:
    """Fill in the places of all tensors.

    Raises:
        Malformed: it cannot be read.
    """
    facts.format = "torch (old, no zip)"
    magic, version = _pickle(file).value, _pickle(file).value
    if magic != MAGIC or version != VERSION:
        raise Malformed(f"it begins like an old torch file and is of version {version!r}, known is {VERSION}")
    _pickle(file)
    pickle = _pickle(file)
    contents = contents_of(pickle)
    take_over(facts, pickle, contents)
    keys = _pickle(file).value
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Malformed("the list of its storages is damaged")
    starts = _starts(file, facts, keys, {tensor.storage.key: tensor.storage for tensor in contents.tensors})
    for tensor in contents.tensors:
        if tensor.storage.key in starts:
            add_place(facts, tensor, *starts[tensor.storage.key])


def _pickle(file: BinaryIO) -> Inert:
    return read_inert(file, longest=LARGEST_PICKLE)


def _starts(
    file: BinaryIO, facts: FileFacts, keys: list[str], storages: dict[str, Storage]
) -> dict[str, tuple[int, int]]:
    """Where each storage begins, and its bytes. Nothing tells the length of one that no tensor uses."""
    starts: dict[str, tuple[int, int]] = {}
    at = file.tell()
    for number, key in enumerate(keys):
        storage = storages.get(key)
        if storage is None:
            facts.complain("unread", f"storage {key} belongs to no tensor; {len(keys) - number} were not looked into")
            break
        file.seek(at)
        elements = int.from_bytes(file.read(8), "little")
        length = storage.elements * BYTES[storage.dtype]
        if at + 8 + length > facts.size:
            lost = len(keys) - number
            facts.complain(
                "truncated", f"it is cut off: {facts.size:,} bytes, and {lost} of {len(keys)} storages are missing"
            )
            break
        if elements != storage.elements:
            facts.complain(
                "damaged", f"storage {key} has {elements:,} elements, its pickle promises {storage.elements:,}"
            )
            break
        starts[key] = (at + 8, length)
        at += 8 + length
    return starts
