"""What cannot be read from one output: an argmax over its only column is always 0."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.mechanisms.code import (
    Code,
    Mechanism,
    given,
    last_name,
    name_of,
    parameters_of,
    whole_number,
)
from stayfinite.readers.configs.mechanisms.one_output import CHOOSES
from stayfinite.readers.configs.mechanisms.widths import LONE, Widths
from stayfinite.readers.configs.program.names import dotted_name

_OTHERWISE = lazy_regex(r"squeeze|regress|round|sigmoid|[<>]=? ?(?:0|threshold)|\.shape\[|num_labels == 1", 2)
_METRIC = lazy_regex(r"\w*(?:metric|acc|score|eval|top1|test|valid)\w*", 2)
_BINARY = lazy_regex(r"BCE\w*Loss|binary_cross_entropy")
_TAKES_ARGMAX = frozenset({"NeuralNetClassifier", "EEGClassifier"})
"""skorch's classifiers for several outputs."""


class OneColumn:
    """Asks a tree for predictions that are the same for every input."""

    def __init__(self, code: Code, *, whole: bool) -> None:
        self._code = code
        self._widths = Widths(code, whole=whole)

    def found(self) -> Iterator[Mechanism]:
        """Every fault."""
        yield from self._argmaxes()
        yield from self._predicting()

    def _argmaxes(self) -> Iterator[Mechanism]:
        """`outputs.argmax(1)` of outputs with one column."""
        for call in self._code.calls:
            value = _over_columns(call)
            if value is None or CHOOSES.search(self._code.tests_around(call)):
                continue
            if self._widths.of_value(value) or self._is_squeezed(value, call) or self._is_handed_over(value, call):
                yield Mechanism("metric-stuck", "an argmax over one column is always 0", call)

    def _is_squeezed(self, value: ast.expr, call: ast.Call) -> bool:
        """Whether a binary loss gets the same values without their only column."""
        losses = [each for each in self._code.calls if _BINARY.search(ast.unparse(each.func)) and each.args]
        made = [each for name in self._code.assigned for each in self._code.assigned[name]
                if _BINARY.search(ast.unparse(each.value) if each.value else "")]  # fmt: skip
        named = {dotted_name(target, {}) for each in made for target in getattr(each.at, "targets", ())}
        losses += [each for each in self._code.calls if dotted_name(each.func, {}) in named and each.args]
        shown = re.compile(rf"{re.escape(ast.unparse(value))}(?:\.float\(\))?(?:\.squeeze\((?:-1|1)?\)|\[:, 0\])")
        scope = self._code.scope_of(call)
        return isinstance(value, ast.Name) and any(
            self._code.scope_of(each) is scope
            and shown.fullmatch(ast.unparse(each.args[0]))
            and not CHOOSES.search(self._code.tests_around(each))
            for each in losses
        )

    def _is_handed_over(self, value: ast.expr, call: ast.Call) -> bool:
        """Whether a metric gets the outputs of the program's only model, which has one."""
        scope = self._code.scope_of(call)
        if not _METRIC.fullmatch(getattr(scope, "name", "")) or _OTHERWISE.search(ast.unparse(scope)):
            return False
        origin = self._code.value_of(value, value) or value
        held = {each.id for each in ast.walk(origin) if isinstance(each, ast.Name)}
        unpacked = {
            name
            for name, values in self._code.assigned.items()
            if any(each.value is None and self._code.scope_of(each.at) is scope for each in values)
        }
        models = [values for name, values in self._code.assigned.items() if LONE.fullmatch(name)]
        made = [each.value for values in models for each in values if _makes_a_model(each.value)]
        known = {self._widths.of_layer(each) for each in made}
        return bool(held & {*parameters_of(scope), *unpacked}) and bool(known) and all(known)

    def _predicting(self) -> Iterator[Mechanism]:
        """skorch: `NeuralNetClassifier.predict` takes the argmax, whatever the criterion."""
        for call in self._code.calls:
            criterion = given(call, -1, "criterion")
            if criterion is None or last_name(call.func) not in _TAKES_ARGMAX or not call.args:
                continue
            if name_of(criterion) == "BCEWithLogitsLoss" and self._widths.of_layer(call.args[0]):
                text = "predict() takes the argmax over one output, which is always 0"
                yield Mechanism("metric-stuck", text, call, sure=False)


def _makes_a_model(value: ast.expr | None) -> bool:
    """Whether a value is made by a class, or a function that builds models."""
    return isinstance(value, ast.Call) and (
        name_of(value)[:1].isupper() or name_of(value) in ("from_pretrained", "create_model")
    )


def _over_columns(call: ast.Call) -> ast.expr | None:
    """What an argmax over the columns is taken of."""
    name, function = last_name(call.func), call.func
    if name not in ("argmax", "max") or not isinstance(function, ast.Attribute):
        return None
    of_module = dotted_name(function.value, {}) in ("np", "torch", "numpy", "tf", "jnp", "tf.math", "K")
    axis = given(call, 1 if of_module else 0, "dim", "axis")
    if whole_number(axis) not in (1, -1):
        return None
    return given(call, 0, "input") if of_module else function.value
