"""What tests on a GPU share: cases that run without pytest as well, and the mode that catches a host wait."""

from __future__ import annotations

import itertools
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import SkipTest

import torch

try:
    import pytest
except ImportError:  # a lent machine may not have it
    pytest = None

MARKS = (
    []
    if pytest is None
    else [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
)


def each(name: str, values: list[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """pytest's parametrize, which ``run_all`` can read as well."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        test.cases = [*getattr(test, "cases", []), (name, values)]  # type: ignore[attr-defined]
        return test if pytest is None else pytest.mark.parametrize(name, values)(test)

    return mark


@contextmanager
def no_host_wait() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls this mode a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


def run_all(module: dict[str, Any]) -> None:
    """Every test of a module with every combination of its cases; ends the process."""
    failed = 0
    for name, test in list(module.items()):
        if not name.startswith("test_"):
            continue
        cases = getattr(test, "cases", [])
        for values in itertools.product(*(values for _, values in cases)):
            label = f"{name}{list(values) if values else ''}"
            start = time.perf_counter()
            try:
                test(**dict(zip([key for key, _ in cases], values, strict=True)))
            except SkipTest as reason:
                print(f"skipped {label}: {reason}")
            except Exception:
                failed += 1
                print(f"FAILED {label}\n{traceback.format_exc(limit=-6)}", flush=True)
            else:
                print(f"passed {label} ({time.perf_counter() - start:.2f} s)", flush=True)
    raise SystemExit(f"{failed} failed" if failed else 0)
