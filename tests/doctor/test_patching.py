"""The lines that a patch writes read as a person would write them, with the constants of the advice."""

import pytest

from stayfinite.autopsy.conclusions.formulas import _away
from stayfinite.doctor.patching.loss_remedies import LOSS_REMEDIES
from stayfinite.doctor.patching.text import Case, Text
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import told


def edits(line):
    top = told("loss-formula-singularity", ["seen"], place=("train.py", 1))
    return list(LOSS_REMEDIES[top.finding.cause](Case(Text(line), top, Program())))


@pytest.mark.parametrize(
    ("line", "bounded", "added"),
    [
        ("loss = torch.log(p)", "loss = torch.log(p.clamp_min(1e-6))", "loss = torch.log(p + 1e-6)"),
        ("loss = p[0].log()", "loss = p[0].clamp_min(1e-6).log()", "loss = (p[0] + 1e-6).log()"),
        ("loss = torch.log(a - b)", "loss = torch.log((a - b).clamp_min(1e-6))", "loss = torch.log(a - b + 1e-6)"),
        ("loss = (a - b).sqrt()", "loss = (a - b).clamp_min(1e-6).sqrt()", "loss = (a - b + 1e-6).sqrt()"),
        ("d = ( (a - b) ).sqrt()", "d = ( (a - b).clamp_min(1e-6) ).sqrt()", "d = ( (a - b + 1e-6) ).sqrt()"),
        ("loss = x / n", "loss = x / n.clamp_min(1e-6)", "loss = x / (n + 1e-6)"),
        ("loss = x / (a - b)", "loss = x / (a - b).clamp_min(1e-6)", "loss = x / (a - b + 1e-6)"),
        ("loss = x / s ** 2", "loss = x / (s ** 2).clamp_min(1e-6)", "loss = x / (s ** 2 + 1e-6)"),
        ("d = log(a if b else c)", "d = log((a if b else c).clamp_min(1e-6))", "d = log((a if b else c) + 1e-6)"),
    ],
)  # fmt: skip
def test_an_input_is_bounded_without_redundant_parentheses(line, bounded, added):
    assert edits(line)[:2] == [bounded, added]


def test_the_patch_has_the_constants_of_the_advice():
    assert "log(x.clamp_min(1e-6))" in _away("log")
    assert edits("loss = log(x)")[0] == "loss = log(x.clamp_min(1e-6))"
    assert "norm(x + 1e-8)" in _away("norm")
    assert edits("loss = x.norm()")[0] == "loss = x.norm() + 1e-8"
    assert "loss = a / (x.norm() + 1e-8)" in edits("loss = a / x.norm()")
