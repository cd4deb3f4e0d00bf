"""An engine prepared by accelerate: ``accelerator.backward`` runs its backward and step."""

from __future__ import annotations

from typing import Any

from stayfinite.integrations.deepspeed.guard import StayFinite


class AcceleratedEngine(StayFinite):
    """Guard of an engine in a loop that uses accelerate.

    Arguments:
        accelerator: its ``log`` gets the guard's figures, its ``end_training`` closes the guard.
        engine: the model as returned by ``prepare``.
        optimizer: as returned by ``prepare``; it reports skipped steps to the loop.
        settings: those of :class:`StayFinite`.
    """

    def __init__(self, accelerator: Any, engine: Any, optimizer: Any, **settings: Any) -> None:
        super().__init__(engine, **settings)
        tell_of_skips(optimizer)
        self._shadows.put(accelerator, "log", self._log)
        self._shadows.put(accelerator, "end_training", self._end_training)

    def _log(self, original: Any, values: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return original({**self.figures(), **values}, *args, **kwargs)

    def _end_training(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self.close()
        return original(*args, **kwargs)


def tell_of_skips(optimizer: Any) -> None:
    """Make accelerate's wrapper ask its optimizer whether a step was skipped; it checks for support only once."""
    if hasattr(optimizer, "__has_overflow__") and hasattr(optimizer.optimizer, "overflow"):
        optimizer.__has_overflow__ = True
