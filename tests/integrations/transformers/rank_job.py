"""Played on a stage under torchrun: a Trainer in several processes, with trouble in the rows of the last rank only."""

import json
import math
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM, Trainer

from stayfinite.core.policy import Policy
from stayfinite.integrations.transformers import StayFinite
from tiny_trainers import Faulty, Sentences, SpoiltBackward, Tokens, arguments, tiny_llama, tiny_t5


class BadOnTheLastRank(Faulty):
    """One rank's loss, or its gradients alone, are not numbers at step 7."""

    bad, gradient = False, False

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any) -> Any:
        found = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        here = self.bad and self.args.process_index == self.args.world_size - 1 and self.state.global_step == 6
        if not here:
            return found
        return SpoiltBackward.apply(found) if self.gradient else found * math.nan


def build(folder: Path, kind: str) -> Trainer:
    """The Trainer of a kind, on this rank."""
    settings = {"max_steps": 12, "per_device_train_batch_size": 4, "train_sampling_strategy": "sequential"}
    settings |= {"ddp_backend": "gloo", "logging_steps": 4}
    if "accumulate" in kind:
        settings |= {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2}
    callbacks = [] if "plain" in kind else [StayFinite(Policy(desync_steps=3))]
    args = arguments(folder, **settings)
    if "sharded" in kind:
        from transformers.distributed.configuration_utils import DistributedConfig

        with args.main_process_first():
            tiny_llama().save_pretrained(folder / "base")
        model = LlamaForCausalLM.from_pretrained(folder / "base", distributed_config=DistributedConfig(fsdp_size=2))
        trainer = BadOnTheLastRank(model=model, args=args, train_dataset=Tokens(), callbacks=callbacks)
        trainer.bad = "bad" in kind
        return trainer
    # Two ranks share eight rows a step; the second one has the last four.
    data = Sentences(bad=(8 * 6 + 5,) if "bad" in kind else ())
    trainer = BadOnTheLastRank(model=tiny_t5(dropout_rate=0.0), args=args, train_dataset=data, callbacks=callbacks)
    trainer.bad = trainer.gradient = "gradient" in kind
    return trainer


def main(place: str, kind: str) -> None:
    """Train, and write down what this rank has in the end."""
    folder = Path(place)
    trainer = build(folder, kind)
    trainer.train()
    if "twice" in kind:
        trainer.train()
    state = {name: _whole(tensor) for name, tensor in trainer.model.state_dict().items()}
    sharded = any(hasattr(tensor, "full_tensor") for tensor in trainer.model.state_dict().values())
    found = {
        "sharded": sharded,
        "finite": all(bool(torch.isfinite(tensor).all()) for tensor in state.values()),
        "weights": [float(tensor.double().abs().sum()) for tensor in state.values()],
        "lr": trainer.lr_scheduler.get_last_lr()[0],
        "left": [name for name in ("training_step", "log", "_stayfinite") if name in vars(trainer)],
        "vetoes": trainer.state.log_history[-1].get("stayfinite/vetoes"),
    }
    (folder / f"rank{trainer.args.process_index}.json").write_text(json.dumps(found))


def _whole(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
