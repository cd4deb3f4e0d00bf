"""What every guard in somebody else's loop has: what a person may ask of it, the moment between two steps, its end."""

from __future__ import annotations

import atexit
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch.distributed as dist
from torch.utils.hooks import RemovableHandle

from stayfinite.core.decision import Decision
from stayfinite.guard.driven import DrivenGuard
from stayfinite.integrations.shadowing import Shadows


class FrameworkGuard:
    """Guards a loop that a framework takes part in; see the framework's own file for how it is built."""

    def __init__(self, driven: DrivenGuard, run_dir: Path | None) -> None:
        self.driven, self._run_dir = driven, run_dir
        self.vetoes = 0
        self._norm = math.nan
        self._decision: Decision | None = None
        self._stepped = self._closed = False
        self._joined = dist.is_available() and dist.is_initialized()
        self._shadows = Shadows()
        self._hooks: list[RemovableHandle] = []
        # A loop has no last line of ours: what is open when the process ends is still written.
        atexit.register(self._at_exit)

    @property
    def refused(self) -> bool:
        """Whether the last step was refused."""
        return self._decision is not None and self._decision.refused

    @property
    def run_dir(self) -> Path | None:
        """Where the run is written."""
        return self._run_dir

    @property
    def decisions(self) -> list[Decision]:
        """The recent decisions, oldest first."""
        self._between_steps()
        return self.driven.decisions

    def figures(self) -> dict[str, float]:
        """Gradient norm of the last step; vetoes, bounded steps and findings so far. They join what the loop logs."""
        return {
            "stayfinite/grad_norm": self._norm,
            "stayfinite/vetoes": float(self.vetoes),
            "stayfinite/bounded": float(self.driven.unusual["bounded"]),
            "stayfinite/findings": float(len(self.driven.causes)),
        }

    def describe(self) -> str:
        """What is guarded, how, and what it costs, in a few lines."""
        return self.driven.describe()

    def flush(self) -> None:
        """Act on the last step now, instead of at the next forward pass. Schedules should have moved."""
        self._between_steps()
        self.driven.flush()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the guard remembers, as plain data."""
        self._between_steps()
        plain: dict[str, Any] = json.loads(json.dumps(self.driven.state_dict()))
        return plain

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state; load model and optimizer before."""
        self._forget_step()
        self.driven.load_state_dict(state)

    def close(self) -> None:
        """Take everything away that stands in front of something, write the rest, and say what the run came to."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        atexit.unregister(self._at_exit)
        try:
            # Where the ranks have parted, they can agree on nothing any more.
            if error is None and (not self._joined or dist.is_initialized()):
                self._between_steps()
        finally:
            self._closed = True
            self._shadows.lift()
            while self._hooks:
                self._hooks.pop().remove()
            self._leave()
            self.driven.__exit__(kind, error, trace)

    def _leave(self) -> None:
        """Put back what else was changed in the framework's objects."""

    def _decide(self, decision: Decision) -> None:
        """The step that is under way was judged."""
        self._decision = decision
        self.vetoes += decision.refused
        self._norm = decision.signals.grad_norm

    def _between_steps(self) -> None:
        """The loop is done with the last step: act on it."""
        if self._stepped and not self._closed:
            self._forget_step(abandon=False)
            self.driven.settle()

    def _forget_step(self, *, abandon: bool = True) -> None:
        self._decision, self._stepped = None, False
        if abandon:
            self.driven.abandon()

    def _at_exit(self) -> None:
        with suppress(Exception):
            self.close()
