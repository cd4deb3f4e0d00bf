"""Saying that a training goes on without a guard."""

from __future__ import annotations

import warnings


class NotGuarded(UserWarning):
    """The steps of this training cannot be refused; it goes on as if stayfinite were not there."""


def warn_of_unseen_loss(call: str) -> None:
    """A step is taken whose backward pass went past the framework."""
    warnings.warn(
        f"a step was taken without {call}, so it is not guarded. Call {call} instead of loss.backward().",
        NotGuarded,
        stacklevel=3,
    )
