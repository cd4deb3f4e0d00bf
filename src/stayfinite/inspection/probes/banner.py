"""Summarize the launch: device, versions, dtypes, parameters, memory, precision."""

from __future__ import annotations

from collections import Counter

import torch

from stayfinite.autopsy.steps.surroundings import device_in_words, versions
from stayfinite.inspection.bench.bench import Bench
from stayfinite.inspection.notes import Notes
from stayfinite.measure.batch import batch_in_words

STATES = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "RMSprop": 1, "Adagrad": 1, "Lion": 1}
"""Optimizer states per trainable value."""


def look(bench: Bench, notes: Notes) -> None:
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
