"""What cannot be learned from one output: a softmax over it is 1, its cross entropy is 0, and class 1 lies outside."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.mechanisms.code import Code, Mechanism, given, last_name, name_of, whole_number
from stayfinite.readers.configs.mechanisms.widths import LAST, Widths, layers_of
from stayfinite.readers.configs.program.names import dotted_name

_SCORES = lazy_regex(r"att|score|weight|gate|pool|align|query|energy|mix|route|alpha|scor", 2)
_FIX = "one output: sigmoid with binary cross entropy (BCEWithLogitsLoss); or one output for each class"
CHOOSES = lazy_regex(r"class|label|output|\bout_|\bn_|num_|binary|multi|task|regress|dim|shape|size|len\(", 2)


class OneOutput:
    """Asks a tree what happens to outputs of width 1; ``whole`` where nothing of the program was left out."""

    def __init__(self, code: Code, *, whole: bool) -> None:
        self._code = code
        self._whole = whole
        self._widths = Widths(code, whole=whole)

    def found(self) -> Iterator[Mechanism]:
        """Every fault; a label outside the classes explains more than the softmax does."""
        outside = [*self._compiled(), *self._cross_entropies()]
        yield from outside
        if not any(each.cause == "label-out-of-range" for each in outside):
            yield from self._softmaxes()
            yield from self._stacks()

    def _softmaxes(self) -> Iterator[Mechanism]:
        """`softmax(head(x), dim=-1)`, `Activation("softmax")(Dense(1)(x))`."""
        for call in self._code.calls:
            name, layer = last_name(call.func), call.func
            held = [layer] if isinstance(layer, ast.Call) else self._code.objects(layer)
            value: ast.expr | None
            axis: ast.expr | None
            axes = [_softmax_axis(each) if isinstance(each, ast.Call) else None for each in held]
            if len(axes) == 1 and axes[0] is not None and call.args:
                value, axis = call.args[0], axes[0]
            elif name in ("softmax", "log_softmax"):
                method = isinstance(layer, ast.Attribute) and dotted_name(layer.value, {}) not in _MODULES
                value = layer.value if method and isinstance(layer, ast.Attribute) else given(call, 0, "input")
                axis = given(call, 0 if method else 1, "dim", "axis") or _IMPLIED
            else:
                continue
            where = self._widths.of_value(value)
            if self._is_over(axis, where, call) and not CHOOSES.search(self._code.tests_around(call)):
                yield Mechanism("softmax-axis", "a softmax over one output is always 1", call, fix=_FIX)

    def _stacks(self) -> Iterator[Mechanism]:
        """A softmax behind a layer with one output, in `Sequential` or by `add`."""
        owners = {dotted_name(each.func.value, {}): each.func.value for each in self._code.calls
                  if isinstance(each.func, ast.Attribute) and each.func.attr == "add"}  # fmt: skip
        stacks = [(layers_of(each), each) for each in self._code.calls if last_name(each.func) == "Sequential"]
        for layers in [each for each, _ in stacks] + [self._widths.added_to(each) for each in owners.values()]:
            for before, layer in zip([None, *layers], layers, strict=False):
                axis = _softmax_axis(layer) if isinstance(layer, ast.Call) else None
                if axis is not None and before and self._is_over(axis, self._widths.of_layer(before), layer):
                    yield Mechanism(
                        "softmax-axis", f"a softmax behind {ast.unparse(before)} is always 1", layer, fix=_FIX
                    )
        for call in self._code.calls:
            function = given(call, -1, "activation")
            softmax = isinstance(function, ast.expr) and _is_word(function, "softmax")
            if (
                softmax
                and last_name(call.func) in ("Dense", "dense", "layer_dense")
                and self._widths.of_layer(call) + self._widths.of_value(call) == LAST
            ):
                yield Mechanism("softmax-axis", "a softmax over one unit is always 1", call, fix=_FIX)

    def _is_over(self, axis: ast.expr | None, where: str, at: ast.AST) -> bool:
        """Whether an axis is that of the one output; in three dimensions, the second one may be time."""
        place = -1 if axis is _LAST_AXIS else 1 if axis is _IMPLIED else whole_number(axis)
        if not where or place not in (1, -1) or (place == -1 and where != LAST):
            return False
        return place == -1 or not self._may_be_scores(at)

    def _may_be_scores(self, at: ast.AST) -> bool:
        """Whether a softmax over the second dimension may weigh places of a sequence against each other."""
        owner, around = self._code.class_of(at), list(self._code.around(at))
        named = [owner.name] if owner is not None else []
        statement = next((each for each in around if isinstance(each, ast.stmt)), None)
        if isinstance(statement, ast.Assign):
            named += [dotted_name(each, {}) for each in statement.targets]
        scope = self._code.scope_of(at)
        code = ast.unparse(at)
        named += [getattr(scope, "name", ""), code]
        returned = isinstance(statement, ast.Return) or (owner is None and "self." not in code)
        return any(map(_SCORES.search, named)) or not (returned or (isinstance(at, ast.Call) and _is_a_layer(at)))

    def _cross_entropies(self) -> Iterator[Mechanism]:
        """A cross entropy of one logit is 0 for class 0, and has no other class."""
        for call in self._code.calls:
            logits = given(call, 0, "input", "logits") if self._is_cross_entropy(call.func) else None
            if logits is not None and self._widths.of_value(logits) and not self._is_chosen(call):
                yield self._lost(call, given(call, 1, "target", "labels"))
            elif last_name(call.func) in _IN_TWO_LIBRARIES:
                yield from self._lost_elsewhere(call)
            handed = given(call, -1, "criterion")
            if handed is not None and call.args and name_of(handed) == "CrossEntropyLoss":
                one = self._widths.of_layer(call.args[0]) or self._widths.of_layer(call)
                if one:
                    yield Mechanism(
                        "softmax-axis", "cross entropy of one output is always 0", call, self._whole, fix=_FIX
                    )

    def _lost_elsewhere(self, call: ast.Call) -> Iterator[Mechanism]:
        """TensorFlow and optax; labels that are numbers of classes lie outside."""
        named = next((each.value for each in call.keywords if each.arg == "logits"), None)
        logits = named or given(call, 1 if "_with_logits" in last_name(call.func) else 0)
        if self._widths.of_value(logits) and not self._is_chosen(call):
            whole = "sparse" in last_name(call.func) or "integer" in last_name(call.func)
            text = "labels of several classes, and one output" if whole else "cross entropy of one output is always 0"
            yield Mechanism("label-out-of-range" if whole else "softmax-axis", text, call, fix="" if whole else _FIX)

    def _lost(self, call: ast.Call, target: ast.expr | None) -> Mechanism:
        held = self._code.value_of(target, target) if isinstance(target, ast.Name) else target
        if held is not None and _holds_one(held):
            return Mechanism("label-out-of-range", "labels up to 1, and the model has one output: class 0", call)
        return Mechanism("softmax-axis", "cross entropy of one output is always 0", call, fix=_FIX)

    def _is_cross_entropy(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Call):
            return name_of(function) == "CrossEntropyLoss"
        if last_name(function) == "cross_entropy":
            return not any(getattr(each, "name", "") == "cross_entropy" for each in self._code.nodes)
        made = self._code.objects(function)
        return bool(made) and all(isinstance(each, ast.Call) and name_of(each) == "CrossEntropyLoss" for each in made)

    def _is_chosen(self, call: ast.Call) -> bool:
        """Whether the loss is chosen by the number of outputs."""
        made = [each.at for each in self._code.assigned.get(dotted_name(call.func, {}), ())]
        return any(CHOOSES.search(self._code.tests_around(each)) for each in (call, *made))

    def _compiled(self) -> Iterator[Mechanism]:
        """Keras: `model.compile(loss="sparse_categorical_crossentropy")` of a model with one unit."""
        for call in self._code.calls:
            if last_name(call.func) != "compile" or not isinstance(call.func, ast.Attribute):
                continue
            loss = given(call, 1, "loss")
            owner = call.func.value
            if loss is None or not (self._widths.of_layer(owner) or self._ends_in_one(owner)):
                continue
            if _is_word(loss, "sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"):
                text = "labels of several classes, and the last layer has one unit: class 0"
                yield Mechanism("label-out-of-range", text, call)
            elif _is_word(loss, "categorical_crossentropy", "CategoricalCrossentropy"):
                yield Mechanism("softmax-axis", "categorical cross entropy of one unit is always 0", call, fix=_FIX)

    def _ends_in_one(self, owner: ast.expr) -> bool:
        """Whether the last layer that is added has one unit."""
        return bool(self._widths.of_stack(self._widths.added_to(owner)))


_IN_TWO_LIBRARIES = frozenset({
    "softmax_cross_entropy_with_logits", "softmax_cross_entropy_with_logits_v2", "softmax_cross_entropy",
    "sparse_softmax_cross_entropy_with_logits", "softmax_cross_entropy_with_integer_labels",
})  # fmt: skip

_IMPLIED = ast.Constant(None)
"""The axis of torch's softmax where none is given: the second one of two."""
_LAST_AXIS = ast.Constant(-1)
_MODULES = frozenset({"F", "torch", "nn.functional", "torch.nn.functional", "tf.nn", "K", "tf.keras.activations",
                      "jax.nn", "special", "scipy.special", "keras.activations", "activations", "nn"})  # fmt: skip


def _softmax_axis(layer: ast.Call) -> ast.expr | None:
    """The axis of a softmax layer; None of others."""
    name = last_name(layer.func)
    if name == "Activation" and layer.args and _is_word(layer.args[0], "softmax"):
        return _LAST_AXIS
    if name not in ("Softmax", "LogSoftmax"):
        return None
    torch = dotted_name(layer.func, {}).split(".")[0] in ("nn", "torch", "Softmax", "LogSoftmax")
    return given(layer, 0, "dim", "axis") or (_IMPLIED if torch else _LAST_AXIS)


def _is_a_layer(call: ast.Call) -> bool:
    return last_name(call.func) in ("Softmax", "LogSoftmax", "Activation")


def _is_word(value: ast.expr, *words: str) -> bool:
    """Whether a value is one of these words, a function or a class of that name."""
    if isinstance(value, ast.Constant):
        return value.value in words
    return name_of(value) in words


def _holds_one(target: ast.expr) -> bool:
    """Whether labels are written down, and class 1 or more is among them."""
    for call in (each for each in ast.walk(target) if isinstance(each, ast.Call)):
        name, numbers = last_name(call.func), [whole_number(each) for each in call.args[:2]]
        if name == "randint" and (numbers[1:] or numbers)[0] is not None:
            top = numbers[1] if len(numbers) > 1 and numbers[1] is not None else numbers[0]
            if top is not None and top >= 2:
                return True
        listed = call.args[0].elts if call.args and isinstance(call.args[0], ast.List) else []
        if name in ("tensor", "LongTensor", "array") and any((whole_number(each) or 0) >= 1 for each in listed):
            return True
    return False
