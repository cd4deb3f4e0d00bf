from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

JOB = Path(__file__).with_name("sharded_job.py")


def torchrun(ranks: int, *args: str) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        str(JOB),
        *args,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("saved_by", "resumed_by"),
    [
        (("fsdp", 2), ("fsdp", 1)), (("fsdp", 1), ("fsdp", 2)), (("fsdp", 2), ("plain", 1)),
        (("plain", 1), ("fsdp", 2)), (("ddp", 2), ("fsdp", 2)), (("fsdp", 2), ("ddp", 2)),
    ],
    ids=lambda each: f"{each[0]}{each[1]}",
)  # fmt: skip
def test_a_checkpoint_fits_any_number_of_ranks_and_any_wrapping(
    tmp_path: Path, saved_by: tuple[str, int], resumed_by: tuple[str, int]
) -> None:
    torchrun(saved_by[1], saved_by[0], "save", str(tmp_path))
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-00000003"], "the poisoned one was given up by every rank"
    torchrun(resumed_by[1], resumed_by[0], "resume", str(tmp_path))
    one, other = (torch.load(tmp_path / f"{act}.pt") for act in ("save", "resume"))
    assert set(one) == set(other)
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], msg=lambda text, name=name: f"{name}: {text}")
