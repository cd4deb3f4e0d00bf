"""The parts as they are: device, versions, dtypes and memory of the launch; devices, modes and fp8 layers."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.autopsy.steps.surroundings import device_in_words, versions
from stayfinite.autopsy.worlds.eight_bits import torchao_layers
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.bench.inputs import names_in_short, tensors_of, without_values
from stayfinite.inspection.notes import Notes
from stayfinite.measure.batch import batch_in_words
from stayfinite.rules.fp8_modules import MULTIPLE, is_head, is_router
from stayfinite.state.parts import unwrapped

STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "RMSprop": 1, "Adagrad": 1, "Lion": 1}
"""Optimizer states per trainable value."""


def look_at_launch(bench: Bench, notes: Notes) -> None:
    """Write the banner."""
    parameters = list(bench.model.parameters())
    devices = Counter(str(p.device) for p in parameters)
    notes.heading("device", ", ".join(device_in_words(torch.device(device)) for device in devices) or "none")
    notes.heading("versions", ", ".join(f"{name} {version}" for name, version in versions().items()))
    trainable = sum(p.numel() for p in parameters if p.requires_grad)
    frozen = sum(p.numel() for p in parameters if not p.requires_grad)
    share = f" ({trainable / (trainable + frozen):.2%} of all)" if frozen and trainable else ""
    notes.heading(
        "model", f"{type(bench.model).__name__}, {trainable:,} trainable{share}, {frozen:,} frozen parameters"
    )
    notes.heading("dtypes", _dtypes(bench))
    notes.heading("batch", batch_in_words(bench.batch))
    notes.heading("memory", _memory(bench))
    scaled = " with a gradient scaler" if bench.working_scaler is not None else ""
    notes.heading("precision", bench.precision or f"as in the forward pass{scaled}")
    notes.saw("parameters.trainable", trainable, type(bench.model).__name__)
    notes.check("Model", "trainable parameters", "params-frozen", seen=f"{trainable:,} parameters")
    nonfinite = [name for name, p in bench.model.named_parameters() if _holds_bad(p)]
    nonfinite += [
        name for name, buffer in bench.model.named_buffers() if _holds_bad(buffer) and bool(buffer.isnan().any())
    ]
    notes.saw("weights.nonfinite", nonfinite, type(bench.model).__name__)
    notes.check("Model", "finite weights", "nan-weights", "poisoned-checkpoint", seen=f"{len(parameters)} tensors")


def _holds_bad(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and not tensor.is_meta and not bool(torch.isfinite(tensor.detach()).all())


def _dtypes(bench: Bench) -> str:
    sizes: Counter[str] = Counter()
    for p in bench.model.parameters():
        sizes[f"{str(p.dtype).removeprefix('torch.')} {'trainable' if p.requires_grad else 'frozen'}"] += p.numel()
    return ", ".join(f"{kind} {size:,}" for kind, size in sizes.most_common()) or "none"


def _memory(bench: Bench) -> str:
    weights = sum(p.numel() * p.element_size() for p in (*bench.model.parameters(), *bench.model.buffers()))
    trainable = [p for p in bench.model.parameters() if p.requires_grad]
    gradients = sum(p.numel() * p.element_size() for p in trainable)
    kind = type(bench.optimizer).__name__
    momentum = any(group.get("momentum") for group in bench.optimizer.param_groups)
    kept = STATES.get(kind, int(bool(momentum)) if kind == "SGD" else 2)
    about = "" if kind in STATES or kind == "SGD" else "about "
    words = f"weights {_gib(weights)}, gradients {_gib(gradients)}, {kind} {about}{_gib(kept * gradients)}"
    device = next((p.device for p in trainable if p.is_cuda), None)
    if device is None:
        return f"{words}, plus activations"
    free, total = torch.cuda.mem_get_info(device)
    return f"{words}, plus activations; {_gib(free)} of {_gib(total)} free"


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**29 else f"{size / 2**20:.1f} MiB"


TITLE = "model, batch and optimizer devices"


def look_at_devices(bench: Bench, notes: Notes) -> None:
    """Report tensors on a different device than those they meet.

    A model on several devices, and a batch that `forward` moves, are fine if the pass works.
    """
    home = next((p.device for p in (*bench.trainable.values(), *bench.model.parameters())), torch.device("cpu"))
    elsewhere = [*_strays(bench), *without_values(bench.model, bench.batch)]
    if re.search(r"device|cuda", str(bench.first.forward_error), re.IGNORECASE):
        met = (*tensors_of(bench.model), *batch_items(bench.batch).items())
        elsewhere += [name for name, tensor in met if tensor.device != home and name not in elsewhere]
    notes.saw("device.mixed", elsewhere, str(home))
    batch = sorted({str(item.device) for item in batch_items(bench.batch).values()})
    seen = f"model on {home}, batch on {', '.join(batch) or 'none'}"
    notes.check("Devices", TITLE, "device-mismatch", seen=seen)


def _strays(bench: Bench) -> Iterator[str]:
    """Optimizer state on another device than its parameter; step counters may be on the host."""
    names = {id(p): name for name, p in bench.model.named_parameters()}
    for parameter, state in bench.optimizer.state.items():
        if not isinstance(parameter, Tensor) or not isinstance(state, dict):
            continue
        name = names.get(id(parameter), "a parameter that is not the model's")
        for key, value in state.items():
            if isinstance(value, Tensor) and value.dim() and value.device != parameter.device:
                yield f"optimizer state {key} of {name}"


def look_at_modes(bench: Bench, notes: Notes) -> None:
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


def look_at_eight_bits(bench: Bench, notes: Notes) -> None:
    """Record the layers of torchao and Transformer Engine, if any."""
    model = unwrapped(bench.model)
    layers = _fp8_layers(model)
    if not layers:
        return
    where = f"{len(layers)} layers in fp8"
    shapes = {path: (layer.in_features, layer.out_features) for path, layer in layers.items()}
    unaligned = [
        f"{path} {list(sides)}"
        for path, sides in shapes.items()
        if any(side % MULTIPLE for side in sides) and not _emulated(layers[path])
    ]
    notes.saw("fp8.unaligned", unaligned, where)
    notes.saw("fp8.heads", [path for path in layers if is_head(path)], where)
    notes.saw("fp8.routers", [path for path in layers if is_router(path)], where)
    title = "fp8 layer sizes and roles"
    notes.check("Precision", title, "fp8-unaligned-dims", "fp8-sensitive-module", seen=where)


def _fp8_layers(model: nn.Module) -> dict[str, Any]:
    swapped = set(torchao_layers(model))
    return {
        path: module
        for path, module in model.named_modules()
        if path in swapped
        or (type(module).__module__.startswith("transformer_engine.") and hasattr(module, "in_features"))
    }


def _emulated(layer: Any) -> bool:
    """Whether products are computed in fp32, which supports every shape."""
    return bool(getattr(getattr(layer, "config", None), "emulate", False))
