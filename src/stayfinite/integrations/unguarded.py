"""Warnings about unguarded training."""

from __future__ import annotations

import warnings


class NotGuarded(UserWarning):
    """The steps of this training cannot be refused; it continues without a guard."""


def warn_of_unseen_loss(call: str) -> None:
    """Warn of a step whose backward pass bypassed the framework."""
    warnings.warn(
        f"a step was taken without {call}, so it is not guarded. Call {call} instead of loss.backward().",
        NotGuarded,
        stacklevel=3,
    )
