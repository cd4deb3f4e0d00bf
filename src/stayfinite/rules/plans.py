"""Remarks on a plan, before anything has run: the file checks of `stayfinite check` make them, `Rule.plans` weighs."""

from __future__ import annotations

Remark = tuple[str, str] | tuple[str, str, str]
"""Text, location and optionally a more specific fix: ``("fp16: True and bf16: True", "train.yaml:3")``.

Settings are risks: nothing has happened yet.
"""
