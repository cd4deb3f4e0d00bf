"""safetensors: eight bytes of header length, a JSON header, then the tensors."""

from __future__ import annotations

import json
import math
from typing import Any, BinaryIO

from stayfinite.readers.checkpoints.facts import BITS, MOST_AXES, FileFacts, Place
from stayfinite.readers.malformed import Malformed

LONGEST_HEADER = 100_000_000  # the limit of the safetensors library


def looks_like(head: bytes, size: int) -> bool:
    """Whether a file with this head and size may be safetensors."""
    if len(head) < 9:
        return False
    length = int.from_bytes(head[:8], "little")
    return 2 <= length <= LONGEST_HEADER and head[8:9] == b"{" and length < max(size, LONGEST_HEADER)


def read(file: BinaryIO, facts: FileFacts) -> None:
    """Add the places of all tensors and report violations of the format. Raises Malformed for a bad header."""
    facts.format = "safetensors"
    size = facts.size
    head = file.read(8)
    if len(head) < 8:
        raise Malformed(f"it is truncated: {size} bytes, but the header length alone takes 8", kind="truncated")
    length = int.from_bytes(head, "little")
    if length > LONGEST_HEADER:
        raise Malformed(f"its header claims {length:,} bytes (limit {LONGEST_HEADER:,}): not a safetensors file")
    if 8 + length > size:
        raise Malformed(f"it is truncated in the header: {size:,} of at least {8 + length:,} bytes", kind="truncated")
    header = _parse(file.read(length))
    pieces = _origins(header.pop("__metadata__", None))
    end = 0
    for name, entry in header.items():
        place = _place(name, entry, 8 + length, pieces.get(name))
        end = max(end, place.offset + place.nbytes)
        facts.places.append(place)
    facts.places.sort(key=lambda place: (place.offset, place.nbytes))
    _check_order(facts, 8 + length)
    if end > size:
        whole = [place for place in facts.places if place.offset + place.nbytes <= size]
        lost = len(facts.places) - len(whole)
        first = next(place.name for place in facts.places if place.offset + place.nbytes > size)
        facts.places = whole
        text = f"it is truncated: {size:,} of {end:,} bytes; {lost} tensors are incomplete, first {first}"
        facts.complain("truncated", text)
    elif facts.places and end < size:
        facts.complain("damaged", f"{size - end:,} unknown bytes follow the last tensor")


def _parse(text: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Malformed("a name appears twice in its header")
        return found

    try:
        header = json.loads(text.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"its header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise Malformed(f"its header is a {type(header).__name__}, not a JSON object")
    return header


def _place(name: str, entry: Any, start: int, origin: tuple[int, ...] | None) -> Place:
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, begin, end]
    except (TypeError, KeyError, ValueError) as error:
        raise Malformed(f"its header entry for {name!r} is invalid: {error!r}") from error
    whole = all(type(number) is int and 0 <= number < 1 << 63 for number in numbers)
    if not whole or begin > end or len(numbers) > MOST_AXES:
        raise Malformed(f"its header gives {name!r} an impossible shape or place: {str(entry)[:200]}")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise Malformed(f"its header gives {name!r} an unknown dtype {dtype!r}")
    bits = math.prod(shape) * BITS[dtype]
    if bits != 8 * (end - begin):
        raise Malformed(f"{name!r} is {dtype} of shape {shape}, {bits // 8:,} bytes, but has {end - begin:,}")
    fits = origin if origin is not None and len(origin) == len(shape) else None
    return Place(name=name, dtype=dtype, shape=tuple(shape), offset=start + begin, nbytes=end - begin, origin=fits)


def _check_order(facts: FileFacts, start: int) -> None:
    at = start
    for place in facts.places:
        if place.offset != at:
            what = "a gap before" if place.offset > at else "an overlap at"
            raise Malformed(f"its header leaves {what} {place.name!r}: byte {place.offset:,}, expected {at:,}")
        at = place.offset + place.nbytes


def _origins(metadata: Any) -> dict[str, tuple[int, ...]]:
    """Shard offsets written by torch.distributed.checkpoint's safetensors writer or by stayfinite."""
    try:
        sharding = json.loads(metadata["DCP_SHARDING_INFO"])
        return {name: tuple(map(int, each["saved_offsets"])) for name, each in sharding.items()}
    except (TypeError, KeyError, ValueError, AttributeError, RecursionError):
        return {}
