"""A small GPT with megatron-core under torchrun: ``main(kind, act, folder)``."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from torch import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what is not installed beside it
    import megatron.core.optimizer as megatron_optimizer
    from megatron.core import parallel_state
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer.transformer_config import TransformerConfig

from integrations.megatron.on_the_cpu import put_megatron_on_the_cpu
from stayfinite import Guard, Policy
from stayfinite.errors import StayfiniteError
from stayfinite.integrations.attaching import attached
from stayfinite.integrations.megatron import megatron_guard
from stayfinite.recipes.running.processes import leave_the_others

STEPS, BAD, SPIKE, BAD_GRADIENT = 36, 20, 26, 30
SAVED, KILLED = 15, 18
TENSOR_PARALLEL = ("tp", "tp-sharded")


class Training:
    """The loop of megatron's own examples, with a bad loss, a spike and a bad gradient on the last rank if asked to."""

    def __init__(self, kind: str, faults: tuple[int, ...] = ()) -> None:
        tensor = 2 if kind in TENSOR_PARALLEL else 1
        parallel_state.initialize_model_parallel(tensor)
        half = {"bf16": torch.bfloat16, "bf16-sharded": torch.bfloat16, "fp16": torch.float16}.get(kind)
        sharded, self.faults = "sharded" in kind, faults
        wide = half or torch.float32
        self.config = TransformerConfig(
            num_layers=2,
            hidden_size=16,
            num_attention_heads=2,
            tensor_model_parallel_size=tensor,
            pipeline_dtype=wide,
            params_dtype=wide,
            bf16=half is torch.bfloat16,
            fp16=half is torch.float16,
            use_cpu_initialization=True,
            attention_dropout=0.0,
            hidden_dropout=0.0,
            gradient_accumulation_fusion=False,
            masked_softmax_fusion=False,
        )
        torch.manual_seed(0)
        model = GPTModel(
            self.config,
            get_gpt_layer_local_spec(),
            vocab_size=32,
            max_sequence_length=16,
            position_embedding_type="rope",
        )
        checks = DistributedDataParallelConfig(
            use_distributed_optimizer=sharded, grad_reduce_in_fp32=True, check_for_nan_in_grad=False
        )
        self.model = DistributedDataParallel(self.config, checks, model)
        settings = megatron_optimizer.OptimizerConfig(
            optimizer="adam",
            lr=1e-2,
            min_lr=1e-3,
            clip_grad=5.0,
            use_distributed_optimizer=sharded,
            params_dtype=wide,
            bf16=half is torch.bfloat16,
            fp16=half is torch.float16,
            initial_loss_scale=2.0**20,
        )
        self.optimizer = megatron_optimizer.get_megatron_optimizer(settings, [self.model])
        self.scheduler = OptimizerParamScheduler(
            self.optimizer,
            init_lr=0.0,
            max_lr=1e-2,
            min_lr=1e-3,
            lr_warmup_steps=4,
            lr_decay_steps=100,
            lr_decay_style="cosine",
            start_wd=0.01,
            end_wd=0.01,
            wd_incr_steps=100,
            wd_incr_style="constant",
        )
        self.config.finalize_model_grads_func = finalize_model_grads
        self.config.grad_scale_func = self.optimizer.scale_loss
        self.number = 0
        self.told: list[Any] = []

    def batches(self, step: int) -> Iterator[Tensor]:
        chance = torch.Generator().manual_seed(1000 * step + parallel_state.get_data_parallel_rank())
        while True:
            start = torch.randint(0, 32, (4, 1), generator=chance)
            yield (start + torch.arange(9)) % 32

    def forward(self, batches: Iterator[Tensor], model: Any) -> Any:
        tokens = next(batches)
        places = torch.arange(8).expand(4, -1)
        found = model(tokens[:, :-1], places, None, labels=tokens[:, 1:])
        return found, self.loss

    def loss(self, each: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss = each.float().mean()
        if dist.get_rank() == dist.get_world_size() - 1 and self.number in self.faults:
            if self.number == BAD_GRADIENT:
                loss.register_hook(lambda grad: grad * float("nan"))
            else:
                loss = loss * (1e4 if self.number == SPIKE else float("nan"))
        return loss, {"loss": loss.detach().clone()}

    def step(self) -> None:
        self.number += 1
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        get_forward_backward_func()(
            forward_step_func=self.forward,
            data_iterator=self.batches(self.number),
            model=[self.model],
            num_microbatches=2,
            seq_length=8,
            micro_batch_size=4,
            forward_only=False,
        )
        successful, norm, _ = self.optimizer.step()
        if successful:
            self.scheduler.step(increment=1)
        self.told.append((successful, norm))

    def tensors(self) -> list[Tensor]:
        """Weights, wider copies of them, moments; the schedule's place, the rate and the loss scale."""
        found = [*self.model.parameters()]
        for leaf in self.optimizer.chained_optimizers:
            for group in leaf.optimizer.param_groups:
                found += [*group["params"], torch.tensor(group["lr"])]
                found += [value for p in group["params"] for value in leaf.optimizer.state.get(p, {}).values()]
        found += [torch.tensor(self.scheduler.num_steps), self.optimizer.get_loss_scale()]
        return [torch.as_tensor(each).detach().clone() for each in found]

    def state(self) -> dict[str, Any]:
        leaf = self.optimizer.chained_optimizers[0]
        return {
            "model": self.model.state_dict(),
            "optimizer": leaf.optimizer.state_dict(),
            "copies": [p.detach() for group in leaf.optimizer.param_groups for p in group["params"]],
            "scheduler": self.scheduler.state_dict(),
            "number": self.number,
        }

    def load(self, state: dict[str, Any]) -> None:
        leaf = self.optimizer.chained_optimizers[0]
        self.model.load_state_dict(state["model"])
        leaf.optimizer.load_state_dict(state["optimizer"])
        copies = [p for group in leaf.optimizer.param_groups for p in group["params"]]
        with torch.no_grad():
            for copy, saved in zip(copies, state["copies"], strict=True):
                copy.copy_(saved)
        self.scheduler.load_state_dict(state["scheduler"])
        self.number = state["number"]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def guarded(training: Training, folder: Path, policy: Policy) -> dict[str, Any]:
    place = folder / "run"
    console = Console(quiet=True)
    guard = megatron_guard(
        training.model, training.optimizer, training.scheduler, policy=policy, run_dir=place, console=console
    )
    unmoved = []
    while training.number < STEPS:
        before = training.tensors()
        training.step()
        if guard.refused:
            unmoved.append((training.number, same(before, training.tensors())))
    guard.close()
    decisions = guard.decisions
    return {
        "unmoved": unmoved,
        "norms": [each.signals.grad_norm for each in decisions],
        "losses": [each.signals.loss for each in decisions],
        "bad ranks": {each.step: list(each.signals.bad_ranks) for each in decisions if each.refused},
        "actions": [each.action for each in decisions],
        "bounded": {each.step: (each.limit, training.told[each.step - 1][1]) for each in decisions if each.limit},
        "clip": training.optimizer.config.clip_grad,
        "left": [name for name in vars(training.optimizer) if callable(vars(training.optimizer)[name])],
    }


def resumable(training: Training, folder: Path, *, kill: bool) -> dict[str, Any]:
    file = folder / f"saved-{dist.get_rank()}.pt"
    guard = megatron_guard(training.model, training.optimizer, training.scheduler, run_dir=folder / "run")
    if file.exists():
        state = torch.load(file, weights_only=False)
        training.load(state)
        guard.load_state_dict(state["guard"])
    while training.number < STEPS:
        training.step()
        if training.number == SAVED:
            torch.save({**training.state(), "guard": guard.state_dict()}, file)
            dist.barrier()
        if kill and training.number == KILLED:
            os.kill(os.getpid(), signal.SIGKILL)
    guard.close()
    return {}


def attached_to(kind: str, folder: Path) -> tuple[Training, dict[str, Any]]:
    """What `stayfinite doctor` does with a script that knows nothing of us."""
    os.chdir(folder)
    lines: list[str] = []
    with attached(Policy(), lines.append) as found:
        training = Training(kind, (BAD,))
        while training.number < STEPS:
            training.step()
    return training, {"lines": lines, "runs": [str(each.relative_to(folder)) for each in found.run_dirs]}


def plain_guard(training: Training) -> dict[str, Any]:
    """What somebody is told who takes the guard of a plain loop."""
    raw = training.optimizer.chained_optimizers[0].optimizer
    try:
        Guard(training.model, raw, console=Console(quiet=True))
    except StayfiniteError as error:
        return {"error": str(error)}
    return {}


def main(kind: str, act: str, folder: str) -> None:
    place = Path(folder)
    torch.set_num_threads(1)
    put_megatron_on_the_cpu()
    dist.init_process_group("gloo")
    faults = () if act in ("plain", "ours", "guard") else (BAD, SPIKE, BAD_GRADIENT)
    seen: dict[str, Any] = {}
    if act == "attached":
        training, seen = attached_to(kind, place)
    else:
        training = Training(kind, faults)
    if act in ("plain", "bare"):
        while training.number < STEPS:
            training.step()
    elif act == "attached":
        pass
    elif act == "guard":
        seen = plain_guard(training)
    elif act in ("kill", "resume", "whole"):
        seen = resumable(training, place, kill=act == "kill")
    elif act == "back":
        training.faults = tuple(range(BAD, BAD + 4))
        policy = Policy(max_vetoes_in_a_row=2, max_cuts=0, prove_steps=4, snapshot_share=1.0)
        seen = guarded(training, place, policy)
    else:
        seen = guarded(training, place, Policy.refuse_spikes() if act == "refuse" else Policy())
    seen["told"] = training.told
    seen["finite"] = all(bool(torch.isfinite(each).all()) for each in training.model.parameters())
    torch.save(training.tensors(), place / f"{act}-{dist.get_rank()}.pt")
    (place / f"{act}-{dist.get_rank()}.json").write_text(json.dumps(seen))
    dist.barrier()
    leave_the_others()
