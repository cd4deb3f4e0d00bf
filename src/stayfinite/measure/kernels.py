# Triton's constants are upper-case arguments, and its types are its own.
# ruff: noqa: N803
# mypy: ignore-errors
"""Triton kernels that read many tensors in one launch.

Only ``one_pass.py`` and ``movement.py`` import this module, when there is something to measure on a GPU; Triton is not
needed otherwise. Tensors are given by their addresses in a table and split into chunks, one program per chunk. Partial
results are stored separately and reduced in a fixed order, so equal gradients give equal bits in every run.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

ELEMENTS = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}
WORD: Any = tl.constexpr(16)
"""Bytes per load; reads are aligned to it."""
MAGNITUDE: Any = tl.constexpr(0x7FFFFFFF)
"""All bits of a float32 except the sign. As integers, infinity and NaN are the largest magnitudes."""
INFINITE: Any = tl.constexpr(0x7F800000)


@triton.jit
def _look(x, valid, squares, peaks, zeros):
    """Accumulate some elements; ``valid`` is 1 for real ones, and ``x`` is 0 elsewhere."""
    bits = x.to(tl.int32, bitcast=True) & MAGNITUDE
    return squares + x * x, tl.maximum(peaks, bits), zeros + (bits == 0).to(tl.int32) * valid


@triton.jit(do_not_specialize=["first"])
def look_at_chunks(
    addresses, sizes, owners, places, first, squares_out, peaks_out, zeros_out, bad_out,
    ELEMENT: tl.constexpr, BYTES: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Process one chunk of one tensor: sum of squares, largest magnitude, zeros, non-finite values.

    A tensor that is not 16-byte aligned is read from the aligned address before it, with the elements ahead of it
    masked out, so all but the first and last few elements are loaded in whole words.
    """
    chunk = first + tl.program_id(0)
    owner = tl.load(owners + chunk)
    place = tl.load(places + chunk)
    size = tl.load(sizes + owner)
    address = tl.load(addresses + owner)
    ahead = (address % WORD) // BYTES
    base = tl.multiple_of((address - ahead * BYTES).to(tl.pointer_type(ELEMENT)), 16)
    start = place.to(tl.int64) * CHUNK
    base = tl.multiple_of(base + start, 16)
    # Elements ``low`` to ``high`` of the chunk. The last chunk includes those moved out by the shift.
    low = tl.where(place == 0, ahead, 0).to(tl.int32)
    is_last = start + CHUNK >= size
    high = tl.where(is_last, size + ahead - start, CHUNK).to(tl.int32)
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    peaks = tl.zeros([BLOCK], dtype=tl.int32)
    zeros = tl.zeros([BLOCK], dtype=tl.int32)
    bad = tl.zeros([BLOCK], dtype=tl.int32)

    begin = tl.where(low > 0, BLOCK, 0)
    if low > 0:
        valid = (lanes >= low) & (lanes < high)
        x = tl.load(base + lanes, mask=valid, other=0.0).to(tl.float32)
        squares, peaks, zeros = _look(x, valid.to(tl.int32), squares, peaks, zeros)
    strips = tl.maximum(high - begin, 0) // (BLOCK * UNROLL)
    for strip in range(strips):
        here = tl.multiple_of(begin + strip * (BLOCK * UNROLL), BLOCK)
        for turn in tl.static_range(UNROLL):
            x = tl.load(base + here + turn * BLOCK + lanes).to(tl.float32)
            squares, peaks, zeros = _look(x, 1, squares, peaks, zeros)
    for here in range(begin + strips * (BLOCK * UNROLL), high, BLOCK):
        valid = here + lanes < high
        x = tl.load(base + here + lanes, mask=valid, other=0.0).to(tl.float32)
        squares, peaks, zeros = _look(x, valid.to(tl.int32), squares, peaks, zeros)

    peak = tl.max(peaks)
    if peak >= INFINITE:
        # Rare, so read again: a count that is nearly always 0 would cost the fast path a third.
        for here in range(0, high, BLOCK):
            valid = (here + lanes >= low) & (here + lanes < high)
            x = tl.load(base + here + lanes, mask=valid, other=0.0).to(tl.float32)
            bad += ((x.to(tl.int32, bitcast=True) & MAGNITUDE) >= INFINITE).to(tl.int32)
    tl.store(squares_out + chunk, tl.sum(squares))
    tl.store(peaks_out + chunk, peak)
    tl.store(zeros_out + chunk, tl.sum(zeros))
    tl.store(bad_out + chunk, tl.sum(bad))


@triton.jit
def fold_chunks(
    starts, sizes, squares_in, peaks_in, zeros_in, bad_in, squares_out, norms_out, zeros_out, table_out,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Reduce the chunks of one tensor in a fixed order; ``table_out`` is [tensors, COLUMNS]."""
    tensor = tl.program_id(0)
    begin, end = tl.load(starts + tensor), tl.load(starts + tensor + 1)
    lanes = tl.arange(0, WIDTH)
    squares = tl.zeros([WIDTH], dtype=tl.float64)
    peaks = tl.zeros([WIDTH], dtype=tl.int32)
    zeros = tl.zeros([WIDTH], dtype=tl.int64)
    bad = tl.zeros([WIDTH], dtype=tl.int64)
    for here in range(begin, end, WIDTH):
        chunk = here + lanes
        valid = chunk < end
        squares += tl.load(squares_in + chunk, mask=valid, other=0.0).to(tl.float64)
        peaks = tl.maximum(peaks, tl.load(peaks_in + chunk, mask=valid, other=0))
        zeros += tl.load(zeros_in + chunk, mask=valid, other=0).to(tl.int64)
        bad += tl.load(bad_in + chunk, mask=valid, other=0).to(tl.int64)
    square = tl.sum(squares)
    norm = tl.sqrt(square)
    zero = tl.sum(zeros)
    size = tl.load(sizes + tensor)
    row = table_out + tensor * COLUMNS
    tl.store(squares_out + tensor, square)
    tl.store(norms_out + tensor, norm)
    tl.store(zeros_out + tensor, zero)
    tl.store(row, norm)
    tl.store(row + 1, tl.max(peaks).to(tl.float32, bitcast=True).to(tl.float64))
    # An empty tensor counts as all zeros.
    tl.store(row + 2, tl.where(size == 0, 1.0, zero.to(tl.float64) / tl.maximum(size, 1).to(tl.float64)))
    tl.store(row + 3, tl.sum(bad).to(tl.float64))


@triton.jit(do_not_specialize=["tensors"])
def fold_tensors(squares_in, total_out, tensors, WIDTH: tl.constexpr):
    """Norm of all tensors together; one program."""
    lanes = tl.arange(0, WIDTH)
    squares = tl.zeros([WIDTH], dtype=tl.float64)
    for here in range(0, tensors, WIDTH):
        squares += tl.load(squares_in + here + lanes, mask=here + lanes < tensors, other=0.0)
    tl.store(total_out, tl.sqrt(tl.sum(squares)).to(tl.float32))


@triton.jit(do_not_specialize=["first"])
def take_subset(
    addresses, owners, places, strides, counts, offsets, first, kept,
    ELEMENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy every n-th element of one tensor to ``kept``; one program per ``BLOCK`` elements."""
    chunk = first + tl.program_id(0)
    owner = tl.load(owners + chunk)
    base = tl.load(addresses + owner).to(tl.pointer_type(ELEMENT))
    number = tl.load(places + chunk) * BLOCK + tl.arange(0, BLOCK)
    valid = number < tl.load(counts + owner)
    x = tl.load(base + number.to(tl.int64) * tl.load(strides + owner), mask=valid, other=0.0)
    tl.store(kept + tl.load(offsets + owner) + number, x, mask=valid)


@triton.jit(do_not_specialize=["first"])
def compare_subset(
    addresses, strides, counts, offsets, first, kept, table_out,
    ELEMENT: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Relative change of those elements of one tensor; 0 / 0 is NaN.

    Written to the last column of the tensor's row. One program per tensor.
    """
    tensor = first + tl.program_id(0)
    base = tl.load(addresses + tensor).to(tl.pointer_type(ELEMENT))
    stride, count = tl.load(strides + tensor), tl.load(counts + tensor)
    kept += tl.load(offsets + tensor)
    lanes = tl.arange(0, BLOCK)
    moved = tl.zeros([BLOCK], dtype=tl.float64)
    size = tl.zeros([BLOCK], dtype=tl.float64)
    for start in range(0, count, BLOCK):
        number = start + lanes
        valid = number < count
        now = tl.load(base + number.to(tl.int64) * stride, mask=valid, other=0.0).to(tl.float32)
        before = tl.load(kept + number, mask=valid, other=0.0).to(tl.float32)
        apart = (now - before).to(tl.float64)
        moved += apart * apart
        size += before.to(tl.float64) * before
    tl.store(table_out + tensor * COLUMNS + COLUMNS - 1, tl.sqrt(tl.sum(moved)) / tl.sqrt(tl.sum(size)))
