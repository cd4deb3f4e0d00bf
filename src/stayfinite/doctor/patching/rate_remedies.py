"""Candidate edits for optimizer settings."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.doctor.patching.statements import Remedy, number_in
from stayfinite.doctor.patching.text import Text, called
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told

NAMES = ("lr", "learning_rate", "eta", "alpha_lr")
KEYS = ("lr", "learning_rate")
FLAGS = ("--lr", "--learning-rate", "--learning_rate")


def _rate(text: Text, top: Told, _: Program) -> Iterator[str]:
    """Change the learning rate where it is a literal: in a call, variable, dict or flag."""
    lower = top.finding.cause == "lr-too-high"
    factors = (0.01, 0.001, 1e-4) if lower else (1e3, 1e5, 1e6)
    places = (place for node in ast.walk(text.tree) for place in _rates_at(text, node))
    numbers = [(place, rate) for place in places if (rate := number_in(place)) is not None]
    for place, rate in numbers[:2]:
        if rate == 0.0:
            yield text.with_node(place, "1e-3")
        else:
            for factor in factors:
                yield text.with_node(place, f"{rate * factor:g}")


def _rates_at(text: Text, node: ast.AST) -> Iterator[ast.expr]:
    """Expressions in a node that hold a learning rate."""
    if isinstance(node, ast.keyword):
        if node.arg in KEYS:
            yield node.value
    elif isinstance(node, ast.Assign):
        if any(isinstance(t, ast.Name) and t.id.lower() in NAMES for t in node.targets):
            yield node.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value in KEYS:
                yield value
    elif isinstance(node, ast.Call) and called(node) == "add_argument":
        if any(isinstance(a, ast.Constant) and a.value in FLAGS for a in node.args):
            yield from (k.value for k in node.keywords if k.arg == "default")
    elif isinstance(node, ast.Call) and "optim" in text.source(node.func) and len(node.args) >= 2:
        yield node.args[1]


def _eps(text: Text, _: Told, __: Program) -> Iterator[str]:
    for keyword in text.find(lambda n: isinstance(n, ast.keyword) and n.arg == "eps"):
        if number_in(keyword.value) is not None:
            yield text.with_node(keyword.value, "1e-8")


RATE_REMEDIES: dict[str, Remedy] = {
    "lr-too-high": _rate,
    "lr-too-low": _rate,
    "lr-zero": _rate,
    "adam-eps-underflow": _eps,
}
