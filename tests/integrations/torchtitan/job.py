"""A small Llama in torchtitan's own Trainer under torchrun: ``main(kind, act, folder)``."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from integrations.torchtitan.on_the_cpu import put_torchtitan_on_the_cpu

put_torchtitan_on_the_cpu()

from torchtitan.components.checkpointer import CheckpointManager  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import DebugConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.models import llama3  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.common.rope import ComplexRoPE  # noqa: E402
from torchtitan.protocols.model_spec import ModelSpec  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

from stayfinite import Policy  # noqa: E402
from stayfinite.integrations.attaching import SEAMS, attached  # noqa: E402
from stayfinite.integrations.torchtitan import torchtitan_guard  # noqa: E402

STEPS, BAD, SPIKE, BAD_GRADIENT = 36, 20, 26, 30
SAVED, KILLED = 15, 18
DIM, WORDS, LENGTH = 32, 64, 16
MESHES = {"fsdp": (1, -1, 1), "tp": (1, 1, 2), "hsdp": (2, 2, 1)}


class Counting(BaseDataLoader):
    """Rows that count up from somewhere: easy to learn, and the same wherever a run begins again."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        pass

    def __init__(self, config: Config, *, dp_rank: int, local_batch_size: int, **_: Any) -> None:
        self._rank, self._rows, self.number = dp_rank, local_batch_size, 0

    def __iter__(self) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        while True:
            self.number += 1
            chance = torch.Generator().manual_seed(1000 * self.number + self._rank)
            rows = (torch.randint(0, WORDS, (self._rows, 1), generator=chance) + torch.arange(LENGTH + 1)) % WORDS
            places = torch.arange(LENGTH, dtype=torch.int32).repeat(self._rows, 1)
            yield {"input": rows[:, :-1], "positions": places}, rows[:, 1:]

    def state_dict(self) -> dict[str, Any]:
        return {"number": self.number}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.number = state["number"]


class Letters(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config: Config, **_: Any) -> None:
        super().__init__()

    def encode(self, text: str) -> list[int]:
        return [ord(each) % WORDS for each in text]

    def decode(self, tokens: list[int]) -> str:
        return " ".join(map(str, tokens))

    def get_vocab_size(self) -> int:
        return WORDS


def spec() -> ModelSpec:
    """The debug model of torchtitan's own registry, smaller, with attention that a CPU has."""
    found = llama3.model_registry("debugmodel")
    rope = ComplexRoPE.Config(dim=DIM // 2, max_seq_len=LENGTH, theta=10000)
    layers = llama3._build_llama3_layers(
        n_layers=2, dim=DIM, n_heads=2, hidden_dim=64, rope=rope, attn_backend="flex", fuse_qkv=True
    )
    for layer in layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    found.model = llama3.Llama3Model.Config(
        dim=DIM,
        vocab_size=WORDS,
        tok_embeddings=llama3.Embedding.Config(
            num_embeddings=WORDS, embedding_dim=DIM, param_init=llama3._EMBEDDING_INIT
        ),
        norm=llama3.RMSNorm.Config(normalized_shape=DIM, param_init=llama3._NORM_INIT),
        lm_head=llama3.Linear.Config(in_features=DIM, out_features=WORDS, param_init=llama3._output_linear_init(DIM)),
        layers=layers,
    )
    return found


def config_of(kind: str, folder: Path, *, saves: bool) -> Trainer.Config:
    replicate, shard, tensor = MESHES[kind]
    return Trainer.Config(
        model_spec=spec(),
        dump_folder=str(folder),
        loss=CrossEntropyLoss.Config(global_vocab_size=WORDS),
        optimizer=default_adamw(lr=1e-2),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=4),
        training=TrainingConfig(
            local_batch_size=4,
            seq_len=LENGTH,
            steps=STEPS,
            max_norm=5.0,
            mixed_precision_param="float32",
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=replicate,
            data_parallel_shard_degree=shard,
            tensor_parallel_degree=tensor,
            spmd_backend="partial_dtensor",  # spmd_types needs a newer torch than 2.13
        ),
        dataloader=Counting.Config(),
        tokenizer=Letters.Config(),
        metrics=MetricsProcessor.Config(log_freq=1),
        debug=DebugConfig(seed=0),
        checkpoint=CheckpointManager.Config(enable=saves, interval=SAVED),
    )


class Faults:
    """A bad loss, a spike and a bad gradient on the last rank, put in where the Trainer runs forward and backward."""

    def __init__(self, trainer: Trainer, steps: tuple[int, ...]) -> None:
        self._trainer, self._steps, self._loss = trainer, steps, trainer.loss_fn
        trainer.loss_fn = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        loss, rest = self._loss(*args, **kwargs)
        step = self._trainer.step
        if step in self._steps and dist.get_rank() == dist.get_world_size() - 1:
            if step == BAD_GRADIENT:
                loss.register_hook(lambda grad: grad * float("nan"))
            else:
                loss = loss * (1e4 if step == SPIKE else float("nan"))
        return loss, rest


def tensors(trainer: Trainer) -> list[Tensor]:
    """This rank's weights, moments and rates, and where the schedule stands."""
    found: list[Any] = [p for part in trainer.model_parts for p in part.parameters()]
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            found += [value for p in group["params"] for value in optimizer.state.get(p, {}).values()]
            found.append(torch.tensor(group["lr"]))
    found.append(torch.tensor(trainer.lr_schedulers.state_dict()["last_epoch"]))
    return [getattr(each, "_local_tensor", each).detach().clone() for each in found]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    # The moments are made by the first step that is taken.
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def main(kind: str, act: str, folder: str) -> None:
    place = Path(folder)
    torch.set_num_threads(1)
    restarts = act in ("kill", "resume", "whole")
    config = config_of(kind, place, saves=restarts)
    if act == "override":
        kwargs = {"run_dir": str(place / "run"), "spikes": "refuse"}
        config.override.imports = [("stayfinite.integrations.torchtitan.stayfinite", kwargs)]
    lines: list[str] = []
    with attached(Policy.refuse_spikes(), lines.append, SEAMS if act == "attached" else ()):
        play(act, config, place, lines)


def play(act: str, config: Trainer.Config, place: Path, lines: list[str]) -> None:
    trainer = config.build()
    Faults(trainer, () if act in ("plain", "ours") else (BAD, SPIKE, BAD_GRADIENT))
    policy = Policy.refuse_spikes() if act == "refuse" else Policy()
    guard = None
    if act not in ("plain", "bare", "override", "attached"):
        guard = torchtitan_guard(trainer, policy=policy, run_dir=place / "run")
    told, unmoved = [], []
    log, step = trainer.metrics_processor.log, trainer.train_step

    def logged(number: int, loss: float, worst: float, norm: float, **_: Any) -> None:
        told.append((number, loss, norm))
        log(number, loss, worst, norm, **_)

    def stepped(batches: Any) -> None:
        before = tensors(trainer)
        step(batches)
        if guard is not None and guard.refused:
            unmoved.append((trainer.step, same(before, tensors(trainer))))
        if act == "kill" and trainer.step == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.metrics_processor.log, trainer.train_step = logged, stepped
    seen: dict[str, Any] = {"error": None, "lines": lines}
    try:
        trainer.train()
    except RuntimeError as error:
        seen["error"] = str(error)
    if guard is not None:
        guard.close()
        decisions = guard.decisions
        seen |= {
            "unmoved": unmoved,
            "norms": [each.signals.grad_norm for each in decisions],
            "losses": [each.signals.loss for each in decisions],
            "bounded": [(each.step, each.limit) for each in decisions if each.limit],
        }
    seen |= {"told": told, "finite": all(bool(torch.isfinite(each).all()) for each in tensors(trainer))}
    rank = dist.get_rank()
    torch.save(tensors(trainer), place / f"{act}-{rank}.pt")
    (place / f"{act}-{rank}.json").write_text(json.dumps(seen))
    trainer.close()
    dist.destroy_process_group()
