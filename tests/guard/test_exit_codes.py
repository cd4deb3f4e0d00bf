"""What a supervisor sees: a stopped training has an exit code of its own, a crash has not."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PREAMBLE = """
import torch
from stayfinite import Guard, Policy
torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
guard = Guard(model, torch.optim.SGD(model.parameters(), lr=0.1), policy=Policy({policy}))
def bad(steps):
    for _ in range(steps):
        guard.step(model(torch.ones(1, 1)).sum() * torch.nan)
"""


def run(policy: str, body: str) -> subprocess.CompletedProcess[str]:
    program = PREAMBLE.format(policy=policy) + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("policy", "body", "code"),
    [
        ("max_vetoes_in_a_row=1", "bad(30)", 87),
        ("mode='strict'", "bad(1)", 87),
        ("max_loader_errors=0", "list(guard.batches({}[0] for _ in range(3)))", 88),
        ("", "raise KeyError('mine')", 1),
        ("", "bad(1)", 0),
        ("mode='strict'", "try:\n    bad(1)\nexcept RuntimeError:\n    raise KeyError('after it')", 1),
    ],
    ids=["diverged", "strict", "loader", "other error", "fine", "caught"],
)
def test_the_exit_code_tells_whether_to_restart(policy, body, code):
    done = run(policy, body)
    assert done.returncode == code, done.stderr
    if code >= 80:
        assert "Traceback" in done.stderr
        assert "fix:" in done.stderr
