"""Check the reference model of a trl trainer at the start and after each step."""

from __future__ import annotations

from typing import Any

from torch import nn

from stayfinite.core.post_training.signs import REFERENCE_MOVES, Sign
from stayfinite.rl.reference import Reference

EVERY = 10
"""Steps between checks."""

OF_REFERENCE = ".ref."
"""Part of the weight names of trl's reference adapter."""


class TrainerReference:
    """Checks the reference of one trainer; does nothing without one, or if trl moves it by design.

    Arguments:
        trainer: any Trainer; with ``sync_ref_model`` its reference follows the policy.
    """

    def __init__(self, trainer: Any, optimizer: Any) -> None:
        self._trainer, self._reported, self._looked = trainer, False, 0
        reference = getattr(trainer, "ref_model", None)
        synced = bool(getattr(trainer.args, "sync_ref_model", False))
        self._reference = (
            Reference(trainer.model, reference, optimizer) if isinstance(reference, nn.Module) and not synced else None
        )

    def look(self, step: int) -> Sign | None:
        """A sign if the reference is faulty, reported once."""
        self._looked += 1
        if self._reported or self._looked % EVERY != 1:
            return None
        seen = self._seen()
        if not seen:
            return None
        self._reported = True
        return Sign(REFERENCE_MOVES, "reference", step, 0.0, 0.0, seen)

    def _seen(self) -> str:
        if self._reference is None:
            adapters = getattr(self._trainer.model, "peft_config", {})
            named = self._trainer.model.named_parameters() if "ref" in adapters else ()
            trains = [name for name, each in named if OF_REFERENCE in name and each.requires_grad]
            return f"the reference adapter trains: {len(trains)} weights, first {trains[0]}" if trains else ""
        if fault := self._reference.fault():
            return fault
        moved = self._reference.moved()
        return f"{len(moved)} weights of the reference changed, first {moved[0]}" if moved else ""
