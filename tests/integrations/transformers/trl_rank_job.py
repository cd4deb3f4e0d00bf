"""Played on a stage under torchrun: trainers of trl in several processes, with trouble on the last rank only."""

import json
import math
from pathlib import Path
from typing import Any

import torch
import trl

from stayfinite.integrations.transformers import StayFinite
from tiny_trl import trl_trainer


class BadOnTheLastRank(trl.GRPOTrainer):
    """One answer's log-probabilities are not numbers at step 4, on one rank."""

    bad = False

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        logps, *rest = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        last = self.args.process_index == self.args.world_size - 1
        if self.bad and last and torch.is_grad_enabled() and self.state.global_step == 3:
            logps = torch.cat([logps[:1] * math.nan, logps[1:]])
        return logps, *rest


def bad_loss(base: Any) -> Any:
    """A trainer whose loss is no number at step 4, on the last rank."""

    class Bad(base):  # type: ignore[misc]
        bad = False

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            found = super().compute_loss(*args, **kwargs)
            last = self.args.process_index == self.args.world_size - 1
            if not (self.bad and last and self.state.global_step == 3):
                return found
            return (found[0] * math.nan, *found[1:]) if isinstance(found, tuple) else found * math.nan

    return Bad


TRAINERS = {
    "dpo": trl.DPOTrainer, "kto": trl.KTOTrainer, "reward": trl.RewardTrainer, "rloo": trl.RLOOTrainer,
    "sft": trl.SFTTrainer,
}  # fmt: skip


def main(place: str, kind: str) -> None:
    """Train, and write down what this rank has in the end; ``kind`` is `good`, or `dpo-good`."""
    folder = Path(place)
    trainer_kind, _, way = kind.rpartition("-")
    callbacks = [] if way == "plain" else [StayFinite()]
    if trainer_kind:
        trainer = trl_trainer(
            trainer_kind, folder, *callbacks, base=bad_loss(TRAINERS[trainer_kind]), ddp_backend="gloo"
        )
    else:
        trainer = trl_trainer("grpo", folder, *callbacks, base=BadOnTheLastRank, num_iterations=2, ddp_backend="gloo")
    trainer.bad = way == "bad"
    trainer.train()
    state = trainer.model.state_dict()
    reference = getattr(trainer, "ref_model", None)
    found = {
        "finite": all(bool(torch.isfinite(tensor).all()) for tensor in state.values()),
        "weights": [float(tensor.double().abs().sum()) for tensor in state.values()],
        "reference": [] if reference is None else [float(each.double().abs().sum()) for each in reference.parameters()],
        "lr": trainer.lr_scheduler.get_last_lr()[0],
        "vetoes": trainer.state.log_history[-1].get("stayfinite/vetoes"),
    }
    (folder / f"rank{trainer.args.process_index}.json").write_text(json.dumps(found))
