"""Read the arguments of a loss function: probabilities or logits, share of active labels, starting value."""

import math

import torch
from torch import Tensor

from stayfinite.inspection.bench.watch import LossCall

FAR = 0.5  # tolerated |log(sum of probabilities)|


def gets_probabilities(call: LossCall) -> bool:
    """Whether a loss on logits gets the output of a softmax or sigmoid."""
    if call.name == "cross_entropy":
        rows = _rows(call.input)
        if rows is None or min(rows.shape[0] * 2, rows.shape[1]) < 2 or not bool(rows.isfinite().all()):
            return False
        return bool((rows >= 0).all()) and bool(((rows.sum(1) - 1).abs() < 1e-2).all())
    return call.name == "binary_cross_entropy_with_logits" and call.made_by == "Sigmoid"


def gets_scores(call: LossCall) -> bool:
    """Whether a loss on probabilities or log-probabilities gets something else."""
    if call.name == "binary_cross_entropy":
        return not bool(((call.input >= 0) & (call.input <= 1)).all()) and bool(call.input.isfinite().all())
    if call.name == "nll_loss":
        sums = _log_sums(call)
        return sums is not None and bool((sums.abs() > FAR).float().mean() > 0.5)
    if call.name == "kl_div" and not call.target.requires_grad:
        return bool((call.input > 1e-3).any())
    return False


def normalised_over_rows(call: LossCall) -> bool:
    """Whether the probabilities sum to 1 over the batch instead of the classes."""
    rows = _rows(call.input)
    sums = _log_sums(call)
    if call.name != "nll_loss" or rows is None or sums is None or min(rows.shape) < 2:
        return False
    over_batch = torch.logsumexp(rows, 0)
    return bool((over_batch.abs() < 1e-2).all()) and bool((sums.abs() > 5e-2).any())


def negated(call: LossCall, loss: Tensor) -> bool:
    """Whether the loss is this one negated."""
    if call.name not in ("cross_entropy", "mse_loss", "l1_loss") or call.value is None or call.value.numel() != 1:
        return False
    value = float(call.value.float())
    return value > 0 and math.isclose(float(loss), -value, rel_tol=1e-4)


def supervised_share(call: LossCall) -> float | None:
    """Share of labels that are not ignored; None if the loss has no ignore index."""
    if call.name not in ("cross_entropy", "nll_loss") or call.target.is_floating_point() or not call.target.numel():
        return None
    return float((call.target != call.settings.get("ignore_index", -100)).float().mean())


def start_of(call: LossCall) -> tuple[float, float, str] | None:
    """Mean cross entropy, ln(classes) and the line, if the loss is a plain cross entropy over classes."""
    if call.name != "cross_entropy" or call.value is None or call.settings.get("weight") is not None:
        return None
    square = call.input.dim() == 2 and call.input.shape[0] == call.input.shape[1]
    if square and call.target.unique().numel() == call.target.numel():
        return None  # contrastive: no classes
    classes = int(call.input.shape[1] if call.input.dim() > 1 else call.input.shape[0])
    share = 1.0 if call.target.is_floating_point() else supervised_share(call) or 0.0
    labels = call.target.numel() // (classes if call.target.is_floating_point() else 1)
    counted = share * labels
    if classes < 2 or counted < 1:
        return None
    reduction = call.settings.get("reduction", "mean")
    total = float(call.value.float().sum())
    value = total if reduction == "mean" else total / counted
    return (value, math.log(classes), call.place) if math.isfinite(value) else None


def _rows(input: Tensor) -> Tensor | None:
    """Logits as rows of classes."""
    if input.dim() < 2:
        return None
    return input.detach().float().movedim(1, -1).reshape(-1, input.shape[1])


def _log_sums(call: LossCall) -> Tensor | None:
    rows = _rows(call.input)
    return None if rows is None or not bool(rows.isfinite().all()) else torch.logsumexp(rows, 1)
