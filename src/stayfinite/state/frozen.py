"""Frozen weights that are left out of a state, but verified by a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stayfinite.errors import StateError
from stayfinite.state.shards import full_value, local_part

CHUNKS = 64
"""Partial sums per tensor, so moved values are noticed too."""


class FrozenMark:
    """Fingerprint of frozen weights: names, shapes and all bits. Recomputed only if one was written to."""

    def __init__(self) -> None:
        self._of: tuple[tuple[int, int], ...] | None = None
        self._mark = ""

    def of(self, frozen: Mapping[str, Tensor]) -> str:
        """Current fingerprint."""
        parts = map(local_part, frozen.values())
        now = tuple((part.data_ptr(), part._version) for part in parts)
        if self._of != now:
            self._mark, self._of = fingerprint(frozen), now
        return self._mark


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """24 hex characters that identify names and values. One sync with the device.

    Sharded tensors count as a whole, however they are sharded: a collective.
    """
    digest = hashlib.blake2b(digest_size=12)
    sums = [_sums(tensor) for tensor in tensors.values()]
    for name, tensor in tensors.items():
        digest.update(f"{name} {list(tensor.shape)} {tensor.dtype}\n".encode())
    by_device: dict[torch.device, list[Tensor]] = {}
    for each in sums:
        by_device.setdefault(each.device, []).append(each)
    for found in by_device.values():
        digest.update(torch.cat(found).cpu().numpy().tobytes())
    return digest.hexdigest()


def check_frozen(saved: Mapping[str, Any] | None, left_out: Mapping[str, Tensor] | None, mark: FrozenMark) -> None:
    """Reject a state built on other weights.

    The state may have some of the weights that this training leaves out, but not the reverse.

    Arguments:
        saved: the state's record of the weights it leaves out; None if it has all.
        left_out: weights that this training leaves out; None if it keeps all.

    Raises:
        StateError: the message says what differs.
    """
    if saved is None and left_out is None:
        return
    if saved is None or left_out is None:
        has, lacks = ("this training leaves", "the saved state does not") if saved is None else (
            "the saved state leaves", "this training does not")  # fmt: skip
        raise StateError(
            f"{has} frozen weights out, {lacks}",
            fix="resume with the same Policy(keep_frozen=...) as the saved run",
        )
    if odd := sorted(set(saved["names"]) - set(left_out)):
        raise StateError(
            f"different weights are frozen than in the saved state: {odd[0]}"
            + (f" and {len(odd) - 1} more" if odd[1:] else ""),
            fix="freeze the same weights as the saved run",
        )
    here = mark.of({name: left_out[name] for name in left_out if name in set(saved["names"])})
    if saved["mark"] != here:
        raise StateError(
            f"the frozen weights differ from the saved run's (fingerprint {saved['mark']}, here {here})",
            fix="load the same base model, in the same precision, before resuming",
        )


def _sums(tensor: Tensor) -> Tensor:
    """Sums of the tensor's bits in chunks, on its device."""
    flat = full_value(tensor).contiguous().flatten()
    if not flat.numel():
        return torch.zeros(1, dtype=torch.int64, device=flat.device)
    raw = flat.view(torch.uint8)
    words = raw[: len(raw) // 4 * 4].view(torch.int32)
    whole = len(words) // CHUNKS * CHUNKS
    parts = [words[:whole].view(CHUNKS, -1).sum(1, dtype=torch.int64)] if whole else []
    # Small tensors and remainders are taken as they are.
    return torch.cat([*parts, words[whole:].long(), raw[len(raw) // 4 * 4 :].long()])
