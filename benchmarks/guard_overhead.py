"""Cost of a guarded step on a CPU, against the usual ways to look for trouble. On a GPU: ``benchmarks/gpu.py``.

    python benchmarks/guard_overhead.py            # about four minutes
    python benchmarks/guard_overhead.py --quick --ways "NaN loop"

All ways train the same small T5 with one fused optimizer on the same batches, in turn: within a repeat each takes 50
steps, one at a time and in rotating order, so that other load on the machine affects all alike. A ratio compares a way
with the clip_grad_norm_ loop of the same repeat, or with the loop without clipping; shown are medians and quartiles.
`clip again` is the former measured twice: its distance from 1 is noise. A repeat has as many steps as the guard's
sampling interval, so that each pays for exactly one sample; a step ends only when the guard has processed it.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from benchmarks.on_gpu.main import main

    sys.exit(main(__doc__ or "", "cpu"))
