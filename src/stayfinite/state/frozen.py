"""Weights that a training is built on and does not change: not kept in its states, but known again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from stayfinite.errors import StateError
from stayfinite.state.shards import full_value, local_part

CHUNKS = 64
"""Sums that are taken over each tensor, so that what changes places is noticed too."""


class FrozenMark:
    """A fingerprint of frozen weights: names, forms and all their bits. Taken again only if one was written to."""

    def __init__(self) -> None:
        self._of: tuple[tuple[int, int], ...] | None = None
        self._mark = ""

    def of(self, frozen: Mapping[str, Tensor]) -> str:
        """The fingerprint as of now."""
        parts = map(local_part, frozen.values())
        now = tuple((part.data_ptr(), part._version) for part in parts)
        if self._of != now:
            self._mark, self._of = fingerprint(frozen), now
        return self._mark


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Twenty-four characters that other numbers under these names do not have. Waits for the device once.

    Of tensors that are spread over ranks the whole ones count, however they are spread: a collective.
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


def check_frozen(saved: Mapping[str, Any] | None, names: list[str], mark: str | None) -> None:
    """Refuse a state that was built on other weights.

    Arguments:
        saved: what the state says of the weights that it leaves out; None where it has all of them.
        names: those that this training leaves out.
        mark: their fingerprint; None where it leaves none out.

    Raises:
        StateError: the message says what differs.
    """
    if saved is None and mark is None:
        return
    if saved is None or mark is None:
        has, lacks = ("this training leaves", "the saved state does not") if saved is None else (
            "the saved state leaves", "this training does not")  # fmt: skip
        raise StateError(
            f"{has} frozen weights out, {lacks}",
            fix="resume with the same Policy(keep_frozen=...) as the saved run",
        )
    if sorted(saved["names"]) != sorted(names):
        odd = sorted(set(saved["names"]) ^ set(names))
        raise StateError(
            f"different weights are frozen than in the saved state: {odd[0]}"
            + (f" and {len(odd) - 1} more" if odd[1:] else ""),
            fix="freeze the same weights as the saved run",
        )
    if saved["mark"] != mark:
        raise StateError(
            f"the frozen weights differ from the saved run's (fingerprint {saved['mark']}, here {mark})",
            fix="load the same base model, in the same precision, before resuming",
        )


def _sums(tensor: Tensor) -> Tensor:
    """Sums of the tensor's bits in chunks, where it lies."""
    flat = full_value(tensor).contiguous().flatten()
    if not flat.numel():
        return torch.zeros(1, dtype=torch.int64, device=flat.device)
    raw = flat.view(torch.uint8)
    words = raw[: len(raw) // 4 * 4].view(torch.int32)
    whole = len(words) // CHUNKS * CHUNKS
    parts = [words[:whole].view(CHUNKS, -1).sum(1, dtype=torch.int64)] if whole else []
    # Few numbers, and those that fill no chunk, are taken as they are.
    return torch.cat([*parts, words[whole:].long(), raw[len(raw) // 4 * 4 :].long()])
