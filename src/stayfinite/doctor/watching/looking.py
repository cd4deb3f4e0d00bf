"""Closer looks at gradients, weights and calls: cheap at every step, thorough at few."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.doctor.frames import place_here
from stayfinite.doctor.record import LossSeen, ModelSeen, OptimizerSeen, Place, Program, fingerprint, tensors_in
from stayfinite.inspection.bench.graph_walk import leaves_of

MOST_STATS = 24
MOST_PRINTS = 400
MOST_PAIRS = 4096
SMALL_MODEL = 1 << 24
"""Elements below which another copy of the model is cheap."""
SMALL = 1 << 16
"""Largest buffer to copy at every step."""
LARGE = 1 << 28
"""Elements above which weights are not copied."""


def is_due(step: int) -> bool:
    """Whether to look closely: at steps 0, 1, 2, 4, 8, ..."""
    return step & (step - 1) == 0


def gradients_of(optimizer: Any) -> list[Tensor]:
    """All gradients an optimizer is about to use."""
    return [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]


def norm_of(gradients: list[Tensor]) -> float:
    """Norm of all gradients; NaN if any is not finite."""
    dense = [g for g in gradients if not g.is_sparse and g.numel()]
    if not dense:
        return 0.0
    by_kind: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    for each in dense:
        by_kind.setdefault((each.device, each.dtype), []).append(each)
    total = 0.0
    for tensors in by_kind.values():
        norms = torch._foreach_norm(tensors)
        total += float(torch.stack([n.double() for n in norms]).square().sum())
    if not math.isfinite(total) and all(bool(each.isfinite().all()) for each in dense):
        return 1e30
    return math.sqrt(total) if math.isfinite(total) else math.nan


def weights_of(program: Program, most: int = LARGE) -> dict[int, Tensor]:
    """Copies of all weights and buffers by ``id``; empty above ``most`` elements."""
    tensors: dict[int, Tensor] = {}
    for seen in program.optimizers.values():
        tensors.update((id(p), p) for p in seen.parameters)
    for model in program.models.values():
        tensors.update((id(t), t) for t in (*model.module.parameters(), *model.module.buffers()))
    if sum(t.numel() for t in tensors.values()) > most:
        return {}
    return {key: tensor.detach().clone() for key, tensor in tensors.items()}


def keep_buffers(module: nn.Module, kept: dict[int, Tensor]) -> None:
    """Copy a module's small buffers once per step: a bad batch poisons running statistics in its forward pass."""
    for buffer in module.buffers():
        if id(buffer) not in kept and buffer.is_floating_point() and buffer.numel() <= SMALL:
            kept[id(buffer)] = buffer.detach().clone()


def before_backward(seen: OptimizerSeen) -> None:
    """Check whether the last step's gradients are still there."""
    witness = seen.witness
    if witness is not None and not seen.cleared and (witness.grad is None or not bool(witness.grad.any())):
        seen.cleared = True
    if witness is not None and witness.grad is None and seen.fresh:
        seen.fresh = False


def after_backward(seen: OptimizerSeen) -> None:
    """Record fresh gradients."""
    if seen.witness is None or seen.witness.grad is None:
        smallest: Tensor | None = None
        for p in seen.parameters:
            smaller = smallest is None or p.numel() < smallest.numel()
            if smaller and p.grad is not None and not p.grad.is_sparse and bool(p.grad.any()):
                smallest = p
        seen.witness = smallest
    if seen.witness is not None and seen.witness.grad is not None and bool(seen.witness.grad.any()):
        seen.fresh = True
        seen.backwards += 1


def on_clear(seen: OptimizerSeen, owner: Any, place: Place) -> None:
    """Record a ``zero_grad`` on an optimizer or module."""
    concerned = owner is seen.optimizer
    if not concerned and isinstance(owner, nn.Module) and seen.witness is not None:
        concerned = any(p is seen.witness for p in owner.parameters())
    if not concerned:
        return
    if seen.fresh and seen.backwards:
        seen.cleared_unused += 1
        seen.cleared_place = place
    seen.fresh, seen.cleared = False, True


def before_step(seen: OptimizerSeen, norm: float, backwards: int, *, has_gradients: bool) -> None:
    """Check the gradients a step is about to use."""
    seen.idle += seen.steps > 0 and backwards == seen.backwards_before
    seen.backwards_before = backwards
    nonzero = has_gradients and norm != 0  # a NaN norm counts as nonzero
    seen.nothing += not nonzero
    seen.stale += not seen.cleared and nonzero and seen.steps > 0
    if len(seen.backwards_a_step) < 512:
        seen.backwards_a_step.append(seen.backwards)


def after_step(seen: OptimizerSeen) -> None:
    """Record that the gradients were used."""
    seen.fresh, seen.backwards = False, 0
    witness = seen.witness
    seen.cleared = witness is None or witness.grad is None or not bool(witness.grad.any())


def note_gradients(seen: OptimizerSeen) -> None:
    """Count looks at which a parameter had no gradient."""
    seen.looks += 1
    for p in seen.parameters:
        if p.requires_grad and p.grad is None:
            seen.none_always[id(p)] = seen.none_always.get(id(p), 0) + 1


def note_hand_step(program: Program, loss: Tensor, place: Place) -> None:
    """Record a backward call without an optimizer; each interval between two counts as a step."""
    hand = program.hand
    if hand is None:
        hand = program.hand = OptimizerSeen(SimpleNamespace(param_groups=[{"params": leaves_of(loss)}]), place)
    else:
        hand.steps += 1
        stale = [p for p in hand.parameters if p.grad is not None and bool(p.grad.any())]
        moved = [p for p in stale if hand.none_always.get(id(p)) != p._version]
        hand.stale += bool(moved)
        hand.backwards_a_step.append(1)
    for p in hand.parameters:
        hand.none_always[id(p)] = p._version
    hand.step_place = place


def refuse(optimizer: Any) -> None:
    """Clear an optimizer's gradients so that its step does nothing."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None


def note_call(seen: ModelSeen, args: Any, *, graph: bool, other_loader: bool) -> None:
    """Record a model call.

    Arguments:
        graph: whether gradients were enabled.
        other_loader: whether a loader is being read that is never trained on.
    """
    module = seen.module
    tensors = tensors_in(args)
    first = next((t for t in tensors if t.is_floating_point() and t.dim() > 1), None)
    if graph and not other_loader:
        seen.calls_training += 1
        seen.pending.clear()
        if not module.training and depends_on_mode(module):
            seen.eval_in_training += 1
            if not seen.eval_place[0]:
                seen.eval_place = place_here()
        if first is not None and seen.training.tensors < MOST_STATS and not first.requires_grad:
            seen.training.add(first, place_here())
        some = tensors[0] if tensors else None
        seen.ids = some if some is not None and not some.is_floating_point() else None
        if some is not None and len(seen.prints) < MOST_PRINTS:
            seen.prints.append(fingerprint(some))
            base = some._base
            if base is not None and base.numel() > some.numel():
                seen.part_of_base = some.numel() / base.numel()
        return
    seen.calls_evaluation += 1
    awake = module.training and depends_on_mode(module)
    if other_loader:
        _judged(seen, awake=awake)
    elif len(seen.pending) < 64:
        seen.pending.append(awake)
    if awake:
        seen.train_place = place_here()
    if first is not None and seen.evaluation.tensors < MOST_STATS:
        seen.evaluation.add(first, place_here())


def note_pairs(seen: LossSeen, given: Tensor, target: Tensor) -> None:
    """Record the label of each input row, and count rows seen before with another."""
    whole = not given.is_floating_point() or given.requires_grad or given.is_cuda or len(given) != len(target)
    if whole or target.dim() != 1 or len(given) < 2 or (len(seen.pairs) >= MOST_PAIRS and not seen.again):
        return
    rows = given.detach().reshape(len(given), -1)
    rows = rows[:, :: max(1, rows.shape[1] // 64)].double()
    forms = (rows @ torch.linspace(1.0, 2.0, rows.shape[1], dtype=torch.float64)).tolist()
    for form, label in zip(forms, target.tolist(), strict=True):
        before = seen.pairs.get(form)
        if before is not None:
            seen.again += 1
            seen.other_label += before != label
        if before is not None or len(seen.pairs) < MOST_PAIRS:
            seen.pairs[form] = label


def rows_alike(tensor: Tensor) -> bool:
    """Whether all rows are equal, up to rounding."""
    rows = tensor.detach().reshape(len(tensor), -1)
    if not rows.is_floating_point():
        return bool((rows == rows[:1]).all())
    apart = (rows - rows[:1]).abs().max()
    return bool(apart <= 1e-6 * rows.abs().max())


def are_the_ids(program: Program, target: Tensor) -> bool:
    """Whether the labels equal the ids a model was just given."""
    if target.is_floating_point() or target.numel() < 8:
        return False
    flat = target.reshape(-1)
    return any(
        seen.ids is not None and seen.ids.dim() == 2 and seen.ids.numel() == flat.numel()
        and bool((seen.ids.reshape(-1) == flat).all())
        for seen in program.models.values()
    )  # fmt: skip


def adds_up_over_rows(name: str, scores: Tensor) -> bool:
    """Whether cross entropy got a softmax over the batch."""
    if name != "cross_entropy" or scores.dim() != 2 or min(scores.shape) < 2:
        return False
    rows = scores.detach().float()
    over_batch = bool(((rows.sum(0) - 1).abs() < 1e-3).all()) and bool((rows >= 0).all())
    return over_batch and bool(((rows.sum(1) - 1).abs() > 1e-2).any())


def note_comparison(program: Program) -> None:
    """Outputs without gradients were compared, so the pending calls were an evaluation."""
    for seen in program.models.values():
        for awake in seen.pending:
            _judged(seen, awake=awake)
        seen.pending.clear()


def _judged(seen: ModelSeen, *, awake: bool) -> None:
    seen.judged += 1
    seen.judged_awake += awake


def depends_on_mode(module: nn.Module) -> bool:
    """Whether any layer behaves differently in training and evaluation mode."""
    for each in module.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm):
            if each.track_running_stats or each.training:
                return True
        elif isinstance(each, nn.modules.dropout._DropoutNd) and each.p > 0:
            return True
    return False
