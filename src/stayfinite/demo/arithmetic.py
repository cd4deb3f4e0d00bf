"""Small fp16 products at a bearable speed, on whatever CPU this is."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

CLEARLY_SLOWER = 1.5


@contextmanager
def quick_fp16() -> Iterator[None]:
    """One thread for each operation, and the faster of torch's two matrix products in fp16; both put back at the end.

    The lanes have a thread each, so a second one inside an operation would only be in the way. oneDNN has no fp16
    kernel for some CPUs and falls back on a reference one that is 30 times slower than torch's own.
    """
    threads, onednn = torch.get_num_threads(), bool(torch._C._get_mkldnn_enabled())
    torch.set_num_threads(1)
    try:
        if onednn:
            with warnings.catch_warnings():
                # On a CPU that it cannot use it says so, at length; the clock tells the same.
                warnings.filterwarnings("ignore", message="mkldnn_matmul failed")
                with_it = _seconds()
            torch._C._set_mkldnn_enabled(False)
            torch._C._set_mkldnn_enabled(with_it < CLEARLY_SLOWER * _seconds())
        yield
    finally:
        torch.set_num_threads(threads)
        torch._C._set_mkldnn_enabled(onednn)


def _seconds() -> float:
    """The best of three fp16 products of the model's size."""
    left, right = torch.ones(240, 48, dtype=torch.float16), torch.ones(48, 64, dtype=torch.float16)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - start)
    return best
