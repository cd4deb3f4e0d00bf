"""The torch.save format before 1.6, still available on request: five pickles followed by the storages."""

from __future__ import annotations

from typing import BinaryIO

from stayfinite.readers.checkpoints.dtypes import BYTES
from stayfinite.readers.checkpoints.facts import FileFacts
from stayfinite.readers.checkpoints.formats.pickled_tensors import Storage, contents_of
from stayfinite.readers.checkpoints.formats.torch_zip import BOUNDS, add_place, take_over
from stayfinite.readers.malformed import Malformed
from stayfinite.readers.pickles.inert import read_inert
from stayfinite.readers.pickles.torch_files import read_old


def read(file: BinaryIO, facts: FileFacts) -> None:
    """Add the places of all tensors. Raises Malformed if it cannot be read."""
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
