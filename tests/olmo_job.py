"""A small training with OLMo-core's own trainer, alone or under torchrun: one kind of ranks, one kind of trouble."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from olmo_core.config import DType
from olmo_core.data.data_loader import DataLoaderBase
from olmo_core.distributed.parallel import DataParallelType
from olmo_core.nn.transformer import TransformerConfig
from olmo_core.optim import AdamWConfig, CosWithWarmup, SkipStepAdamWConfig
from olmo_core.train import Duration, TrainerConfig
from olmo_core.train.callbacks import Callback, CheckpointerCallback
from olmo_core.train.train_module import TransformerDataParallelConfig, TransformerTrainModuleConfig

from stayfinite import Policy
from stayfinite.integrations.olmo import StayFinite
from stayfinite.state.shards import full_value

STEPS, BAD, LENGTH, VOCABULARY = 14, 8, 16, 64


class Silent:
    def print(self, line: Any) -> None:
        pass


class Tokens(DataLoaderBase):
    """Batches that depend on their number and on the rank alone."""

    @property
    def total_batches(self) -> int:
        return 1000

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self.batches_processed, "epoch": self._epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.batches_processed, self._epoch = state_dict["batches"], state_dict["epoch"]

    def reshuffle(self, epoch: int | None = None, **_: Any) -> None:
        self._epoch = epoch or 1

    def _batch(self, number: int) -> dict[str, Any]:
        drawing = torch.Generator().manual_seed(1000 * number + self.dp_rank)
        rows = self.rank_batch_size // LENGTH
        start = torch.randint(0, VOCABULARY, (rows, 1), generator=drawing)
        return {"input_ids": (start + torch.arange(LENGTH)) % VOCABULARY}

    def _iter_batches(self) -> Iterator[dict[str, Any]]:
        for number in range(self.batches_processed, self.total_batches):
            yield self._batch(number)

    def get_mock_batch(self) -> dict[str, Any]:
        return self._batch(0)


class Trouble(Callback):
    """Plants a fault on the last rank, and writes down what every step left."""

    priority: ClassVar[int] = 100  # the fault is the model's, and lies below whoever guards it

    def __init__(self, act: str) -> None:
        self.act = act
        self.seen: list[dict[str, Any]] = []
        self.norms: list[float] = []

    def pre_train(self) -> None:
        module, act = self.trainer.train_module, self.act
        forward = module.model_forward

        def troubled(input_ids: torch.Tensor, **inputs: Any) -> Any:
            output = forward(input_ids, **inputs)
            here = dist.get_rank() == dist.get_world_size() - 1 if dist.is_initialized() else True
            if self.trainer.global_step != BAD or not here or not torch.is_grad_enabled():
                return output
            if act == "nan":
                return output._replace(loss=output.loss * math.nan, ce_loss=output.ce_loss * math.nan)
            if act == "spike":
                return output._replace(loss=output.loss * 1e6, ce_loss=output.ce_loss * 1e6)
            if act == "nan-gradient":
                output.loss.register_hook(lambda grad: grad * math.nan)
            return output

        module.model_forward = troubled
        clip = module._clip_grad_norm

        def noted(*args: Any, **kwargs: Any) -> torch.Tensor:
            norm: torch.Tensor = clip(*args, **kwargs)
            self.norms.append(float(norm))
            return norm

        module._clip_grad_norm = noted

    def post_step(self) -> None:
        if self.trainer.global_step in (BAD - 1, BAD, STEPS):
            self.seen.append(state_of(self.trainer))


def state_of(trainer: Any) -> dict[str, Any]:
    module = trainer.train_module
    optimizer = module.optim
    parameters = list(module.model.parameters())
    moments = [full_value(optimizer.state[p]["exp_avg"]) for p in parameters if p in optimizer.state]
    return {
        "weights": [full_value(p).double().reshape(-1).tolist() for p in parameters],
        "moments": [moment.double().reshape(-1).tolist() for moment in moments],
        "lr": float(optimizer.param_groups[0]["lr"]),
    }


def trained(kind: str, act: str, folder: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    config = TransformerConfig.llama_like(
        d_model=16, vocab_size=VOCABULARY, n_layers=2, n_heads=2, hidden_size_multiple_of=8
    )
    world = dist.get_world_size() if dist.is_initialized() else 1
    kind, _, skipping = kind.partition("-")
    optim: Any = (
        SkipStepAdamWConfig(lr=1e-2, rolling_interval_length=8) if skipping else AdamWConfig(lr=1e-2, fused=False)
    )
    spread = {
        "ddp": {"name": DataParallelType.ddp},
        "fsdp": {"name": DataParallelType.fsdp, "param_dtype": DType.float32},
        "hsdp": {"name": DataParallelType.hsdp, "param_dtype": DType.float32, "num_replicas": 2},
    }.get(kind)
    module = TransformerTrainModuleConfig(
        rank_microbatch_size=2 * LENGTH,
        max_sequence_length=LENGTH,
        optim=optim,
        max_grad_norm=1.0,
        scheduler=CosWithWarmup(warmup=4),
        dp_config=None if spread is None else TransformerDataParallelConfig(**spread),
    ).build(config.build(init_device="cpu"), device=torch.device("cpu"))
    rank = dist.get_rank() if dist.is_initialized() else 0
    loader = Tokens(
        work_dir=folder / "work",
        global_batch_size=4 * LENGTH * world,
        dp_world_size=world,
        dp_rank=rank,
        fs_local_rank=rank,
    )
    killed = act in ("killed", "resumed", "whole")
    callbacks: dict[str, Any] = {
        "checkpointer": CheckpointerCallback(save_interval=5, pre_train_checkpoint=False, save_async=False)
    }
    callbacks["trouble"] = trouble = Trouble(act)
    guarded = not act.startswith("bare")
    trouble.act = act.removeprefix("bare-")
    ours = None
    if guarded:
        policy = Policy(prove_steps=3, desync_steps=2, spikes="refuse")
        callbacks["stayfinite"] = ours = StayFinite(policy, console=Silent())
    trainer = TrainerConfig(
        save_folder=str(folder / "save"),
        work_dir=str(folder / "work"),
        save_overwrite=True,
        metrics_collect_interval=1,
        max_duration=Duration.steps(STEPS),
        callbacks=callbacks,
        no_checkpoints=not killed,
    ).build(module, loader)
    ended = ""
    if act == "killed":
        end_at(trainer, 7)
    try:
        trainer.fit()
    except RuntimeError as error:
        ended = f"{type(error).__name__}: {error}"
    found: dict[str, Any] = {"states": trouble.seen, "norms": trouble.norms, "ended": ended}
    found["end"] = state_of(trainer)
    if ours is not None and ours.guard is not None:
        decisions = ours.guard.decisions
        found |= {
            "actions": [decision.action for decision in decisions],
            "steps": [decision.step for decision in decisions],
            "ours": [decision.signals.grad_norm for decision in decisions],
            "bad_ranks": [list(decision.signals.bad_ranks) for decision in decisions],
        }
    if skipping:
        found["window"] = [float(loss) for loss in module.optim._losses]
    return found


def end_at(trainer: Any, step: int) -> None:
    """The process dies as under a kill, in the middle of a step."""
    original = trainer.train_module.train_batch

    def dying(batch: Any, dry_run: bool = False) -> Any:
        if trainer.global_step > step:
            os._exit(9)
        return original(batch, dry_run=dry_run)

    trainer.train_module.train_batch = dying


def main(kind: str, act: str, place: str | Path) -> None:
    folder = Path(place)
    os.environ["OLMO_SHARED_FS"] = "1"
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    rank = dist.get_rank() if dist.is_initialized() else 0
    found = trained(kind, act, folder)
    (folder / f"seen-{act}-{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
