"""The kernels compile for GPUs that are not here, and read whole words."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="the kernels need Triton")


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["80", "90"])
def test_every_kernel_compiles_and_its_fast_path_loads_sixteen_bytes_at_a_time(capability, tmp_path):
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    job = [sys.executable, str(Path(__file__).with_name("compile_kernels.py")), capability]
    done = subprocess.run(job, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    # Eight loads at a time of 1,024 elements by 128 threads: 32 bytes of float32 each, 16 of the halves.
    assert {name: loads["v4.b32"] for name, loads in report.items()} == {
        "float32": 16, "bfloat16": 8, "float16": 8
    }  # fmt: skip
