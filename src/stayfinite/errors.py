"""Everything that stayfinite raises on purpose:

    StayfiniteError
    ├── UsageError (ValueError)        the call cannot work as it is written
    │   ├── ModelError                 nothing to train
    │   ├── OptimizerError             the optimizer and the model, or the guard, do not fit
    │   ├── LossError                  what was given as a loss cannot be one
    │   └── PolicyError                a setting is outside what it may be
    ├── OrderError (RuntimeError)      right call, wrong moment: step() without backward()
    │   └── GuardClosed                the guard has stopped or was closed
    ├── StateError (ValueError)        a saved state that cannot be loaded
    │   └── PoisonedState              a state with NaN or infinity in it, which is never saved as good
    ├── MissingExtra (ImportError)     an optional dependency is not installed
    ├── NotReady (RuntimeError)        a program's check before its first step found what it would not survive
    └── TrainingStopped (RuntimeError) training must not go on as it is; carries an exit code for supervisors
        ├── DeviceFault                a device keeps giving another result when the same step is run again
        ├── LoaderFailed               too many batches could not be loaded, here or on another rank
        └── TrainingDiverged           the budget for refused steps is spent
            └── BadStep                a strict policy met its first bad step

Each message says what happened and where; ``fix`` says what to do about it and is part of ``str(error)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


class StayfiniteError(Exception):
    """The root: catch this to catch everything that stayfinite raises on purpose.

    Examples:
        >>> try:
        ...     Guard(model, optimizer, max_norm=-1.0)
        ... except stayfinite.StayfiniteError as error:
        ...     print(error.fix)
        clip at 1.0, which suits most models; None switches clipping off
    """

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(f"{message}\n  fix: {fix}" if fix else message)
        self.message = message
        self.fix = fix


class UsageError(StayfiniteError, ValueError):
    """The call cannot work as it is written. Nothing was changed."""


class ModelError(UsageError):
    """The model has nothing that could be trained."""


class OptimizerError(UsageError):
    """The optimizer does not fit the model, or cannot be guarded."""


class LossError(UsageError):
    """What was given as a loss cannot be differentiated as one."""


class PolicyError(UsageError):
    """A setting of the policy, or of the guard, is outside what it may be."""


class OrderError(StayfiniteError, RuntimeError):
    """The right call at the wrong moment."""


class GuardClosed(OrderError):
    """The guard was closed, or has stopped the training, and takes no further step."""


class StateError(StayfiniteError, ValueError):
    """A saved state that does not fit and was not loaded."""


class PoisonedState(StateError):
    """A state that holds NaN or infinity where numbers are computed with; it is not saved, and not resumed from."""


class MissingExtra(StayfiniteError, ImportError):
    """An optional dependency is not installed; the message holds the pip line."""

    @classmethod
    def of(cls, package: str, *, extra: str, what_for: str) -> MissingExtra:
        """The error for a package that an extra of stayfinite brings."""
        return cls(f"{what_for} needs {package}, which is not installed", fix=f"pip install 'stayfinite[{extra}]'")

    @classmethod
    @contextmanager
    def unless(cls, package: str, *, extra: str, what_for: str) -> Iterator[None]:
        """Context for importing such a package; raises this error if it is not installed."""
        try:
            yield
        except ImportError as error:
            raise cls.of(package, extra=extra, what_for=what_for) from error


class NotReady(StayfiniteError, RuntimeError):
    """A program's check before its first step found what training would not survive; nothing was trained."""


class TrainingStopped(StayfiniteError, RuntimeError):
    """Training must not go on as it is. ``step`` and ``code`` are those of the decision that ended it.

    ``exit_code`` is what the process ends with when nobody catches it while a guard is in use: a supervisor that
    restarts failed jobs must leave this one alone, because it would only fail again.
    """

    exit_code = 86

    def __init__(self, message: str, *, step: int = 0, code: str = "", fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.step = step
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword arguments have to be named again when another process unpacks the error.
        build = partial(type(self), self.message, step=self.step, code=self.code, fix=self.fix)
        return build, ()


class LoaderFailed(TrainingStopped):
    """Too many batches could not be loaded, here or on another rank."""

    exit_code = 88


class DeviceFault(TrainingStopped):
    """A device keeps giving another result when the same step is run again; training can go on with another one."""

    exit_code = 89


class TrainingDiverged(TrainingStopped):
    """The budget for refused steps is spent; the message says what was tried."""

    exit_code = 87


class BadStep(TrainingDiverged):
    """A strict policy met its first bad step."""
