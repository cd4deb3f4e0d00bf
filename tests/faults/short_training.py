"""A short training that meets faults: a small model, a task it can learn, shuffled data, a guard with everything on.

One call is one process's life; what it came to is written to ``result-N.json`` beside the run directory.
"""

from __future__ import annotations

import hashlib
import json
import random
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

from stayfinite import Guard, Policy
from stayfinite.recipes.running.processes import leave_the_others

ITEMS, BATCH, EPOCHS = 384, 8, 2
STEPS = ITEMS // BATCH * EPOCHS
CHECKPOINT_STEPS = 5
WIDTH, PLACES = 8, 6

ModelKind = Literal["mlp", "transformer"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training, however many processes it takes and lives it needs."""

    folder: Path
    model: ModelKind
    seed: int
    ranks: int = 1
    keep: int = 3
    """Checkpoints that stay."""

    @property
    def run_dir(self) -> Path:
        """The guard's."""
        return self.folder / "run"

    @property
    def checkpoints(self) -> Path:
        """Where the guard puts its checkpoints."""
        return self.run_dir / "checkpoints"


class Sabotage:
    """Where a fault can be planted; this one plants none. ``launch`` counts the job's lives from 0."""

    def __init__(self, chance: random.Random, launch: int, rank: int) -> None:
        self.chance, self.launch, self.rank = chance, launch, rank

    def before_guard(self, job: Job, dataset: Dataset[Any]) -> Dataset[Any]:
        """Nothing is there yet; returns the data to train on."""
        return dataset

    def batch(self, step: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """A batch was loaded."""
        return x, y

    def backward(self, step: int, model: nn.Module) -> None:
        """Before the backward pass."""

    def around_step(self, step: int, optimizer: torch.optim.Optimizer) -> AbstractContextManager[None]:
        """The step itself happens within."""
        return nullcontext()

    def after_step(self, step: int, job: Job, model: nn.Module, guard: Guard) -> None:
        """Between two steps."""

    def at_end(self) -> None:
        """Training is over; the result can be written."""


class TinyTransformer(nn.Module):
    """One block of attention over a few places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, 16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(16), nn.LayerNorm(16)])
        self.feed = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.05), nn.Linear(32, 16))
        self.head = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[B, places, width] -> [B, 1]."""
        hidden = self.embed(x)
        normed = self.norms[0](hidden)
        hidden = hidden + self.attention(normed, normed, normed, need_weights=False)[0]
        hidden = hidden + self.feed(self.norms[1](hidden))
        return self.head(hidden.mean(dim=1))


def build_model(kind: ModelKind) -> nn.Module:
    """A model with buffers and dropout, or one with attention."""
    if kind == "transformer":
        return TinyTransformer()
    wide = WIDTH * PLACES
    return nn.Sequential(
        nn.Flatten(), nn.Linear(wide, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.05), nn.Linear(32, 1)
    )


def make_data(seed: int, items: int) -> TensorDataset:
    """Noisy sums of a few inputs."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(WIDTH, generator=torch.Generator().manual_seed(7))
    x = torch.randn(items, PLACES, WIDTH, generator=generator)
    noise = 0.1 * torch.randn(items, 1, generator=generator)
    return TensorDataset(x, (x.mean(dim=1) @ weights).unsqueeze(1) * 2 + noise)


def policy_of(job: Job) -> Policy:
    """Short budgets, so that the whole ladder fits into a short training."""
    return Policy(
        checkpoint_steps=CHECKPOINT_STEPS,
        keep_checkpoints=job.keep,
        prove_steps=4,
        max_vetoes_in_a_row=4,
        patience=3,
        level_change_after=4,
        calm_steps=20,
        cut_steps=4,
        max_loader_errors=3,
        desync_steps=10,
    )


def train(job: Job, sabotage: Sabotage) -> None:
    """Train to the end from the newest checkpoint, and write down what came of it."""
    rank, launch = sabotage.rank, sabotage.launch
    torch.set_num_threads(1)
    if job.ranks > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{job.folder}/meet-{launch}", rank=rank, world_size=job.ranks,
            timeout=timedelta(seconds=60),
        )  # fmt: skip
    torch.manual_seed(job.seed + 1000 * rank)
    dataset = sabotage.before_guard(job, make_data(job.seed, ITEMS * job.ranks))
    sampler = DistributedSampler(dataset, job.ranks, rank, seed=job.seed) if job.ranks > 1 else None
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, shuffle=sampler is None)
    torch.manual_seed(job.seed)
    core = build_model(job.model)
    torch.manual_seed(job.seed + 1000 * rank)
    before = validation_loss(core)
    model = nn.parallel.DistributedDataParallel(core) if job.ranks > 1 else core
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    guard = Guard(model, optimizer, scheduler, policy=policy_of(job), run_dir=job.run_dir, console=Console(quiet=True))
    with guard:
        first = step = guard.resume()
        for epoch in range(EPOCHS):
            if sampler is not None:
                sampler.set_epoch(epoch)
            for x, y in guard.batches(loader):
                step += 1
                x, y = sabotage.batch(step, x, y)
                sabotage.backward(step, core)
                guard.backward((model(x) - y).square().mean())
                with sabotage.around_step(step, optimizer):
                    guard.step()
                sabotage.after_step(step, job, core, guard)
    sabotage.at_end()
    result = {
        "first": first, "step": step, "before": before, "loss": validation_loss(core),
        "weights": fingerprint(core, optimizer),
    }  # fmt: skip
    (job.folder / f"result-{launch}-{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    if job.ranks > 1:
        dist.barrier()
        leave_the_others()


def validation_loss(model: nn.Module) -> float:
    """On data that was not trained on; leaves no trace in the model or the generators."""
    x, y = make_data(-1 & 0xFFFF, 256).tensors
    training = model.training
    model.eval()
    with torch.no_grad():
        loss = float((model(x) - y).square().mean())
    model.train(training)
    return loss


def fingerprint(model: nn.Module, optimizer: torch.optim.Optimizer) -> str:
    """A hash of every bit of weights, buffers and moments."""
    digest = hashlib.sha256()
    moments = [value for entry in optimizer.state.values() for value in entry.values()]
    for tensor in [*model.state_dict().values(), *moments]:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()
