"""What cannot be told from one output: a softmax over it is 1, an argmax over it is 0, and class 1 lies outside."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.mechanisms.code import Code, Mechanism, given, last_name, parameters_of, whole_number
from stayfinite.readers.configs.mechanisms.widths import LAST, Widths, layers_of
from stayfinite.readers.configs.program.names import dotted_name

_SOFTMAX = frozenset({"softmax", "log_softmax", "Softmax", "LogSoftmax"})
_SCORES = lazy_regex(r"att|score|weight|gate|pool|align|query|energy|mix|route|alpha|scor", 2)
_CHOOSES = lazy_regex(r"class|label|output|\bout_|\bn_|num_|binary|multi|task|regress|dim|shape|size|len\(", 2)
_OTHERWISE = lazy_regex(r"squeeze|regress|round|sigmoid|[<>]=? ?(?:0|threshold)|\.shape\[|num_labels == 1", 2)
_METRIC = lazy_regex(r"\w*(?:metric|accuracy|\bacc|score|eval)\w*", 2)
_LONE = lazy_regex(r"(?:self\.)?(?:model|net|network|clf|classifier|cnn|mlp)")


class OneOutput:
    """Asks a tree what happens to outputs of width 1; ``whole`` where nothing of the program was left out."""

    def __init__(self, code: Code, *, whole: bool) -> None:
        self._code = code
        self._whole = whole
        self._widths = Widths(code)

    def found(self) -> Iterator[Mechanism]:
        """Every fault; a label outside the classes explains more than the softmax does."""
        outside = [*self._compiled(), *self._cross_entropies()]
        yield from outside
        if not any(each.cause == "label-out-of-range" for each in outside):
            yield from self._softmaxes()
            yield from self._stacks()
        yield from self._argmaxes()
        yield from self._predicting()

    def _softmaxes(self) -> Iterator[Mechanism]:
        """`softmax(head(x), dim=-1)`, `Activation("softmax")(Dense(1)(x))`."""
        for call in self._code.calls():
            name, layer = last_name(call.func), call.func
            if isinstance(layer, ast.Call) and _softmax_axis(layer) is not None and call.args:
                value, axis = call.args[0], _softmax_axis(layer)
            elif name in ("softmax", "log_softmax"):
                method = isinstance(layer, ast.Attribute) and dotted_name(layer.value, {}) not in _MODULES
                value = layer.value if method and isinstance(layer, ast.Attribute) else given(call, 0, "input")
                axis = given(call, 0 if method else 1, "dim", "axis") or _IMPLIED
            else:
                continue
            where = self._widths.of_value(value)
            if self._is_over(axis, where, call) and not _CHOOSES.search(self._code.tests_around(call)):
                yield Mechanism("softmax-axis", "a softmax over one output is always 1", call)

    def _stacks(self) -> Iterator[Mechanism]:
        """A softmax behind a layer with one output, in `Sequential` or by `add`."""
        owners = {dotted_name(each.func.value, {}): each.func.value for each in self._code.calls()
                  if isinstance(each.func, ast.Attribute) and each.func.attr == "add"}  # fmt: skip
        stacks = [(layers_of(each), each) for each in self._code.calls() if last_name(each.func) == "Sequential"]
        for layers in [each for each, _ in stacks] + [self._widths.added_to(each) for each in owners.values()]:
            for before, layer in zip([None, *layers], layers, strict=False):
                axis = _softmax_axis(layer) if isinstance(layer, ast.Call) else None
                if axis is not None and before and self._is_over(axis, self._widths.of_layer(before), layer):
                    yield Mechanism("softmax-axis", f"a softmax behind {ast.unparse(before)} is always 1", layer)
        for call in self._code.calls():
            function = given(call, -1, "activation")
            softmax = isinstance(function, ast.expr) and _is_word(function, "softmax")
            if softmax and last_name(call.func) == "Dense" and self._widths.of_layer(call) == LAST:
                yield Mechanism("softmax-axis", "a softmax over one unit is always 1", call)

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
        named.append(getattr(scope, "name", ""))
        returned = isinstance(statement, ast.Return) or owner is None
        return any(map(_SCORES.search, named)) or not (returned or isinstance(at, ast.Call) and _is_a_layer(at))

    def _cross_entropies(self) -> Iterator[Mechanism]:
        """A cross entropy of one logit is 0 for class 0, and has no other class."""
        for call in self._code.calls():
            logits = given(call, 0, "input", "logits") if self._is_cross_entropy(call.func) else None
            if logits is not None and self._widths.of_value(logits) and not self._is_chosen(call):
                yield self._lost(call, given(call, 1, "target", "labels"))
            handed = given(call, -1, "criterion")
            if handed is not None and call.args and _last(handed) == "CrossEntropyLoss":
                if self._widths.of_layer(call.args[0]) or self._widths.of_layer(call):
                    yield Mechanism("softmax-axis", "cross entropy of one output is always 0", call, self._whole)

    def _lost(self, call: ast.Call, target: ast.expr | None) -> Mechanism:
        held = self._code.value_of(target, target) if isinstance(target, ast.Name) else target
        if held is not None and _holds_one(held):
            return Mechanism("label-out-of-range", "labels up to 1, and the model has one output: class 0", call)
        return Mechanism("softmax-axis", "cross entropy of one output is always 0", call)

    def _is_cross_entropy(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Call):
            return _last(function) == "CrossEntropyLoss"
        if last_name(function) == "cross_entropy":
            return True
        made = self._code.objects(function)
        return bool(made) and all(isinstance(each, ast.Call) and _last(each) == "CrossEntropyLoss" for each in made)

    def _is_chosen(self, call: ast.Call) -> bool:
        """Whether the loss is chosen by the number of outputs."""
        made = [each.at for each in self._code.assigned.get(dotted_name(call.func, {}), ())]
        return any(_CHOOSES.search(self._code.tests_around(each)) for each in (call, *made))

    def _compiled(self) -> Iterator[Mechanism]:
        """Keras: `model.compile(loss="sparse_categorical_crossentropy")` of a model with one unit."""
        for call in self._code.calls():
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
                yield Mechanism("softmax-axis", "categorical cross entropy of one unit is always 0", call)

    def _ends_in_one(self, owner: ast.expr) -> bool:
        """Whether the last layer that is added, or told in an excerpt, has one unit."""
        added = self._widths.added_to(owner)
        if added:
            return bool(self._widths.of_stack(added))
        units = [each for each in self._code.calls() if last_name(each.func) == "Dense"]
        last = max(units, key=lambda each: (each.lineno, each.col_offset), default=None)
        unknown = not self._whole and not self._code.objects(owner)
        return unknown and last is not None and bool(self._widths.of_layer(last))

    def _argmaxes(self) -> Iterator[Mechanism]:
        """`outputs.argmax(1)` of outputs with one column."""
        for call in self._code.calls():
            value = _over_columns(call)
            if value is None or _CHOOSES.search(self._code.tests_around(call)):
                continue
            if self._widths.of_value(value) or self._is_handed_over(value, call):
                yield Mechanism("metric-stuck", "an argmax over one column is always 0", call)

    def _is_handed_over(self, value: ast.expr, call: ast.Call) -> bool:
        """Whether a metric gets the outputs of the program's only model, which has one."""
        scope = self._code.scope_of(call)
        if not _METRIC.fullmatch(getattr(scope, "name", "")) or _OTHERWISE.search(ast.unparse(scope)):
            return False
        held = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
        unpacked = {name for name, values in self._code.assigned.items()
                    if any(each.value is None and self._code.scope_of(each.at) is scope for each in values)}  # fmt: skip
        models = [each.value for name, values in self._code.assigned.items() if _LONE.fullmatch(name) for each in values]
        made = [each for each in models if isinstance(each, ast.Call) and _last(each)[:1].isupper() or _made_by(each)]
        known = {self._widths.of_layer(each) for each in made}
        return bool(held & {*parameters_of(scope), *unpacked}) and bool(known) and all(known)

    def _predicting(self) -> Iterator[Mechanism]:
        """skorch: `NeuralNetClassifier.predict` takes the argmax, whatever the criterion."""
        for call in self._code.calls():
            criterion = given(call, -1, "criterion")
            if criterion is None or last_name(call.func) not in ("NeuralNetClassifier", "EEGClassifier") or not call.args:
                continue
            if _last(criterion) == "BCEWithLogitsLoss" and self._widths.of_layer(call.args[0]):
                text = "predict() takes the argmax over one output, which is always 0"
                yield Mechanism("metric-stuck", text, call, sure=False)


_IMPLIED = ast.Constant(None)
"""The axis of torch's softmax where none is given: the second one of two."""
_LAST_AXIS = ast.Constant(-1)
_MODULES = frozenset({"F", "torch", "nn.functional", "torch.nn.functional", "tf.nn", "K", "tf.keras.activations", "jax.nn",
                      "special", "scipy.special", "keras.activations", "activations", "nn", "jnp"})  # fmt: skip


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
    return _last(value) in words


def _last(value: ast.expr) -> str:
    return last_name(value.func if isinstance(value, ast.Call) else value)


def _made_by(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and _last(value) in ("from_pretrained", "create_model")


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
