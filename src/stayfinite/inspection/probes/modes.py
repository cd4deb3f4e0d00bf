"""Modes: training or evaluation, dropout, BatchNorm, gradients disabled."""

from __future__ import annotations

from torch import nn

from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import names_in_short
from stayfinite.inspection.notes import Notes


def look(bench: Bench, notes: Notes) -> None:
    """Record the model's mode while the loss is computed."""
    first = bench.first
    training = first.seen.training if first.seen.training is not None else bench.model.training
    notes.saw("model.training_in_train", training, "the first step")
    asleep = _asleep(bench)
    if training and asleep:
        notes.saw("modules.in_eval", asleep, "the first step")
    dropouts = _dropouts(bench)
    norms = [m for m in bench.model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    seen = f"{len(dropouts)} dropouts, {len(norms)} BatchNorms"
    notes.check("Modes", "training mode", "wrong-mode", seen=seen)
    if bench.trainable and first.seen.grad_enabled is False and first.forward_error is None and not first.attached:
        notes.saw("model.grad_disabled_in_train", True, "the first step")
    elif bench.trainable and not bench.kept.gradients_on:
        notes.saw("model.grad_disabled_in_train", True, "torch.is_grad_enabled() before the first step")
    rate, where = max(((module.p, name) for name, module in dropouts), default=(0.0, ""))
    notes.saw("dropout.rate", rate, where)
    notes.check("Modes", "dropout rate", "excess-dropout", seen=f"at most {rate:g}")
    notes.check("Modes", "gradients enabled", "detached-loss", "wrong-mode")
    fixed = [m for m in norms if not m.training and m.weight is not None and m.weight.requires_grad]
    if fixed:
        notes.check("Modes", "BatchNorm statistics", seen=f"{len(fixed)} of {len(norms)} in eval, on purpose?")


def _dropouts(bench: Bench) -> list[tuple[str, nn.modules.dropout._DropoutNd]]:
    """Active dropout modules by name."""
    return [
        (name, module)
        for name, module in bench.model.named_modules()
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0
    ]


def _asleep(bench: Bench) -> list[str]:
    """Dropouts in evaluation mode inside a trained part that has no active dropout.

    `from_pretrained` returns a model in evaluation mode, even as part of another model.
    """
    learning = [(name, module) for name, module in _dropouts(bench) if _learns(bench, name)]
    seen = bench.first.seen
    if seen.training is None or not learning or any(id(module) in seen.awake for _, module in learning):
        return []
    return [names_in_short([name for name, _ in learning])]


def _learns(bench: Bench, name: str) -> bool:
    """Whether the parent of a module is mostly trainable; a frozen backbone under a small head is not."""
    around = bench.model.get_submodule(name.rpartition(".")[0])
    own = list(around.parameters())
    learning = sum(p.numel() for p in own if p.requires_grad)
    return bool(own) and 2 * learning > sum(p.numel() for p in own)
