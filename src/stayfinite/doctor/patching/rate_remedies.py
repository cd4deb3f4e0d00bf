"""Texts with other settings of the optimizer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.doctor.patching.statements import (
    Remedy,
    is_number,
)
from stayfinite.doctor.patching.text import Text, called
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told


def _rate(text: Text, top: Told, _: Program) -> Iterator[str]:
    """The rate, where it is written as a number: in the optimizer's call, a name, a setting, a flag."""
    lower = top.finding.cause == "lr-too-high"
    factors = (0.01, 0.001, 1e-4) if lower else (1e3, 1e5, 1e6)
    numbers: list[ast.Constant] = []
    for node in ast.walk(text.tree):
        if isinstance(node, ast.keyword) and node.arg in ("lr", "learning_rate") and is_number(node.value):
            numbers.append(node.value)  # type: ignore[arg-type]
        elif isinstance(node, ast.Assign) and is_number(node.value):
            if any(
                isinstance(t, ast.Name) and t.id.lower() in ("lr", "learning_rate", "eta", "alpha_lr")
                for t in node.targets
            ):
                numbers.append(node.value)  # type: ignore[arg-type]
        elif isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in ("lr", "learning_rate") and is_number(value):
                    numbers.append(value)  # type: ignore[arg-type]
        elif called(node) == "add_argument" and isinstance(node, ast.Call):
            flags = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if any(flag in ("--lr", "--learning-rate", "--learning_rate") for flag in flags):
                numbers += [k.value for k in node.keywords if k.arg == "default" and is_number(k.value)]  # type: ignore[misc]
        elif (
            isinstance(node, ast.Call)
            and "optim" in text.source(node.func)
            and len(node.args) >= 2
            and is_number(node.args[1])
        ):
            numbers.append(node.args[1])  # type: ignore[arg-type]
    for number in numbers[:2]:
        rate = float(number.value)  # type: ignore[arg-type]
        if rate == 0.0:
            yield text.with_node(number, "1e-3")
        elif rate < 0:
            yield text.with_node(number, f"{-rate:g}")
        else:
            for factor in factors:
                yield text.with_node(number, f"{rate * factor:g}")


def _eps(text: Text, _: Told, __: Program) -> Iterator[str]:
    for keyword in text.find(lambda n: isinstance(n, ast.keyword) and n.arg == "eps" and is_number(n.value)):
        yield text.with_node(keyword.value, "1e-8")


RATE_REMEDIES: dict[str, Remedy] = {
    "lr-too-high": _rate,
    "lr-too-low": _rate,
    "lr-zero": _rate,
    "adam-eps-underflow": _eps,
}
