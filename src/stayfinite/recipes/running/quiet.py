"""Saving and loading without the progress bars of transformers, which tear the lines of a program apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Within, transformers draws none; afterwards as before."""
    import transformers.utils.logging

    logging: Any = transformers.utils.logging  # it carries no annotations
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
