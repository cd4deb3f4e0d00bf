"""Played on a stage under torchrun: GRPO of trl in several processes, with trouble in answers of the last rank only."""

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


def main(place: str, kind: str) -> None:
    """Train, and write down what this rank has in the end."""
    folder = Path(place)
    callbacks = [] if kind == "plain" else [StayFinite()]
    trainer = trl_trainer("grpo", folder, *callbacks, base=BadOnTheLastRank, num_iterations=2, ddp_backend="gloo")
    trainer.bad = kind == "bad"
    trainer.train()
    state = trainer.model.state_dict()
    found = {
        "finite": all(bool(torch.isfinite(tensor).all()) for tensor in state.values()),
        "weights": [float(tensor.double().abs().sum()) for tensor in state.values()],
        "reference": [float(tensor.double().abs().sum()) for tensor in trainer.ref_model.state_dict().values()],
        "lr": trainer.lr_scheduler.get_last_lr()[0],
        "vetoes": trainer.state.log_history[-1].get("stayfinite/vetoes"),
    }
    (folder / f"rank{trainer.args.process_index}.json").write_text(json.dumps(found))
