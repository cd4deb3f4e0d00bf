"""What each page of the docs takes for granted: files in the current directory, and names that its Python code uses."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOG = """{'loss': 1.7421, 'grad_norm': 3.118, 'learning_rate': 6.6e-06, 'epoch': 0.02}
{'loss': 1.6933, 'grad_norm': 2.874, 'learning_rate': 1.33e-05, 'epoch': 0.05}
{'loss': 1.2015, 'grad_norm': nan, 'learning_rate': 2e-05, 'epoch': 0.07}
{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1.99e-05, 'epoch': 0.1}
{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1.99e-05, 'epoch': 0.12}
{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1.98e-05, 'epoch': 0.15}
"""
CONFIG = """model_name_or_path: Qwen2-1.5B
learning_rate: 2.0e-5
per_device_train_batch_size: 4
gradient_accumulation_steps: 4
lr_scheduler_type: cosine
warmup_ratio: 0.03
num_train_epochs: 3
logging_steps: 10
fp16: true
max_grad_norm: 1.0
"""
SCRIPT = """from transformers import TrainingArguments

args = TrainingArguments("out", learning_rate={rate}, fp16={half}, per_device_train_batch_size=8, warmup_ratio=0.1)
"""
BUILD = """import torch
from torch import nn


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    batch = torch.randn(8, 4)
    return {
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01),
        "batch": batch,
        "forward": lambda x: (model(x) - x.sum(1, keepdim=True)).square().mean(),
    }
"""
ROWS = [
    ("the boat is on the river", "das Boot ist auf dem Fluss"),
    ("two jars of oil", "zwei Kruege Oel"),
    ("the scribe counts the sheep", "der Schreiber zaehlt die Schafe"),
    ("bread for the workers", "Brot fuer die Arbeiter"),
    ("a letter to the king", "ein Brief an den Koenig"),
]


@dataclass
class Stage:
    """What a page's blocks meet."""

    names: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    """Words of the page, and what stands for them here."""
    before: dict[str, Callable[[dict[str, Any]], None]] = field(default_factory=dict)
    """What happens to the names before a block that has these words in it."""


def prepare(page: str) -> Stage:
    """Write the files of a page into the current directory."""
    write = STAGES.get(page)
    return write() if write else Stage()


def _write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")


def _a_run_that_died() -> Stage:
    _write({"train.log": LOG, "config.yaml": CONFIG})
    return Stage()


def _nan() -> Stage:
    import torch
    from safetensors.torch import save_file

    better = CONFIG.replace("fp16: true", "bf16: true")
    _write({"train.log": LOG, "config.yaml": CONFIG, "good.yaml": better, "fixed.yaml": better, "my_train.py": BUILD})
    _write({"pairs.csv": _table(ROWS)})
    for step in (1000, 1500):
        Path(f"outputs/checkpoint-{step}").mkdir(parents=True)
        weight = torch.full((8, 8), 0.5 if step == 1000 else float("nan"))
        save_file({"model.layers.0.mlp.down_proj.weight": weight}, f"outputs/checkpoint-{step}/model.safetensors")
    return Stage()


def _check() -> Stage:
    import torch

    from inspection.data.tiny_tokenizers import letters

    script, cells = SCRIPT.format(rate=1e-4, half=False), SCRIPT.format(rate=3e-4, half=True)
    cell = {"cell_type": "code", "source": cells, "metadata": {}, "outputs": [], "execution_count": None}
    shape = {
        "model_type": "t5",
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 128,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 100,
    }
    _write({
        "train.yaml": CONFIG, "train.py": script, "my_train.py": BUILD, "my-model/config.json": json.dumps(shape),
        "notebook.ipynb": json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}),
        "ds_config.json": json.dumps({"fp16": {"enabled": True}, "zero_optimization": {"stage": 2}}),
        "pairs.csv": _table(ROWS), "val.csv": _table([("silver for the temple", "Silber fuer den Tempel")]),
    })  # fmt: skip
    Path("path/to").mkdir(parents=True)
    letters(Path("path/to/model"), "abcdefghijklmnopqrstuvwxyzBFAKOS ")
    torch.manual_seed(0)
    model = _Doubling()
    return Stage({
        "model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01),
        "batch": {"x": torch.randn(8, 1)},
    })  # fmt: skip


def _diagnose() -> Stage:
    _write(
        {
            "train.log": LOG,
            "config.yaml": CONFIG,
            "train.yaml": CONFIG,
            "bin/some-command": f"#!/bin/sh\ncat <<'E'\n{LOG}E\n",
        }
    )
    Path("bin/some-command").chmod(0o755)
    for name in ("first", "second"):
        _write({f"runs/{name}/train.log": LOG, f"runs/{name}/config.yaml": CONFIG})
    return Stage()


def _runs() -> Stage:
    """Two guarded runs and a foreign log."""
    from planted_runs import plant_run

    for name in ("first", "second"):
        plant_run(Path("runs") / name)
    history = [{"step": step, "loss": 2.0 - step / 100, "epoch": 1.0} for step in range(10, 100, 10)]
    _write({"train.log": LOG, "outputs/checkpoint-500/trainer_state.json": json.dumps({"log_history": history})})
    _write({"a.log": LOG, "a.yaml": "fp16: true\n", "b.log": LOG, "b.yaml": "fp16: false\n"})
    return Stage()


def _many() -> Stage:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from stayfinite import Guard, Policy

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    _write({"train.py": "print('trained')\n"})
    model = nn.Linear(4, 1)
    loader = torch.utils.data.DataLoader(torch.randn(48, 4), batch_size=4)
    return Stage(
        {
            "torch": torch, "dist": dist, "DistributedDataParallel": DistributedDataParallel, "Guard": Guard,
            "Policy": Policy,
            "build_model": lambda: model, "device": "cpu", "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
            "scheduler": None, "epochs": 1, "loader": loader,
            "compute_loss": lambda model, batch: model(batch).square().mean(),
            "sampler": torch.utils.data.DistributedSampler(range(48), 1, 0),
        },
        # A path at the root of this machine is nobody's business, and one core runs one process well.
        {"/shared/": "shared/", "--nproc-per-node=8": "--nproc-per-node=1"},
        # The second loop of the page stands in the place of the first, not after it.
        {"import signal": lambda names: names.update(guard=Guard(names["model"], names["optimizer"]))},
    )  # fmt: skip


def _architecture() -> Stage:
    import torch

    from stayfinite import Guard

    torch.manual_seed(0)
    model = _Doubling()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return Stage({
        "Guard": Guard, "model": model, "optimizer": optimizer, "scaler": None,
        "scheduler": torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0),
        "loader": [{"x": torch.randn(4, 1)} for _ in range(5)],
    })  # fmt: skip


def _precision() -> Stage:
    import torch

    _write({"my_train.py": BUILD})
    torch.manual_seed(0)
    model = _Doubling()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return Stage({"model": model, "optimizer": optimizer, "batch": {"x": torch.randn(4, 1)}})


def _Doubling() -> Any:  # noqa: N802
    """A model that learns to double a number, and returns its loss as those of transformers do."""
    from types import SimpleNamespace

    from torch import nn

    class Doubling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1, 1)

        def forward(self, x: Any) -> Any:
            return SimpleNamespace(loss=(self.layer(x) - 2 * x).square().mean())

    return Doubling()


def _table(rows: list[tuple[str, str]]) -> str:
    return "source,target\n" + "".join(f"{source},{target}\n" for source, target in rows)


STAGES: dict[str, Callable[[], Stage]] = {
    "ARCHITECTURE.md": _architecture,
    "docs/check.md": _check,
    "docs/diagnose.md": _diagnose,
    "docs/many_machines.md": _many,
    "docs/my_loss_is_nan.md": _nan,
    "docs/precision.md": _precision,
    "docs/quick_start.md": _a_run_that_died,
    "docs/report.md": _runs,
    "docs/watch.md": _runs,
}
