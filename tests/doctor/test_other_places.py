"""Programs of several files, notebooks, launchers: the patch and the place are where the user finds them."""

import json

import torch

import stayfinite
from stayfinite.cli import main as stayfinite_command

LOSSES = """import torch


def distance(a, b):
    return torch.sqrt(((a - b) ** 2).sum(1)).mean()
"""
TRAIN = """import torch
from app.losses import distance
torch.manual_seed(0)
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(12):
    x = torch.randn(8, 4)
    y = net(x).detach() if step == 6 else x
    loss = distance(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_a_fault_in_an_imported_module_is_patched_there(tmp_path, monkeypatch, capsys):
    (tmp_path / "app").mkdir()
    for name, text in (("__init__", ""), ("losses", LOSSES), ("train", TRAIN)):
        (tmp_path / "app" / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert stayfinite_command(["doctor", "--patch", "fix.diff", "-m", "app.train"]) == 1
    diff = (tmp_path / "fix.diff").read_text()
    assert diff.startswith("--- a/app/losses.py\n+++ b/app/losses.py\n")
    assert "verified: the patched copy ran 12 steps" in capsys.readouterr().err
    assert (tmp_path / "app/losses.py").read_text() == LOSSES


def test_a_finding_in_a_notebook_names_cell_and_line(tmp_path, capsys):
    cells = [("markdown", "# title"), ("code", "%matplotlib inline\nimport torch\n" + LOSSES)]
    cells.append(("code", TRAIN.replace("from app.losses import distance\n", "")))
    notebook = {"cells": [{"cell_type": kind, "source": source} for kind, source in cells]}
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook))
    assert (
        stayfinite_command(["doctor", "--once", "--patch", str(tmp_path / "fix.diff"), str(tmp_path / "train.ipynb")])
        == 1
    )
    said = capsys.readouterr()
    assert "train.ipynb, cell 1, line 7" in said.out
    assert "no patch written: train.ipynb is a notebook. Change it by hand: keep the input above 0" in said.err


def test_a_launcher_is_told_how_to_start_the_doctor(capsys):
    assert stayfinite_command(["doctor", "-m", "torch.distributed.run", "train.py"]) == 2
    assert "torchrun --nproc-per-node 2 --no-python stayfinite doctor train.py" in capsys.readouterr().err


def test_an_attachment_shows_itself_in_a_notebook():
    with stayfinite.attach() as doctor:
        net = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(8):
            loss = torch.nn.functional.cross_entropy(net(torch.randn(8, 4)).softmax(1), torch.randint(0, 3, (8,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        shown = doctor._repr_html_()
    assert "<b>Sick</b>" in shown
    assert "8 steps with SGD" in shown
    assert "softmax-before-cross-entropy" in shown
