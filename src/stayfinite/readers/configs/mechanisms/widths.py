"""Which values have one output: of a layer, a stack, an own class, or a model that is told `num_labels=1`."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.mechanisms.code import FUNCTIONS, Code, given, last_name, whole_number
from stayfinite.readers.configs.program.names import dotted_name

LAST, CHANNELS, EITHER = "last", "channels", "either"
"""Where the one output is: in the last dimension, the second one, or in one of them."""

Given = Mapping[str, ast.expr]

_DEEPEST = 10
_KEEPS = frozenset({
    "to", "cuda", "cpu", "float", "double", "half", "contiguous", "detach", "numpy", "clone", "relu", "gelu", "tanh",
    "sigmoid", "dropout", "softmax", "log_softmax", "leaky_relu", "elu",
})  # fmt: skip
"""Functions and methods that leave the number of outputs as it is."""
_KEEPING_LAYERS = lazy_regex(
    r"\w*(?:ReLU|Dropout\w*|Sigmoid|Tanh|GELU|ELU|SiLU|Softplus|Identity|Activation|Softmax|BatchNorm\w*|LayerNorm)"
)
_LINEAR = frozenset({"Linear", "LazyLinear", "Dense", "layer_dense"})
_WRAPPERS = frozenset({"to", "cuda", "cpu", "train", "eval", "float", "compile", "DataParallel", "prepare_model",
                       "DistributedDataParallel", "DDP", "get_peft_model"})  # fmt: skip
_COUNTS = (
    "num_labels",
    "num_classes",
    "n_classes",
    "n_outputs",
    "module__n_outputs",
    "num_outputs",
    "out_features",
    "n_labels",
)
_MAKES = lazy_regex(r"[A-Z]\w*|from_pretrained|from_config|create_model|(?:\w*net|vit|bert)\w*")
_WITH_BACKGROUND = lazy_regex(r"rcnn|yolo|detect|ssd|retina|fcos|detr|mask|box|anchor|config|metric|loss", 2)
LONE = lazy_regex(r"(?:self\.)?(?:\w*model|net|network|clf|classifier|cnn|mlp|module)")
"""Names of the one model of a program."""
_HEAD = lazy_regex(r"fc|classifier|head|heads|output|out|score|last_linear|linear|_fc|heads\.head|out_proj")


class Widths:
    """Asks a tree for values whose outputs are one; ``whole`` where nothing of the program was left out."""

    def __init__(self, code: Code, *, whole: bool) -> None:
        self._code = code
        self._whole = whole

    def of_value(self, value: ast.expr | None, told: Given | None = None, depth: int = 0) -> str:
        """Where the one output of a value is; empty where it has several or nobody knows."""
        if value is None or depth > _DEEPEST:
            return ""
        if isinstance(value, ast.Name):
            return self.of_value(self._code.value_of(value, value), told, depth + 1)
        if isinstance(value, ast.Attribute) and value.attr in ("logits", "data"):
            return self.of_value(value.value, told, depth + 1)
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant) and value.slice.value == "logits":
            return self.of_value(value.value, told, depth + 1)
        if isinstance(value, ast.BinOp):
            return self._of_product(value, told, depth)
        if not isinstance(value, ast.Call):
            return ""
        last = last_name(value.func)
        if last in ("dense", "fully_connected"):
            return LAST if self._is_one(given(value, 1, "units", "num_outputs"), told) else ""
        if last == "matmul":
            return self._of_weights(given(value, 1, "b"))
        if last in _KEEPS:
            owner = value.func.value if isinstance(value.func, ast.Attribute) else None
            of_module = owner is None or dotted_name(owner, {}) in ("F", "torch", "nn.functional", "tf.nn", "np")
            inner = (value.args[0] if value.args else None) if of_module else owner
            return self.of_value(inner, told, depth + 1)
        return self.of_layer(value.func, told, depth + 1)

    def _of_product(self, value: ast.BinOp, told: Given | None, depth: int) -> str:
        """Of `x @ w + b`."""
        if isinstance(value.op, ast.MatMult):
            return self._of_weights(value.right)
        return self.of_value(value.left, told, depth + 1) if isinstance(value.op, ast.Add) else ""

    def _of_weights(self, weights: ast.expr | None) -> str:
        """Of a product with a matrix that is made with its shape."""
        made = self._code.objects(weights) if weights is not None else []
        if len(made) != 1 or made[0] is None:
            return ""
        shapes = [each.elts for each in ast.walk(made[0]) if isinstance(each, (ast.List, ast.Tuple))]
        plain = made[0].args if isinstance(made[0], ast.Call) and last_name(made[0].func) in ("randn", "rand") else []
        shape = shapes[0] if shapes else plain
        return LAST if len(shape) == 2 and self._is_one(shape[1], {}) else ""

    def of_layer(self, layer: ast.expr | None, told: Given | None = None, depth: int = 0) -> str:
        """The same of what a layer or a model returns."""
        if layer is None or depth > _DEEPEST:
            return ""
        if isinstance(layer, (ast.Name, ast.Attribute)):
            return self._of_named(layer, told, depth)
        if not isinstance(layer, ast.Call):
            return ""
        last = last_name(layer.func)
        if last in _WRAPPERS:
            owner = layer.func.value if isinstance(layer.func, ast.Attribute) else None
            of_module = owner is None or dotted_name(owner, {}).partition(".")[0] in ("nn", "torch", "accelerator")
            return self.of_layer((layer.args[0] if layer.args else None) if of_module else owner, told, depth + 1)
        if last in self._code.classes:
            return self._of_class(self._code.classes[last], layer, told, depth)
        if last == "Sequential":
            return self.of_stack(layers_of(layer), told, depth)
        if last == "Model":
            return self.of_value(given(layer, 1, "outputs"), told, depth + 1)
        return self._of_plain(last, layer, told)

    def of_stack(self, layers: list[ast.expr], told: Given | None = None, depth: int = 0) -> str:
        """The same of layers in a row."""
        for layer in reversed(layers):
            name = last_name(layer.func) if isinstance(layer, ast.Call) else ""
            if not _KEEPING_LAYERS.fullmatch(name):
                return self.of_layer(layer, told, depth + 1)
        return ""

    def added_to(self, owner: ast.expr) -> list[ast.expr]:
        """The layers of all `owner.add(layer)`, in order."""
        name = dotted_name(owner, {})
        adds = [each for each in self._code.calls if last_name(each.func) == "add" and each.args]
        mine = [
            each for each in adds if isinstance(each.func, ast.Attribute) and dotted_name(each.func.value, {}) == name
        ]
        return [each.args[0] for each in sorted(mine, key=lambda each: each.lineno)]

    def _of_named(self, name: ast.expr, told: Given | None, depth: int) -> str:
        dotted = dotted_name(name, {})
        heads = [
            each for key, values in self._code.assigned.items() for each in values
            if key.startswith(f"{dotted}.") and _HEAD.fullmatch(key.removeprefix(f"{dotted}."))
        ] if dotted != "self" else []  # fmt: skip
        values = [each.value for each in heads] or self._code.objects(name)
        if values and all(isinstance(each, ast.Call) and not each.args and last_name(each.func) == "Sequential"
                          for each in values):  # fmt: skip
            return self.of_stack(self.added_to(name), told, depth + 1)
        owner = self._code.class_of(name)
        if dotted == "self" and owner is not None:
            return self._of_class(owner, ast.Call(name, [], []), told, depth)
        if not values and not self._whole and LONE.fullmatch(dotted):
            return self._of_last(self._code.calls, told)
        found = {self.of_layer(each, told, depth + 1) for each in values}
        return found.pop() if len(found) == 1 else ""

    def _of_last(self, calls: list[ast.Call], told: Given | None) -> str:
        """Of the last layer that an excerpt shows."""
        layers = [each for each in calls if last_name(each.func) in {*_LINEAR, "Conv2d", "Conv3d"}]
        last = max(layers, key=lambda each: (each.lineno, each.col_offset), default=None)
        return "" if last is None else self._of_plain(last_name(last.func), last, told)

    def _of_plain(self, last: str, layer: ast.Call, told: Given | None) -> str:
        """Of a layer of a library, or of a model that is told how many outputs it has."""
        if last in _LINEAR:
            place = 1 if last == "Linear" else 0
            return LAST if self._is_one(given(layer, place, "out_features", "units"), told) else ""
        if last in ("Conv1d", "Conv2d", "Conv3d"):
            return CHANNELS if self._is_one(given(layer, 1, "out_channels"), told) else ""
        if not _MAKES.fullmatch(last) or _WITH_BACKGROUND.search(ast.unparse(layer.func)):
            return ""
        counts = [each.value for each in layer.keywords if each.arg in _COUNTS]
        return EITHER if counts and all(self._is_one(each, told) for each in counts) else ""

    def _of_class(self, owner: ast.ClassDef, call: ast.Call, told: Given | None, depth: int) -> str:
        """Of an own class: what all its `forward` returns."""
        methods = {each.name: each for each in owner.body if isinstance(each, FUNCTIONS)}
        forward = methods.get("forward") or methods.get("call") or methods.get("__call__")
        inside = _bound(methods.get("__init__"), call, told or {})
        if forward is None:
            inner = [each for each in ast.walk(owner) if isinstance(each, ast.Call)]
            return "" if self._whole else self._of_last(inner, inside)
        returns = [each for each in ast.walk(forward) if isinstance(each, ast.Return)]
        found = {self.of_value(each.value, inside, depth + 1) for each in returns}
        return found.pop() if len(found) == 1 else ""

    def _is_one(self, value: ast.expr | None, told: Given | None) -> bool:
        if isinstance(value, ast.Name):
            told = self._told_around(value) if told is None else told
            value = told.get(value.id) or self._code.value_of(value, value)
        elif isinstance(value, ast.Attribute):
            held = self._code.objects(value)
            return len(held) == 1 and not isinstance(held[0], ast.Attribute) and self._is_one(held[0], told)
        return whole_number(value) == 1

    def _told_around(self, name: ast.Name) -> Given:
        """What the class around a name is made with, if it is made in one place at most."""
        owner = self._code.class_of(name)
        if owner is None:
            return {}
        init = next((each for each in owner.body if isinstance(each, FUNCTIONS) and each.name == "__init__"), None)
        made = [each for each in self._code.calls if last_name(each.func) == owner.name]
        return _bound(init, made[0] if made else ast.Call(name, [], []), {}) if len(made) < 2 else {}


def layers_of(stack: ast.Call) -> list[ast.expr]:
    """The layers of `Sequential(a, b)` and `Sequential([a, b])`."""
    first = stack.args[0] if stack.args else None
    return list(first.elts) if isinstance(first, (ast.List, ast.Tuple)) else list(stack.args)


def _bound(init: ast.AST | None, call: ast.Call, outside: Given) -> dict[str, ast.expr]:
    """The arguments of a class by parameter, defaults included."""
    if not isinstance(init, FUNCTIONS):
        return {}
    names = [each.arg for each in init.args.args]
    found: dict[str, ast.expr] = dict(zip(reversed(names), reversed(init.args.defaults), strict=False))
    found |= dict(zip(names[1:], call.args, strict=False))
    found |= {each.arg: each.value for each in call.keywords if each.arg}
    return {
        name: outside.get(value.id, value) if isinstance(value, ast.Name) else value for name, value in found.items()
    }
