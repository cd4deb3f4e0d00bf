"""Models with one output: a softmax over it is 1, its cross entropy is 0, class 1 lies outside, its argmax is 0."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.course.following import FUNCTIONS, Course
from stayfinite.readers.configs.course.picking import parts_in
from stayfinite.readers.configs.course.terms import Term, all_from, constant, leaves, number
from stayfinite.readers.configs.judges.fault import Fault, seen_at

LAST, CHANNELS, EITHER = "last", "channels", "either"
"""Where the one output is: in the last dimension, the second one, or in one of them."""
_DEEPEST = 12
_FIX = "one output: sigmoid with binary cross entropy (BCEWithLogitsLoss); or one output for each class"
_KEEPS = frozenset({
    "to", "cuda", "cpu", "float", "double", "half", "contiguous", "detach", "numpy", "clone", "relu", "gelu", "tanh",
    "sigmoid", "dropout", "softmax", "log_softmax", "leaky_relu", "elu",
})  # fmt: skip
"""Functions and methods that leave the number of outputs as it is."""
_KEEPING_LAYERS = lazy_regex(
    r"\w*(?:ReLU|Dropout\w*|Sigmoid|Tanh|GELU|ELU|SiLU|Softplus|Identity|Activation|Softmax|BatchNorm\w*|LayerNorm)"
)
_LINEAR = {"Linear": 1, "LazyLinear": 0, "Dense": 0, "dense": 0, "layer_dense": 0}
_WRAPPERS = frozenset({"to", "cuda", "cpu", "train", "eval", "float", "get_peft_model", "prepare_model"})
_COUNTS = ("num_labels", "num_classes", "n_classes", "n_outputs", "module__n_outputs", "num_outputs", "out_features",
           "n_labels")  # fmt: skip
_MAKES = lazy_regex(r"[A-Z]\w*|from_pretrained|from_config|create_model|(?:\w*net|vit|bert)\w*")
_WITH_BACKGROUND = lazy_regex(r"rcnn|yolo|detect|ssd|retina|fcos|detr|mask|box|anchor|config|metric|loss", 2)
_LONE = lazy_regex(r"(?:self\.)?(?:\w*model|net|network|clf|classifier|cnn|mlp|module)")
"""Names of the one model of a program."""
_HEAD = lazy_regex(r"fc|classifier|head|heads|output|out|score|last_linear|linear|_fc|heads\.head|out_proj")
_SCORES = lazy_regex(r"att|score|weight|gate|pool|align|query|energy|mix|route|alpha|scor", 2)
_CHOOSES = lazy_regex(r"class|label|output|\bout_|\bn_|num_|binary|multi|task|regress|dim|shape|size|len\(", 2)
_OTHERWISE = lazy_regex(r"squeeze|regress|round|sigmoid|[<>]=? ?(?:0|threshold)|\.shape\[|num_labels == 1", 2)
_METRIC = lazy_regex(r"\w*(?:metric|acc|score|eval|top1|test|valid)\w*", 2)
_BINARY = lazy_regex(r"BCE\w*Loss|binary_cross_entropy\w*")
_TAKES_ARGMAX = frozenset({"NeuralNetClassifier", "EEGClassifier"})
"""skorch's classifiers for several outputs."""
_IN_TWO_LIBRARIES = frozenset({
    "softmax_cross_entropy_with_logits", "softmax_cross_entropy_with_logits_v2", "softmax_cross_entropy",
    "sparse_softmax_cross_entropy_with_logits", "softmax_cross_entropy_with_integer_labels",
})  # fmt: skip


def one_output(course: Course, *, whole: bool) -> Iterator[Fault]:
    """Every fault of models with one output; ``whole`` where nothing of the program was left out.

    A label outside the classes explains more than a softmax over one of them does.
    """
    looks = _Outputs(course, whole=whole)
    outside = [*looks.compiled(), *looks.cross_entropies()]
    yield from outside
    if not any(each.cause == "label-out-of-range" for each in outside):
        yield from looks.softmaxes()
    yield from looks.argmaxes()


class _Outputs:
    def __init__(self, course: Course, *, whole: bool) -> None:
        self._course = course
        self._whole = whole
        self._added: dict[str, list[Term]] = {}
        for each in course.terms:
            if each.op == "call" and each.last == "add" and each.parts:
                self._added.setdefault(each.name.removesuffix(".add"), []).append(each.parts[0])

    # --- widths -------------------------------------------------------------------------------------------------

    def of_value(self, term: Term | None, depth: int = 0) -> str:
        """Where the one output of a value is; empty where it has several or nobody knows."""
        if term is None or depth > _DEEPEST:
            return ""
        if term.op == "either":
            return self._common([self.of_value(each, depth + 1) for each in term.parts])
        if term.op == "attribute" or (term.op == "index" and constant(term.parts[1]) == "logits"):
            return self.of_value(term.parts[0], depth + 1) if term.op == "index" or term.name == "logits" else ""
        if (term.op, term.name) == ("binary", "Add"):
            return self.of_value(term.parts[0], depth + 1)
        if (term.op, term.name) == ("binary", "MatMult") or (term.op == "call" and term.last == "matmul"):
            return _of_weights(term.parts[1]) if len(term.parts) > 1 else ""
        if term.op == "call" and term.last in ("dense", "fully_connected"):
            return LAST if number(term.given(1, "units", "num_outputs")) == 1 else ""
        if term.op == "applied":
            layer = term.parts[0]
            keeps = layer.op == "made" and _KEEPING_LAYERS.fullmatch(layer.last)
            return self.of_value(term.parts[1], depth + 1) if keeps and len(term.parts) > 1 else self.of_layer(layer)
        if term.op in ("call", "method") and term.last in _KEEPS and term.parts:
            return self.of_value(term.parts[0], depth + 1)
        model = term.op == "call" and not self._whole and _LONE.fullmatch(term.name)
        return self.of_layer(Term("library", term.name)) if model else ""

    def of_layer(self, layer: Term, depth: int = 0) -> str:
        """The same of what a layer or a model returns."""
        if depth > _DEEPEST:
            return ""
        if layer.op == "either":
            return self._common([self.of_layer(each, depth + 1) for each in layer.parts])
        if layer.op == "library":
            return self._of_unknown(layer, depth)
        if layer.op == "instance":
            return self._of_instance(layer, depth)
        if layer.op not in ("made", "call", "method"):
            return ""
        heads = [each for name, each in layer.attributes.items() if _HEAD.fullmatch(str(name))]
        if heads:
            return self._common([self.of_layer(each, depth + 1) for each in heads])
        last = layer.last
        if last in _WRAPPERS and layer.parts:
            return self.of_layer(layer.parts[0], depth + 1)
        if last == "Sequential":
            return self._of_stack(parts_in(layer), depth)
        if last == "Model":
            return self.of_value(layer.given(1, "outputs"), depth + 1)
        if last in _LINEAR:
            return LAST if number(layer.given(_LINEAR[last], "out_features", "units")) == 1 else ""
        if last in ("Conv1d", "Conv2d", "Conv3d"):
            return CHANNELS if number(layer.given(1, "out_channels")) == 1 else ""
        if not _MAKES.fullmatch(last) or _WITH_BACKGROUND.search(layer.name):
            return ""
        counts = [layer.keywords[each] for each in _COUNTS if each in layer.keywords]
        return EITHER if counts and all(number(each) == 1 for each in counts) else ""

    def _of_stack(self, layers: list[Term], depth: int = 0) -> str:
        for layer in reversed(layers):
            if not _KEEPING_LAYERS.fullmatch(layer.last):
                return self.of_layer(layer, depth + 1)
        return ""

    def _of_instance(self, model: Term, depth: int) -> str:
        """What all ways through its `forward` return."""
        methods = {each.name: each for each in model.data.node.body if isinstance(each, FUNCTIONS)}
        forward = methods.get("forward") or methods.get("call") or methods.get("__call__")
        if forward is not None:
            return self._common([self.of_value(each, depth + 1) for each in self._course.returned.get(forward, ())])
        inner = {id(each) for each in ast.walk(model.data.node)}
        return "" if self._whole else self._of_last([each for each in self._course.terms if id(each.node) in inner])

    def _of_unknown(self, layer: Term, depth: int) -> str:
        """Of a model that is made elsewhere: by what is added to it; in an excerpt, by the last layer in sight."""
        if layer.name in self._added:
            return self._of_stack(self._added[layer.name], depth)
        return self._of_last(self._course.terms) if not self._whole and _LONE.fullmatch(layer.name) else ""

    def _of_last(self, terms: list[Term]) -> str:
        layers = [each for each in terms if each.op == "made" and each.last in {*_LINEAR, "Conv2d", "Conv3d"}]
        last = max(layers, key=lambda each: (each.line, each.node.col_offset), default=None)
        return "" if last is None else self.of_layer(last)

    def _common(self, ways: list[str]) -> str:
        return ways[0] if len(set(ways)) == 1 else ""

    # --- faults -------------------------------------------------------------------------------------------------

    def softmaxes(self) -> Iterator[Fault]:
        """`softmax(head(x), dim=-1)`, `Sequential(Linear(8, 1), Softmax())`, `Dense(1, activation="softmax")`."""
        for term in self._course.terms:
            text = "a softmax over one output is always 1"
            if term.op == "applied" and (axis := _softmax_axis(term.parts[0])) and len(term.parts) > 1:
                told = self._is_over(axis, self.of_value(term.parts[1]), term)
            elif term.op in ("call", "method") and term.last in ("softmax", "log_softmax") and term.parts:
                axis = _axis_of(term.given(0 if term.op == "method" else 1, "dim", "axis"), otherwise=1)
                told = self._is_over(axis, self.of_value(term.parts[0]), term)
            elif term.last.lower().endswith("dense") and _is_word(term.keywords.get("activation"), "softmax"):
                told = LAST in (self.of_layer(term), self.of_value(term))
                text = "a softmax over one unit is always 1"
            else:
                continue
            if told and not _CHOOSES.search(self._course.tests_around(term.node)):
                yield seen_at("softmax-axis", text, term.node, fix=_FIX)
        stacks = [parts_in(each) for each in self._course.terms if each.op == "made" and each.last == "Sequential"]
        for layers in [*stacks, *self._added.values()]:
            for before, layer in pairwise(layers):
                axis = _softmax_axis(layer)
                if axis and self._is_over(axis, self.of_layer(before), layer):
                    text = f"a softmax behind {before.shown} is always 1"
                    yield seen_at("softmax-axis", text, layer.node, fix=_FIX)

    def _is_over(self, axis: int, where: str, at: Term) -> bool:
        """Whether an axis is that of the one output; in three dimensions, the second one may be time."""
        if not where or axis not in (1, -1) or (axis == -1 and where != LAST):
            return False
        return axis == -1 or not self._may_be_scores(at)

    def _may_be_scores(self, at: Term) -> bool:
        """Whether a softmax over the second dimension may weigh places of a sequence against each other."""
        around = list(self._course.around(at.node))
        statement = next((each for each in around if isinstance(each, ast.stmt)), None)
        owner = next((each for each in around if isinstance(each, ast.ClassDef)), None)
        scope = next((each for each in around if isinstance(each, FUNCTIONS)), None)
        code = ast.unparse(at.node)
        named = [code, *(each.name for each in (owner, scope) if each is not None)]
        if isinstance(statement, ast.Assign):
            named += [ast.unparse(each) for each in statement.targets]
        returned = isinstance(statement, ast.Return) or (owner is None and "self." not in code)
        return any(map(_SCORES.search, named)) or not (returned or _softmax_axis(at))

    def cross_entropies(self) -> Iterator[Fault]:
        """A cross entropy of one logit is 0 for class 0, and has no other class."""
        for term in self._course.terms:
            layer = term.parts[0] if term.op == "applied" else term
            by_layer = layer is not term and layer.op == "made" and layer.last == "CrossEntropyLoss"
            if by_layer or (term.op == "call" and term.last == "cross_entropy"):
                if self.of_value(term.given(0, "input", "logits")) and not self._is_chosen(term, layer):
                    yield _lost(term, term.given(1, "target", "labels"))
            elif term.op == "call" and term.last in _IN_TWO_LIBRARIES:
                logits = term.keywords.get("logits") or term.given(1 if "_with_logits" in term.last else 0)
                if self.of_value(logits) and not self._is_chosen(term, layer):
                    numbered = "sparse" in term.last or "integer" in term.last
                    text = "labels of several classes, and one output" if numbered else _ALWAYS_0
                    cause = "label-out-of-range" if numbered else "softmax-axis"
                    yield seen_at(cause, text, term.node, fix="" if numbered else _FIX)
            by_one = term.op == "made" and term.parts and _is_word(term.keywords.get("criterion"), "CrossEntropyLoss")
            if by_one and (self.of_layer(term.parts[0]) or self.of_layer(term)):
                yield seen_at("softmax-axis", _ALWAYS_0, term.node, sure=self._whole, fix=_FIX)

    def _is_chosen(self, *terms: Term) -> bool:
        """Whether the loss is chosen by the number of outputs."""
        return any(_CHOOSES.search(self._course.tests_around(each.node)) for each in terms)

    def compiled(self) -> Iterator[Fault]:
        """Keras: `model.compile(loss="sparse_categorical_crossentropy")` of a model with one unit."""
        for term in self._course.terms:
            if term.last != "compile" or term.op not in ("call", "method"):
                continue
            owner = term.parts[0] if term.op == "method" else Term("library", term.name.removesuffix(".compile"))
            loss = term.given(1, "loss")
            if loss is None or not self.of_layer(owner):
                continue
            if _is_word(loss, "sparse_categorical_crossentropy", "SparseCategoricalCrossentropy"):
                text = "labels of several classes, and the last layer has one unit: class 0"
                yield seen_at("label-out-of-range", text, term.node)
            elif _is_word(loss, "categorical_crossentropy", "CategoricalCrossentropy"):
                yield seen_at("softmax-axis", "categorical cross entropy of one unit is always 0", term.node, fix=_FIX)

    def argmaxes(self) -> Iterator[Fault]:
        """`outputs.argmax(1)` of outputs with one column; skorch's `predict`, whatever the criterion."""
        for term in self._course.terms:
            if term.op in ("call", "method") and term.last in ("argmax", "max") and term.parts:
                axis = _axis_of(term.given(0 if term.op == "method" else 1, "dim", "axis"), otherwise=0)
                value = term.parts[0]
                if axis not in (1, -1) or _CHOOSES.search(self._course.tests_around(term.node)):
                    continue
                if self.of_value(value) or self._is_squeezed(value) or self._is_handed_over(value, term):
                    yield seen_at("metric-stuck", "an argmax over one column is always 0", term.node)
            elif term.last in _TAKES_ARGMAX and term.parts and self.of_layer(term.parts[0]):
                text = "predict() takes the argmax over one output, which is always 0"
                if _is_word(term.keywords.get("criterion"), "BCEWithLogitsLoss"):
                    yield seen_at("metric-stuck", text, term.node, sure=False)

    def _is_squeezed(self, value: Term) -> bool:
        """Whether a binary loss gets the same values without their only column."""
        for term in self._course.terms:
            by_name = term.op == "call" and _BINARY.fullmatch(term.last)
            by_layer = term.op == "applied" and _BINARY.fullmatch(term.parts[0].last)
            if not (by_name or by_layer) or _CHOOSES.search(self._course.tests_around(term.node)):
                continue
            given = term.given(0, "input")
            column = given is not None and given.parts and (
                (given.op == "method" and given.last == "squeeze") or (given.op == "index" and "[:, 0]" in given.shown)
            )  # fmt: skip
            inner = given.parts[0] if given is not None and column else None
            if inner is not None and inner.op == "method" and inner.last == "float":
                inner = inner.parts[0]
            if inner is value:
                return True
        return False

    def _is_handed_over(self, value: Term, at: Term) -> bool:
        """Whether a metric gets the outputs of the program's only model, which has one."""
        scope = next((each for each in self._course.around(at.node) if isinstance(each, FUNCTIONS)), None)
        if scope is None or not _METRIC.fullmatch(scope.name) or _OTHERWISE.search(ast.unparse(scope)):
            return False
        given = any(each.op == "unknown" and each.node is scope for each in leaves(value))
        models = [each for each in self._course.terms if _LONE.fullmatch(self._course.titles.get(id(each), ""))]
        made = [each for each in models if each.last[:1].isupper() or each.last in ("from_pretrained", "create_model")]
        return given and bool(made) and all(map(self.of_layer, made))


_ALWAYS_0 = "cross entropy of one output is always 0"


def _lost(call: Term, target: Term | None) -> Fault:
    if target is not None and any(map(_holds_one, all_from([target]))):
        text = "labels up to 1, and the model has one output: class 0"
        return seen_at("label-out-of-range", text, call.node)
    return seen_at("softmax-axis", _ALWAYS_0, call.node, fix=_FIX)


def _holds_one(made: Term) -> bool:
    """Whether labels are written down, and class 1 or more is among them."""
    if made.op == "call" and made.last == "randint":
        ends = [end for each in made.parts[:2] if (end := number(each)) is not None]
        return bool(ends) and ends[-1] >= 2
    listed = made.parts[0].parts if made.parts and made.parts[0].op == "row" else ()
    return made.last in ("tensor", "LongTensor", "array") and any((number(each) or 0.0) >= 1 for each in listed)


def _of_weights(weights: Term) -> str:
    """Of a product with a matrix that is made with its shape."""
    for each in all_from([weights]):
        plain = each.parts if each.op == "call" and each.last in ("randn", "rand") else ()
        shape = each.parts if each.op == "row" else plain
        if shape:
            return LAST if len(shape) == 2 and number(shape[1]) == 1 else ""
    return ""


def _softmax_axis(layer: Term) -> int:
    """The axis of a softmax layer; 0 of others. Where none is given, torch takes the second one of two."""
    if layer.op != "made" or layer.last not in ("Softmax", "LogSoftmax", "Activation"):
        return 0
    if layer.last == "Activation":
        return -1 if layer.parts and _is_word(layer.parts[0], "softmax") else 0
    of_torch = layer.name.partition(".")[0] in ("nn", "torch", "Softmax", "LogSoftmax")
    return _axis_of(layer.given(0, "dim", "axis"), otherwise=1 if of_torch else -1)


def _axis_of(given: Term | None, *, otherwise: int) -> int:
    found = constant(given)
    return otherwise if given is None else found if isinstance(found, int) and not isinstance(found, bool) else 0


def _is_word(value: Term | None, *words: str) -> bool:
    """Whether a value is one of these words, a function or a class of that name."""
    return value is not None and (constant(value) in words if value.op == "const" else value.last in words)
