"""Fast small fp16 products on any CPU."""

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

CLEARLY_SLOWER = 1.5


@contextmanager
def quick_fp16() -> Iterator[None]:
    """Context with one thread per operation and the faster of torch's two fp16 matrix products.

    Each lane has its own thread, so more threads per operation would only interfere. On some CPUs oneDNN has no fp16
    kernel and falls back to a reference one that is 30 times slower than torch's own.
    """
    threads, onednn = torch.get_num_threads(), bool(torch._C._get_mkldnn_enabled())
    torch.set_num_threads(1)
    try:
        if onednn:
            with warnings.catch_warnings():
                # It warns at length on an unsupported CPU; the timing shows the same.
                warnings.filterwarnings("ignore", message="mkldnn_matmul failed")
                with_it = _seconds()
            torch._C._set_mkldnn_enabled(False)
            torch._C._set_mkldnn_enabled(with_it < CLEARLY_SLOWER * _seconds())
        yield
    finally:
        torch.set_num_threads(threads)
        torch._C._set_mkldnn_enabled(onednn)


def _seconds() -> float:
    """Best time of three fp16 products of the model's size."""
    left, right = torch.ones(240, 48, dtype=torch.float16), torch.ones(48, 64, dtype=torch.float16)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - start)
    return best
