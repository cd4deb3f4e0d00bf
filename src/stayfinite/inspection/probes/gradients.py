"""Gradients: missing, zero, non-finite, their trend over depth, and what one step changes."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import torch
from torch import Tensor, nn

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import names_in_short
from stayfinite.inspection.bench.passes import first_pass
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes.loss import checkpointing_warnings, explain, note_checkpointing, told_error

FEWEST = 5  # fewest layers for a trend
ORDERED = 0.85  # share of layer pairs that must have the same order
MOST = 200
STEADY_DECADES = 4.0


@dataclass(frozen=True, slots=True)
class Course:
    """A size over depth, in order of use."""

    slope: float
    """Change of log10 per layer."""
    decades: float
    """Change of log10 from first to last."""
    first: float
    last: float

    @property
    def steady(self) -> bool:
        """Whether the change is large."""
        return abs(self.decades) >= STEADY_DECADES


def course_over_depth(sizes: Sequence[float]) -> Course | None:
    """Fit the trend of these sizes; None if they are too few or not monotonic."""
    known = [size for size in sizes if math.isfinite(size) and size > 0]
    if len(known) < FEWEST:
        return None
    known = known[:: max(1, len(known) // MOST)]
    heights = [math.log10(size) for size in known]
    steps = [(heights[b] - heights[a]) / (b - a) for a, b in combinations(range(len(heights)), 2)]
    slope = median(steps)
    agree = sum((step > 0) == (slope > 0) for step in steps) / len(steps)
    if agree < ORDERED:
        return None
    return Course(slope=slope, decades=slope * (len(heights) - 1), first=known[0], last=known[-1])


LAYERS = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.MultiheadAttention, nn.Bilinear)
SMALLEST = 4  # fewest rows and values per row to compare


def alike(model: nn.Module) -> list[str]:
    """Trainable weights whose rows are all equal and nonzero: they will stay equal.

    Adapters, gates and last layers start at zero on purpose.
    """
    found = []
    for path, module in model.named_modules():
        if not isinstance(module, LAYERS):
            continue
        for name, p in module.named_parameters(recurse=False):
            if p.dim() < 2 or not p.requires_grad or not p.is_floating_point() or p.is_meta:
                continue
            rows = p.detach().reshape(p.shape[0], -1)
            if min(rows.shape) < SMALLEST or not bool(rows[0].any()):
                continue
            if bool((rows == rows[:1]).all()):
                found.append(f"{path}.{name}" if path else name)
    return found


MOST_LOST = 0.9
WILD = 10.0  # ratio of update to weight that destroys what was learned


def look(bench: Bench, notes: Notes) -> None:
    """Record the gradients of the first backward pass and the effect of one optimizer step."""
    first = bench.first
    if first.backward_error is not None:
        told_error(notes, first.backward_error)
        notes.saw("step.error", f"{type(first.backward_error).__name__}: {first.backward_error}"[:400], "backward")
    notes.check("Gradients", "backward pass", "inplace-modification", "step-fails", "ddp-unused-parameters")
    if not first.worked:
        notes.check("Gradients", "gradient coverage", skipped="no backward pass ran")
        _look_at_weights(bench, notes)
        return
    alive = {name: g.to_dense() if g.is_sparse else g for name, g in first.gradients.items() if g is not None}
    norms = {name: _norm(gradient) for name, gradient in alive.items()}
    bad = [name for name, norm in norms.items() if not math.isfinite(norm)]
    if bad and not notes.observed["weights.nonfinite"].value:
        explain(bench, notes)
    total = math.sqrt(sum(norm**2 for norm in norms.values() if math.isfinite(norm)))
    notes.check(
        "Gradients", "finite gradients", "nan-loss", "loss-formula-singularity", "where-nan-branch", "fp16-overflow",
        seen=f"norm {total:.3g} over {len(norms)} tensors" if not bad else names_in_short(bad),
    )  # fmt: skip
    if not bad:
        _look_at_presence(bench, notes, norms)
        _look_at_depth(bench, notes, norms, total)
        _look_at_update(bench, notes)
    _look_at_weights(bench, notes)


def _look_at_presence(bench: Bench, notes: Notes, norms: dict[str, float]) -> None:
    filled = {name for name, p in bench.trainable.items() if p.numel()}  # an empty parameter has no gradient to miss
    none = [name for name in bench.trainable if name not in norms and name in filled]
    zero = [name for name, norm in norms.items() if norm == 0 and name in filled]
    spare = left_over(bench.model, none, list(norms))
    if norms and len(zero) == len(norms):
        notes.saw("gradient.zero_share", 1.0, "the first step")
        zero = []
    stuck = without_gradient_at_all(bench, zero) if zero else []
    moved = [name for name in stuck if name in bench.update.moved - bench.update.broken]
    notes.saw("update.without_gradient", moved, names_in_short(moved))
    rest = [name for name in none if name not in spare]
    past = routed_past(bench, rest) if rest and norms else []
    unused = [name for name in (*rest, *stuck) if name not in past and name not in moved]
    if bench.first.reaches_parameters:
        cuts = _cuts(bench, unused)
        where = cuts[0].rpartition(" ")[2] if cuts else "the first step"
        notes.saw("gradient.none_parameters", [name for name in unused if name not in stuck], where)
        notes.saw("gradient.zero_parameters", [name for name in unused if name in stuck], where)
        notes.saw("gradient.cut_at", cuts, where)
    parts = [f"{len(norms) - len(zero)} of {len(bench.trainable)} tensors"]
    parts += [f"{len(spare)} unused ones from a library: {names_in_short(spare)}"] * bool(spare)
    parts += [f"{len(past)} in parts that no row was routed to: {names_in_short(past)}"] * bool(past)
    parts += [f"{len(zero) - len(stuck)} are zero now but will not stay so"] * (len(zero) > len(stuck))
    notes.check(
        "Gradients", "gradient coverage", "unused-parameters", "zero-gradient", "params-frozen",
        "gradient-checkpointing-no-input-grad", seen="; ".join(parts),
    )  # fmt: skip
    if none:
        note_checkpointing(bench, notes)
    notes.check(
        "Gradients", "updates without a gradient", "decay-only-updates", seen=f"{len(bench.update.moved)} tensors move"
    )


def _cuts(bench: Bench, names: list[str]) -> list[str]:
    """Lines that detach these parameters from the loss, without duplicates."""
    if checkpointing_warnings(bench):
        return []  # the forward pass runs without gradients, which is reported elsewhere
    cut_off = bench.first.seen.cut_off
    return list(dict.fromkeys(cut_off[name] for name in names if name in cut_off))


def _look_at_depth(bench: Bench, notes: Notes, norms: dict[str, float], total: float) -> None:
    seen = bench.first.seen
    layers = [name for name in seen.order if name in seen.spreads]
    course = course_over_depth([norms.get(name, 0.0) for name in layers])
    if course is not None:
        notes.saw("gradient.depth_slope", -course.slope, f"{layers[0]} ... {layers[-1]}")
        notes.saw("gradient.depth_decades", -course.decades, f"{layers[0]} ... {layers[-1]}")
    if total > 0 and abs(float(bench.first.loss)) > 0.1:
        notes.saw("gradient.norm", total, "the first step")
    shown = f"{len(layers)} layers" + (f", from {course.first:.2g} to {course.last:.2g}" if course else "")
    notes.check("Gradients", "gradient flow to first layers", "vanishing-gradient", "exploding-gradient", seen=shown)
    signal = course_over_depth([seen.spreads[name] for name in layers])
    if signal is not None and signal.steady:
        notes.saw("activation.slope", signal.slope, f"{layers[0]} ... {layers[-1]}")
    if seen.dead:
        share, where = max(seen.dead)
        notes.saw("activations.dead_share", share, f"after {where}")
    notes.check("Gradients", "signal size and dead units", "bad-init", "dead-units")


def _look_at_update(bench: Bench, notes: Notes) -> None:
    update = bench.update
    if update.error:
        notes.check("Gradients", "optimizer step", skipped=update.error)
        return
    notes.saw("update.not_finite", sorted(update.broken), names_in_short(sorted(update.broken)))
    ratios = sorted(update.ratios.values())
    if ratios and not _warming(bench):
        if update.lost is not None and update.lost > MOST_LOST:
            notes.saw("update.lost_share", update.lost, "one step of the optimizer")
        elif max(ratios) < 1e-6 or ratios[len(ratios) // 2] > WILD:
            notes.saw("update_ratio.largest", max(ratios), "one step of the optimizer")
    shown = f"an update is {ratios[len(ratios) // 2]:.2g} of its weight" if ratios else ""
    notes.check(
        "Gradients", "update size", "lr-too-low", "lr-too-high", "bf16-lost-updates",
        "adam-eps-underflow", seen=shown,
    )  # fmt: skip


def _look_at_weights(bench: Bench, notes: Notes) -> None:
    same = alike(bench.model)
    notes.saw("weights.identical_rows", same)


def _warming(bench: Bench) -> bool:
    groups = bench.optimizer.param_groups
    return any(float(group.get("initial_lr", group["lr"])) > 2 * float(group["lr"]) for group in groups)


def _norm(gradient: Tensor) -> float:
    size = gradient.detach().abs() if gradient.is_complex() else gradient.detach().float()
    return float(torch.linalg.vector_norm(size, dtype=torch.float64))


LIBRARIES = frozenset({
    "transformers", "diffusers", "timm", "torchvision", "torchaudio", "peft", "open_clip", "sentence_transformers",
    "clip", "monai", "fairseq", "speechbrain", "segmentation_models_pytorch", "mmdet", "mmcv", "mmengine", "detectron2",
})  # fmt: skip
MOST_WITHOUT = 0.5  # above this share of all trainable tensors it is a fault
_EXPERT = lazy_regex(r"expert", re.IGNORECASE)
_NUMBER = lazy_regex(r"(?<=\.)\d+(?=\.)")


def left_over(model: nn.Module, without: Sequence[str], alive: Sequence[str]) -> list[str]:
    """Legitimate parameters without a gradient: unused library parts, idle experts, ends of the last block."""
    if not alive or len(without) > MOST_WITHOUT * (len(without) + len(alive)):
        return []
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return []  # under DDP even a library's unused parameters stop the run
    working = {_EXPERT.split(name)[0] for name in alive if _EXPERT.search(name)}
    return [
        name
        for name in without
        if _of_library(model, name)
        or (_EXPERT.search(name) and _EXPERT.split(name)[0] in working)
        or _ends_in_last_block(model, name, alive)
    ]


def _of_library(model: nn.Module, name: str) -> bool:
    """Whether the innermost enclosing module that is not torch's belongs to a library."""
    path = name.rpartition(".")[0]
    while True:
        kind = type(model.get_submodule(path)).__module__.partition(".")[0]
        if kind != "torch":
            return kind in LIBRARIES
        if not path:
            return False
        path = path.rpartition(".")[0]


def _ends_in_last_block(model: nn.Module, name: str, alive: Sequence[str]) -> bool:
    """Whether it is in the last of several similar blocks, which is otherwise used, and used in earlier ones."""
    for blocks, number, rest in _in_blocks(name):
        others = model.get_submodule(blocks)
        last = isinstance(others, nn.ModuleList | nn.Sequential) and number == len(others) - 1 > 0
        at_work = any(other.startswith(f"{blocks}.{number}.") for other in alive)
        if last and at_work and f"{blocks}.{number - 1}.{rest}" in alive:
            return True
    return False


def _in_blocks(name: str) -> Iterator[tuple[str, int, str]]:
    """Every reading of a name as part of numbered blocks: `blocks`, 1, `out.weight`."""
    for found in _NUMBER.finditer(name):
        yield name[: found.start() - 1], int(found.group()), name[found.end() + 1 :]


NUDGE = 0.02  # standard deviation of the noise added to trainable values
SHAKE = 1.0  # the same, to change the routing of rows


def without_gradient_at_all(bench: Bench, zero: Sequence[str]) -> list[str]:
    """Parameters whose gradient stays exactly zero after all weights are perturbed.

    LoRA's second matrix, gates and last layers start at zero, so what precedes them gets a gradient only from the
    second step on. With slightly perturbed weights it gets one at once.
    """
    with bench.kept.undone():
        nudge(bench)
        again = first_pass(bench.model, bench.step, bench.scaler)
    if not again.worked:
        return []
    matrices = [name for name in zero if bench.trainable[name].dim() > 1]
    # A bias before a norm, and the key bias of attention, have a zero gradient by construction.
    return [name for name in matrices if (g := again.gradients[name]) is not None and not bool((g != 0).any())]


def routed_past(bench: Bench, none: Sequence[str]) -> list[str]:
    """Parameters next to others that get a gradient once weights are perturbed: experts.

    Then the rows decide which list members are used, and more rows will reach the rest. Members that a loop omits never
    get a gradient.
    """
    if isinstance(bench.model, nn.parallel.DistributedDataParallel):
        return []  # under DDP an unused part stops the run
    beside = {name: held for name in none if (held := _list_around(bench.model, name))}
    if not beside:
        return []
    with bench.kept.undone():
        nudge(bench, SHAKE)
        again = first_pass(bench.model, bench.step, bench.scaler)
    reached = {beside[name] for name in beside if again.gradients.get(name) is not None}
    return [name for name in none if beside.get(name) in reached]


def _list_around(model: nn.Module, name: str) -> str:
    """The innermost ModuleList or ModuleDict that holds a parameter."""
    path = name.rpartition(".")[0]
    while path:
        path = path.rpartition(".")[0]
        if isinstance(model.get_submodule(path), nn.ModuleList | nn.ModuleDict):
            return path or "."
    return ""


def nudge(bench: Bench, size: float = NUDGE) -> None:
    """Perturb every trainable value slightly."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in bench.trainable.values():
            noise = torch.randn(p.shape, generator=generator) * size
            p.add_(noise.to(device=p.device, dtype=p.dtype))
