"""Saying that a training goes on without a guard."""

from __future__ import annotations


class NotGuarded(UserWarning):
    """The steps of this training cannot be refused; it goes on as if stayfinite were not there."""
