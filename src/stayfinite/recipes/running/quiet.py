"""Silence transformers' progress bars and advice."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def quiet_transformers(*, advice: bool = False) -> Iterator[None]:
    """Disable transformers' bars and advice within this context.

    Arguments:
        advice: leave its advice, such as the names of weights that a file does not have.
    """
    import transformers.utils.logging

    logging: Any = transformers.utils.logging  # has no annotations
    shown, loudness = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    if not advice:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(loudness)
        if shown:
            logging.enable_progress_bar()
