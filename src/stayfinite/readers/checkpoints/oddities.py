"""Findings about suspicious finite values: absurd magnitudes, matrices that were never filled. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from stayfinite.core.finding import Finding
from stayfinite.readers.checkpoints.dtypes import FLOATS
from stayfinite.readers.checkpoints.result import Scanned, listed
from stayfinite.readers.checkpoints.roles import is_matrix, may_be_infinite, may_be_large, role_of, starts_at_zero

HALF_ENDS = 65504.0
"""The largest fp16 value."""

MOMENTS_END = 1e30
"""Its square root exceeds any plausible gradient."""

REPLACE_IT = "copy or download it again, or use the previous checkpoint; do not resume from this one"


def oddities(scanned: Scanned) -> Iterator[Finding]:
    """Yield findings about the finite values of one checkpoint."""
    yield from _magnitudes(scanned)
    yield from _emptiness(scanned)


def _magnitudes(scanned: Scanned) -> Iterator[Finding]:
    weights, moments = [], []
    for file, place, values in scanned.tensors():
        role = role_of(file.path.name, place.name)
        line = f"{place.name} ({place.dtype}): magnitudes up to {values.largest:.4g}, in {file.path.name}"
        if place.dtype not in FLOATS or values.bad or role == "bookkeeping" or may_be_large(place.name):
            continue
        if role == "model" and values.largest > HALF_ENDS and math.prod(place.shape) > 1:
            weights.append((values.largest, line))
        elif role == "optimizer" and values.largest > MOMENTS_END:
            moments.append((values.largest, line))
    for kind, lines, bound in (("weights", weights, HALF_ENDS), ("optimizer's moments", moments, MOMENTS_END)):
        if not lines:
            continue
        lines.sort(reverse=True)
        overflow = "overflow in fp16 (limit 65,504)" if kind == "weights" else "are close to overflow"
        yield scanned.finding(
            "SF702",
            "warning",
            0.8 if lines[0][0] > 1e3 * bound else 0.6,
            title=f"{scanned.name} has extreme values: {len(lines)} of its {kind} {overflow}",
            evidence=listed([line for _, line in lines]),
            fix="compare with an earlier checkpoint: growth means divergence; do not cast it to fp16",
        )


def _emptiness(scanned: Scanned) -> Iterator[Finding]:
    matrices = [
        (file, place, values)
        for file, place, values in scanned.tensors()
        if place.dtype in FLOATS and is_matrix(place) and role_of(file.path.name, place.name) == "model"
    ]
    matrices = [each for each in matrices if not starts_at_zero(each[1].name) and not may_be_infinite(each[1].name)]
    odd = [(file, place, values) for file, place, values in matrices if values.constant is not None]
    if not odd:
        return
    zero = [each for each in odd if each[2].constant == 0]
    lines = [
        f"{place.name} {list(place.shape)} is {values.constant:g} everywhere, in {file.path.name}"
        for file, place, values in odd
    ]
    unwritten = len(zero) >= 3 and 2 * len(zero) >= len(matrices)
    yield scanned.finding(
        "SF703" if unwritten else "SF702",
        "error" if unwritten else "info",
        0.85 if unwritten else 0.1,
        title=f"{scanned.name}: {len(zero)} of {len(matrices)} weight matrices are all zero, as if never written"
        if unwritten
        else f"{scanned.name} has {len(odd)} constant weight matrices",
        evidence=listed(lines),
        fix=REPLACE_IT
        if unwritten
        else "normal for a layer initialized this way; otherwise check that it gets a gradient",
    )
