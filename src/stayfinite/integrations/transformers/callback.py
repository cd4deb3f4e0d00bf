"""The callback: the Trainer's hooks, and the training that it guards."""

import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stayfinite.core.policy import Policy
from stayfinite.errors import MissingExtra, ModelError, OptimizerError, OrderError
from stayfinite.integrations.framework_guard import NotGuarded, explaining
from stayfinite.integrations.places import DEFAULT, Default, place_of
from stayfinite.report.terminal import Console

with MissingExtra.unless("transformers", extra="hf", what_for="stayfinite.integrations.transformers"):
    from tqdm.auto import tqdm  # type: ignore[import-untyped]
    from transformers import TrainerCallback, TrainerState
    from transformers.trainer_callback import ExportableState

    from stayfinite.integrations.transformers.attachment import MARK, Attachment
    from stayfinite.integrations.transformers.seams import (
        check_version,
        place_for,
        steps_in_engine,
        trainer_of,
        why_not,
    )

__all__ = ["NotGuarded", "StayFinite"]

GUARD_STATE = "guard_state"


class StayFinite(TrainerCallback, ExportableState):
    """Refuses bad steps of a Trainer before they touch a weight, a moment or the schedule, and says why they were bad.

    The Trainer is restored when ``train()`` ends, also after an error. Its checkpoints include the guard's memory.

    Arguments:
        policy: how a step is judged; ``Policy.watch()`` only observes.
        run_dir: where steps, events and incidents are written; by default ``stayfinite`` under ``args.output_dir``,
            numbered if an earlier training already has one. None for nowhere.
        explain: whether the first bad step of each kind is run again at once to find its cause.
        steer: whether to act on failing GRPO and RLOO runs of trl: raise ``beta``, cut the learning rate, roll back.
            Without a sign nothing changes.
        console: where lines are printed; by default stderr, beside the progress bar.
    """

    def __init__(
        self,
        policy: Policy | Mapping[str, Any] | None = None,
        run_dir: str | os.PathLike[str] | Default | None = DEFAULT,
        explain: bool = True,
        steer: bool = False,
        *,
        console: Console | None = None,
    ) -> None:
        check_version()
        # A checkpoint stores a policy as a mapping.
        policy = Policy() if policy is None else policy
        self._policy = policy if isinstance(policy, Policy) else Policy(**policy)
        self._run_dir = run_dir if run_dir != Default.PLACE.value else DEFAULT
        self._explain, self._steer = explain, steer
        self._console = console
        self._attachment: Attachment | None = None
        self.run_dir: Path | None = None
        """Directory of the current or last training."""

    # -- what the Trainer calls --------------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Attach to the Trainer."""
        trainer = trainer_of(self)
        if (left := self._present()) is not None:
            # An earlier training failed before its first step, without notice.
            left.end(OrderError("the previous training has not started its first epoch"))
        if getattr(trainer, MARK, None) is not None:
            warnings.warn(
                "this Trainer has two StayFinite callbacks; the second does nothing", NotGuarded, stacklevel=2
            )
            return
        if reason := why_not(trainer):
            warnings.warn(f"StayFinite cannot guard this training: {reason}", NotGuarded, stacklevel=2)
            return
        resumed = state.global_step > 0
        place = place_of(self._run_dir, lambda: place_for(trainer, resumed=resumed))
        # Absolute: a script may change its directory while training.
        self.run_dir = None if place is None else place.absolute()
        policy = explaining(self._policy, explain=self._explain)
        try:
            kind, console = _kind_for(trainer), self._console or _BesideTheBar()
            attachment = kind(trainer, policy, self.run_dir, console, steer=self._steer)
        except (ModelError, OptimizerError) as error:
            if policy.gate == "device":
                raise
            warnings.warn(f"StayFinite cannot guard this training: {error}", NotGuarded, stacklevel=2)
            return
        self._attachment = attachment
        try:
            if resumed:
                attachment.recall(_saved(state), state.global_step)
        except BaseException as error:
            attachment.end(error)
            raise
        # A checkpoint from before this callback was added has no entry for it.
        _callbacks_of(state).setdefault(type(self).__name__, self.state())

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Act on the step."""
        if (attachment := self._present()) is not None:
            attachment.settle()

    def on_save(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Record a checkpoint."""
        if (attachment := self._present()) is not None:
            attachment.driven.record("checkpoint", by="Trainer", name=f"checkpoint-{state.global_step}")

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Detach from the Trainer."""
        if (attachment := self._present()) is not None:
            attachment.end()
        self._attachment = None

    def state(self) -> dict[str, Any]:
        """State for ``trainer_state.json`` of each checkpoint."""
        place = self._run_dir
        run_dir = place.value if isinstance(place, Default) else None if place is None else os.fspath(place)
        attachment = self._present()
        return {
            "args": {
                "policy": self._policy.to_json(),
                "run_dir": run_dir,
                "explain": self._explain,
                "steer": self._steer,
            },
            "attributes": {} if attachment is None else {GUARD_STATE: attachment.driven.state_dict()},
        }

    # ----------------------------------------------------------------------------------------------------------------

    def _present(self) -> Attachment | None:
        attachment = self._attachment
        return attachment if attachment is not None and attachment.attached else None


def _kind_for(trainer: Any) -> type[Attachment]:
    if not steps_in_engine(trainer):
        return Attachment
    from stayfinite.integrations.transformers.engine import EngineAttachment

    return EngineAttachment


class _BesideTheBar:
    """Lines on stderr that do not break the Trainer's progress bar."""

    def print(self, line: Any) -> None:
        tqdm.write(f"{line}", file=sys.stderr)


def _callbacks_of(state: TrainerState) -> dict[str, Any]:
    callbacks: Any = state.stateful_callbacks
    assert isinstance(callbacks, dict), "a list only before the state is complete"
    return callbacks


def _saved(state: TrainerState) -> Mapping[str, Any] | None:
    saved = _callbacks_of(state).get(StayFinite.__name__)
    attributes = saved.get("attributes") if isinstance(saved, dict) else None
    found = attributes.get(GUARD_STATE) if isinstance(attributes, dict) else None
    return found if isinstance(found, dict) else None
