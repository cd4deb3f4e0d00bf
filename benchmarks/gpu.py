"""What a guarded step costs on a GPU, beside everything else that one could do. Prints one table for each shape.

    python benchmarks/gpu.py --output benchmarks/results        # everything, about ten minutes on an H200
    python benchmarks/gpu.py --quick                            # a look, about two minutes
    python benchmarks/gpu.py --only kernel launch-bound         # parts of it; --help names them
    python benchmarks/gpu.py --only kernel --tune               # the kernel with other divisions of its work
    python benchmarks/gpu.py --only added host                  # what differs between the ways, without the model

In a shape all ways of taking a step train one model on the same batches and take turns: within a repeat each takes a
few steps, in rotating order, so that whatever else the machine does hits all of them alike. A ratio compares a way with
the loop with clip_grad_norm_ of the same repeat, or with the loop without any clip; shown are medians and quartiles.
`clip again` is the former measured a second time: its distance from 1 is noise. Repeats go on until the shape's seconds
are spent; in the second half of them only the ways that something was promised of take turns, with those that they are
compared with, so that these are closer in time and more often measured. A way that fails is a line in the table. A
snapshot is taken in every turn of its way; what it costs beyond the guard's own steps is spread over 50 steps.

Where the ways differ by less than the machine's noise, two parts look at the difference alone. `added` lists what each
way adds to the device's work, kernel by kernel, as torch's profiler sees it. `host` takes steps without any model: the
gradients are given, and what is timed is what comes after backward, where the host is the limit.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks.on_gpu.main import main

    sys.exit(main(__doc__ or ""))
