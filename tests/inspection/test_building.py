"""`stayfinite check --build`: a training that its own code builds."""

import json
import sys
import textwrap

import pytest

from stayfinite.cli.check import run
from stayfinite.errors import UsageError
from stayfinite.inspection.preflight import inspect_build

BODY = """
import torch
from collections import namedtuple
from types import SimpleNamespace
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Linear(24, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batch = (torch.randn(16, 12), torch.arange(16) % 5)
forward = lambda batch: F.cross_entropy(model(batch[0]), batch[1])
parts = {"model": model, "optimizer": optimizer, "batch": batch, "forward": forward}
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"their_training_{tmp_path.name.replace('-', '_')}"

    def write(returned: str) -> str:
        (tmp_path / f"{name}.py").write_text(BODY + textwrap.dedent(f"def build():\n    return {returned}\n"))
        sys.modules.pop(name, None)
        return f"{name}:build"

    yield write
    sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "returned",
    [
        "parts",
        "parts | {'scheduler': torch.optim.lr_scheduler.StepLR(optimizer, 1)}",
        "(model, optimizer, batch, forward)",
        "(model, forward, optimizer, batch)",
        "SimpleNamespace(**parts)",
        "namedtuple('Training', list(parts))(**parts)",
        "{k: v for k, v in parts.items() if k != 'batch'} | {'loader': [batch, batch]}",
    ],
)
def test_what_a_build_returns_may_have_any_form(write, returned):
    assert inspect_build(write(returned), steps=0).verdict == "healthy"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("{'model': model}", "without optimizer and batch"),
        ("(model, forward)", "without optimizer and batch"),
        ("None", "returned NoneType; expected model, optimizer, batch"),
        ("(model, optimizer, batch, batch, forward)", "cannot tell which return value is the batch"),
        ("parts | {'optimiser': optimizer}", "unknown key optimiser"),
        ("parts | {'model': 3}", "expected a torch.nn.Module, not int"),
        ("1 / 0", "failed with ZeroDivisionError"),
        ("{k: v for k, v in parts.items() if k != 'forward'}", "cannot compute a loss from a batch"),
    ],
)
def test_what_is_missing_is_said(write, returned, message):
    with pytest.raises(UsageError, match=message):
        inspect_build(write(returned), steps=0)


def test_an_error_of_their_own_is_told_with_its_line(write, tmp_path, capsys):
    named = write("{'model': model, 'optimizer': optimiser}")
    file, line = named.removesuffix(":build") + ".py", len(BODY.splitlines()) + 2
    with pytest.raises(UsageError, match=rf"failed with NameError at {file}:{line}: name 'optimiser'"):
        inspect_build(named, steps=0)
    (tmp_path / "their_broken_module.py").write_text("import torch\n\nx = 1 / 0\n")
    with pytest.raises(UsageError, match=r"their_broken_module: ZeroDivisionError at their_broken_module.py:3"):
        inspect_build("their_broken_module:build", steps=0)


def test_the_command_exits_0_when_ready_and_1_with_a_finding(write, capsys):
    assert run(["--build", write("parts"), "--steps", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "healthy"
    assert run(["--build", write("parts | {'optimizer': torch.optim.SGD(model[0].parameters(), lr=0.1)}")]) == 1
    assert "SF211" in capsys.readouterr().out


def test_the_command_exits_2_on_wrong_use(write, capsys):
    assert run(["--build", write("None")]) == 2
    assert run(["--build", "no_such_module_anywhere:build"]) == 2
    assert run(["--build", "nonsense"]) == 2
    assert "expected module:function" in capsys.readouterr().err
