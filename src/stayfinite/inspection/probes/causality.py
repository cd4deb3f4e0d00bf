"""Check a causal model for leaks from later tokens: change a token and compare the predictions before it."""

from __future__ import annotations

import torch
from torch import Tensor

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.still_pass import still_pass
from stayfinite.inspection.bench.watch import LossCall, Seen
from stayfinite.inspection.probes.sample_leak import NOTHING, Leak

SHIFTED = 0.95  # share of labels that must equal the next token


def causal_leak(bench: Bench) -> Leak | None:
    """The leak from a token to earlier predictions; None if the model does not predict the next token.

    Such a model is recognized by its data: cross-entropy labels are the embedding's ids, shifted by one. The token is
    changed at the embedding, so the labels stay the same.
    """
    base = bench.still
    found = _next_token(base.seen)
    if found is None:
        return None
    call, number = found
    ids = base.seen.ids[call]
    length = ids.shape[1]
    place = length - max(1, length // 4)

    def change(current: int, given: Tensor) -> Tensor:
        if current != call or given.shape != ids.shape:
            return given
        given = given.clone()
        # A different token that occurs in the batch, so that the embedding has a row for it.
        others = ids.flatten()[ids.flatten() != given[0, place]]
        given[:, place] = torch.where(given[:, place] == others[0], ids[0, place], others[0])
        return given

    other = still_pass(bench.step, bench.few, change)
    before, after = (_by_position(one.seen.losses[number], ids) for one in (base, other))
    if before is None or after is None or before.shape != after.shape:
        return None
    moved = (after.float() - before.float()).abs().amax(-1).amax(0)
    own = float(moved[place:].max()) if moved[place:].numel() else 0.0
    if own <= NOTHING * float(before.float().abs().amax()):
        return None
    return Leak(float(moved[:place].max()) / own, f"the input of {base.seen.losses[number].name}", place)


def _next_token(seen: Seen) -> tuple[int, int] | None:
    """Indices of the embedding call and of the loss whose labels are the next tokens."""
    for number, loss in enumerate(seen.losses):
        if loss.name not in ("cross_entropy", "nll_loss") or loss.target.is_floating_point():
            continue
        ignored = loss.settings.get("ignore_index", -100)
        for call, ids in enumerate(seen.ids):
            if ids.dim() != 2 or ids.shape[1] < 4 or ids.unique().numel() < 4:
                continue
            labels = _rows_of(loss.target, ids)
            if labels is None:
                continue
            labels = labels[:, : ids.shape[1] - 1]
            counted = labels != ignored
            if int(counted.sum()) < 4:
                continue
            shifted = float((labels == ids[:, 1:])[counted].float().mean())
            if shifted >= SHIFTED and float((labels == ids[:, :-1])[counted].float().mean()) < SHIFTED:
                return call, number
    return None


def _rows_of(target: Tensor, ids: Tensor) -> Tensor | None:
    """Labels by row and position, if there is one per token, or per token but the last."""
    rows, length = ids.shape
    for positions in (length, length - 1):
        if target.numel() == rows * positions:
            return target.reshape(rows, positions)
    return None


def _by_position(loss: LossCall, ids: Tensor) -> Tensor | None:
    """Logits by row, position and class."""
    labels = _rows_of(loss.target, ids)
    if labels is None:
        return None
    scores = loss.input
    if scores.dim() == 3:
        scores = scores.movedim(1, -1)
    return scores.reshape(*labels.shape, -1) if scores.dim() >= 2 else None
