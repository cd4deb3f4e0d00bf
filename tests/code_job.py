"""Played on a stage: a few lines, as ``python -c CODE`` runs them."""

from __future__ import annotations

import torch  # noqa: F401  # what nearly all of them load; the stage does it once


def main(code: str) -> None:
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
