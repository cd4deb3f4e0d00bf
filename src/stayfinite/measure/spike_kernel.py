# Triton's constants are upper-case arguments, and its types are its own.
# ruff: noqa: N803
# mypy: ignore-errors
"""The spike test as one Triton kernel; ``spikes.py`` has the same in torch.

Only ``spikes.py`` imports this module, when a step is judged on a GPU; Triton is not needed otherwise.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from stayfinite.core import spikes

NOT_FINITE: Any = tl.constexpr(int(spikes.Verdict.NOT_FINITE))
LOSS_SPIKE: Any = tl.constexpr(int(spikes.Verdict.LOSS_SPIKE))
GRADIENT_SPIKE: Any = tl.constexpr(int(spikes.Verdict.GRADIENT_SPIKE))
NEW_LEVEL: Any = tl.constexpr(int(spikes.Verdict.NEW_LEVEL))
TAKEN: Any = tl.constexpr(int(spikes.Verdict.TAKEN))
FAULT: Any = tl.constexpr(int(spikes.Verdict.FAULT))
NEGLIGIBLE: Any = tl.constexpr(spikes.NEGLIGIBLE)
SIGNED: Any = tl.constexpr(spikes.SIGNED)
LEAST_SAMPLES: Any = tl.constexpr(spikes.LEAST_SAMPLES)
INFINITY: Any = tl.constexpr(float("inf"))
STRIP: Any = tl.constexpr(16)
"""Samples compared with all others at a time."""
LARGE: Any = tl.constexpr(1e150)
"""Above it a square overflows, and adding 1 changes nothing."""
LOG_OF_2: Any = tl.constexpr(0.6931471805599453)


@triton.jit
def _asinh(x):
    size = tl.abs(x)
    beyond = size > LARGE
    # asinh(x) is log(1 + more); the quotient restores the digits of small numbers that the sum loses.
    square = tl.where(beyond, 0.0, size * size)
    more = size + square / (1.0 + tl.sqrt(square + 1.0))
    total = 1.0 + more
    near = tl.where(total == 1.0, more, tl.log(total) * (more / tl.where(total == 1.0, 1.0, total - 1.0)))
    value = tl.where(beyond, tl.log(tl.where(beyond, size, 1.0)) + LOG_OF_2, near)
    return tl.where(x < 0, -value, value)


@triton.jit
def _middle(row, lanes, count, centre, APART: tl.constexpr):
    """Median of a row's first ``count`` samples or, with ``APART``, of their distances from ``centre``.

    A sample's rank is the number of samples before it: for so few, all comparisons are as fast as sorting, and far
    faster in Triton's interpreter.
    """
    values = tl.load(row + lanes, mask=lanes < count, other=0.0)
    if APART:
        values = tl.abs(values - centre)
    strip = tl.arange(0, STRIP)
    before = tl.zeros([STRIP, lanes.shape[0]], dtype=tl.int32)
    for start in range(0, count, STRIP):
        number = start + strip
        others = tl.load(row + number, mask=number < count, other=0.0)
        if APART:
            others = tl.abs(others - centre)
        others, number = others[:, None], number[:, None]
        earlier = (others < values[None, :]) | ((others == values[None, :]) & (number < lanes[None, :]))
        before += (earlier & (number < count)).to(tl.int32)
    place = tl.where(lanes < count, tl.sum(before, axis=0), -1)
    low = tl.sum(tl.where(place == (count - 1) // 2, values, 0.0))
    high = tl.sum(tl.where(place == count // 2, values, 0.0))
    return (low + high) / 2


@triton.jit
def _bound(row, lanes, count, floor, settings, warmup):
    """Highest non-spike value after the samples of this row, their median, and the usual bound."""
    sigmas, widening = tl.load(settings + 2), tl.load(settings + 3)
    to_sigma, clearance = tl.load(settings + 4), tl.load(settings + 5)
    middle = _middle(row, lanes, count, 0.0, False)
    deviation = _middle(row, lanes, count, middle, True)
    highest = tl.max(tl.load(row + lanes, mask=lanes < count, other=-INFINITY))
    least = tl.where(count < warmup, floor * widening, floor)
    sigma = tl.maximum(to_sigma * deviation, least)
    usual = middle + sigmas * sigma
    limit = tl.maximum(usual, highest + clearance * sigma)
    few = count < LEAST_SAMPLES
    return tl.where(few, INFINITY, limit), tl.where(few, INFINITY, middle), tl.where(few, INFINITY, usual)


@triton.jit
def _admit(row, sample, accepted, new_level, count, count_at, place, place_at, lanes, size):
    """Add a sample to its window if it is accepted; a new level starts with an empty window."""
    # A gradient norm of exactly 0 has no logarithm and says nothing about the usual size.
    enters = (accepted & (tl.abs(sample) < INFINITY)).to(tl.int64)
    count = tl.where(new_level, 0, count)
    place = tl.where(new_level, 0, place)
    tl.store(row + lanes, sample, mask=lanes == tl.where(enters == 1, place, -1))
    tl.store(count_at, tl.minimum(count + enters, size))
    tl.store(place_at, (place + enters) % size)


@triton.jit(do_not_specialize=["loss_in", "norm_in", "size", "warmup", "level_change_after", "mode"])
def judge_step(
    loss_in, norm_in, settings, window, counts, places, strikes_at, quiet_at, course, judged_out, refused_out,
    divisor_out, size, warmup, level_change_after, mode, PADDED: tl.constexpr,
):  # fmt: skip
    """Judge a step and update the windows; one program. ``window`` is [2, size], ``PADDED`` at least ``size``.

    ``settings``: floors of loss and norm, sigmas, warmup widening, deviation to sigma, clearance, clipping norm, its
    epsilon, and the multiple of an implausible loss. ``course``: highest usual loss, and the log of the allowed
    multiple of the median norm. ``mode``: 0 ignores spikes, 1 refuses, 2 bounds them. ``judged_out`` gets loss, norm,
    verdict and limit.
    """
    loss, norm = tl.load(loss_in).to(tl.float64), tl.load(norm_in).to(tl.float64)
    finite = (tl.abs(loss) < INFINITY) & (tl.abs(norm) < INFINITY)
    loss_sample = _asinh(tl.where(finite, loss, 0.0))
    some = finite & (norm > 0)
    norm_sample = tl.where(some, tl.log(tl.where(some, norm, 1.0)), -INFINITY)

    lanes = tl.arange(0, PADDED)
    loss_count, norm_count = tl.load(counts), tl.load(counts + 1)
    loss_place, norm_place = tl.load(places), tl.load(places + 1)
    strikes, quiet = tl.load(strikes_at), tl.load(quiet_at)
    max_norm, eps = tl.load(settings + 6), tl.load(settings + 7)
    highest, allowed = tl.load(course), tl.load(course + 1)
    loss_bound, _, _ = _bound(window, lanes, loss_count.to(tl.int32), tl.load(settings), settings, warmup)
    norm_bound, middle, usual = _bound(
        window + size, lanes, norm_count.to(tl.int32), tl.load(settings + 1), settings, warmup
    )
    bounds = mode == 2
    implausible = (highest > NEGLIGIBLE) & (loss > tl.load(settings + 8) * highest)
    norm_bound = tl.where(bounds, tl.where(implausible, middle, tl.maximum(usual, middle + allowed)), norm_bound)
    # Every warp loads the whole state; none may see what another has already written.
    tl.debug_barrier()
    loss_above = finite & (mode != 0) & (loss_sample > loss_bound)
    norm_above = finite & (mode != 0) & (norm_sample > norm_bound)
    spike = loss_above | norm_above
    taken = spike & bounds
    new_level = spike & (mode == 1) & (strikes >= level_change_after)
    struck = spike & (mode == 1) & (strikes < level_change_after)
    accepted = finite & (struck == 0)
    limit = tl.where(norm_above & bounds, norm_bound, INFINITY)
    norm_sample = tl.minimum(norm_sample, limit)
    _admit(window, loss_sample, accepted, new_level, loss_count, counts, loss_place, places, lanes, size)
    _admit(window + size, norm_sample, accepted, new_level, norm_count, counts + 1, norm_place, places + 1, lanes, size)

    calm = tl.where(new_level, 0, quiet) + 1
    forgiven = new_level | (accepted & (calm >= size))
    tl.store(strikes_at, tl.where(struck, strikes + 1, tl.where(forgiven, 0, strikes)))
    tl.store(quiet_at, tl.where(struck, 0, tl.where(accepted, tl.minimum(calm, size), quiet)))
    verdict = tl.where(finite, 0, NOT_FINITE) + tl.where(loss_above, LOSS_SPIKE, 0)
    verdict += tl.where(norm_above, GRADIENT_SPIKE, 0) + tl.where(new_level, NEW_LEVEL, 0) + tl.where(taken, TAKEN, 0)
    verdict += tl.where(taken & implausible, FAULT, 0)
    reached = tl.where(loss < 0, SIGNED, loss)
    tl.store(course, tl.where(accepted & (spike == 0) & (reached > highest), reached, highest))
    tl.store(judged_out, loss)
    tl.store(judged_out + 1, norm)
    tl.store(judged_out + 2, verdict.to(tl.float64))
    tl.store(judged_out + 3, limit)
    # Above 700 the limit would be infinite, as it is without one.
    bounded = tl.where(limit < 700.0, norm / tl.exp(tl.minimum(limit, 700.0)), 1.0)
    tl.store(divisor_out, tl.maximum(tl.maximum((norm + eps) / max_norm, 1.0), bounded))
    tl.store(refused_out, tl.where(accepted, 0.0, 1.0))
