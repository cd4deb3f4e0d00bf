"""Cost of a guarded step on a GPU, against the alternatives. Prints one table per shape.

    python benchmarks/gpu.py --output benchmarks/results        # everything, about ten minutes on an H200
    python benchmarks/gpu.py --quick                            # about two minutes
    python benchmarks/gpu.py --only kernel launch-bound         # parts of it; --help names them
    python benchmarks/gpu.py --only kernel --tune               # the kernel with other launch settings
    python benchmarks/gpu.py --only added host                  # the difference between variants, without the model

For each shape, all variants train one model on the same batches in turn: within a repeat each takes a few steps, in
rotating order, so that other load on the machine affects all alike. A ratio compares a variant with the
clip_grad_norm_ loop of the same repeat, or with the loop without clipping; shown are medians and quartiles. `clip
again` is the former measured twice: its distance from 1 is noise. Repeats continue until the shape's seconds are spent.
In the second half only variants with a promise and their references take turns, so that they are measured more often
and closer in time. A variant that fails is a line in the table. A snapshot is taken in every turn of its variant; its
extra cost is spread over 50 steps.

Two parts measure differences below the machine's noise. `added` lists the kernels each variant adds, from torch's
profiler. `host` takes steps without a model: the gradients are given, and only the time after backward is measured,
where the host is the limit.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks.on_gpu.main import main

    sys.exit(main(__doc__ or "", "cuda"))
