"""What a supervisor sees: a stopped training has an exit code of its own, a crash has not."""

from __future__ import annotations

import pytest

from stage import Played, play

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


CASES = {
    "diverged": ("max_vetoes_in_a_row=1", "bad(30)", 87),
    "strict": ("mode='strict'", "bad(1)", 87),
    "loader": ("max_loader_errors=0", "list(guard.batches({}[0] for _ in range(3)))", 88),
    "other error": ("", "raise KeyError('mine')", 1),
    "fine": ("", "bad(1)", 0),
    "caught": ("mode='strict'", "try:\n    bad(1)\nexcept RuntimeError:\n    raise KeyError('after it')", 1),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    programs = {name: (PREAMBLE.format(policy=policy) + body,) for name, (policy, body, _) in CASES.items()}
    return play("code_job", programs, tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("name", CASES)
def test_the_exit_code_tells_whether_to_restart(ended: dict[str, Played], name: str) -> None:
    code = CASES[name][-1]
    assert ended[name].ends == [code], ended[name].said
    if code >= 80:
        assert "Traceback" in ended[name].said
        assert "fix:" in ended[name].said
