"""Checkpoints as real libraries write them, for planting faults into."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

NAN, INF = float("nan"), float("inf")


def weights(seed: int = 0) -> dict[str, Tensor]:
    """A small model's state, with everything that looks odd and is not: ones, zeros, a mask of infinities, counts."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator) * 0.05  # noqa: E731
    return {
        "embed.weight": draw(64, 32),
        "layers.0.attention.weight": draw(32, 32),
        "layers.0.attention.bias": torch.zeros(32),
        "layers.0.norm.weight": torch.ones(32),
        "layers.0.bn.running_var": torch.full((32,), 2e6),
        "layers.0.bn.num_batches_tracked": torch.tensor(100_000),
        "causal_mask": torch.full((8, 8), -INF).triu(1),
        "position_ids": torch.arange(64),
        "head.weight": draw(64, 32).to(torch.bfloat16),
    }


def save_trainer_checkpoint(root: Path, step: int, state: dict[str, Tensor], *, optimizer: bool = True) -> Path:
    """A ``checkpoint-N`` as transformers' Trainer leaves it."""
    path = root / f"checkpoint-{step}"
    path.mkdir(parents=True)
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, path / "model.safetensors")
    (path / "config.json").write_text("{}")
    (path / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    if optimizer:
        torch.save(optimizer_state(), path / "optimizer.pt")
        torch.save({"last_epoch": step, "best": INF, "_last_lr": [1e-4]}, path / "scheduler.pt")
    return path


def optimizer_state(steps: int = 100_000) -> dict[str, object]:
    """What an AdamW that has trained for a while would save: a step beyond fp16's range, a bias without gradient."""
    model = nn.Linear(32, 32)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 32)).square().mean().backward()
    optimizer.step()
    state = optimizer.state_dict()
    for each in state["state"].values():
        each["step"].fill_(steps)
    state["state"][1]["exp_avg"].zero_()
    return state


def save_sharded(path: Path, state: dict[str, Tensor], shards: int = 3) -> Path:
    """A model in several safetensors files with their index."""
    path.mkdir(parents=True)
    names = list(state)
    files = {name: f"model-{i % shards + 1:05d}-of-{shards:05d}.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: state[name].contiguous() for name in names if files[name] == file}, path / file)
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path
