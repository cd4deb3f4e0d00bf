"""transformers without its progress bars, which tear the lines of a program apart, and without its advice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Within, it draws no bars and gives no advice that a person cannot follow here; afterwards as before."""
    import transformers.utils.logging

    logging: Any = transformers.utils.logging  # it carries no annotations
    shown, loudness = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(loudness)
        if shown:
            logging.enable_progress_bar()
