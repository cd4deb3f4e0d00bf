"""Whether a model that predicts the next token sees it: a token is changed, and the predictions before it compared."""

from __future__ import annotations

import torch
from torch import Tensor

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.still_pass import still_pass
from stayfinite.inspection.bench.watch import LossCall, Seen
from stayfinite.inspection.probes.sample_leak import NOTHING, Leak

SHIFTED = 0.95
"""The share of labels that must be the token after."""


def causal_leak(bench: Bench) -> Leak | None:
    """The leak from a token to predictions before it; None for a model that does not predict the next token.

    Such a model is known by its data: the labels of a cross entropy are what an embedding is asked for, one position
    later. The token is changed at the embedding, so that the labels stay as they are.
    """
    base = bench.still
    found = _next_token(base.seen)
    if found is None:
        return None
    call, number = found
    ids = base.seen.ids[call]
    length = ids.shape[1]
    place = length - max(1, length // 4)

    def change(current: int, asked: Tensor) -> Tensor:
        if current != call or asked.shape != ids.shape:
            return asked
        asked = asked.clone()
        # One that is in use, so that it has a row; not the one that is there.
        others = ids.flatten()[ids.flatten() != asked[0, place]]
        asked[:, place] = torch.where(asked[:, place] == others[0], ids[0, place], others[0])
        return asked

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
    """The call of an embedding and that of a loss whose labels are the tokens after."""
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
    """Labels by row and position, where there is one for each token or for each but the last."""
    rows, length = ids.shape
    for positions in (length, length - 1):
        if target.numel() == rows * positions:
            return target.reshape(rows, positions)
    return None


def _by_position(loss: LossCall, ids: Tensor) -> Tensor | None:
    """Scores by row, position and class."""
    labels = _rows_of(loss.target, ids)
    if labels is None:
        return None
    scores = loss.input
    if scores.dim() == 3:
        scores = scores.movedim(1, -1)
    return scores.reshape(*labels.shape, -1) if scores.dim() >= 2 else None
