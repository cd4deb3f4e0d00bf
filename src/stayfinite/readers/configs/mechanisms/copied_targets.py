"""Models that are given what they have to predict: cross entropy between `model(x)` and the same `x`, not shifted."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.mechanisms.code import (
    FUNCTIONS,
    Code,
    Mechanism,
    given,
    last_name,
    name_of,
    parameters_of,
)
from stayfinite.readers.configs.program.names import dotted_name

_RESHAPES = frozenset({
    "view", "reshape", "contiguous", "flatten", "transpose", "permute", "to", "cuda", "float", "long", "clone",
    "detach", "mT", "rearrange", "copy", "squeeze",
})  # fmt: skip
"""Methods that keep every value in its order."""
_MEANT = lazy_regex(
    r"auto_?encod|vae|elbo|recon|denois|diffus|corrupt|noise|mask(?!_?fill|ed_fill|\b)|\bmlm\b|codebook|quantiz|"
    r"bottleneck|copy_task|identity|bidirectional|\bbert", 2
)  # fmt: skip
"""Words of programs that are to give back what they get."""
_SHIFTS = lazy_regex(r"shift|roll\(|F\.pad\(|:, :-1|\.\.\., :-1|\[:, 1:|\[1:|\[:-1|\bbos|start_token|\bsos", 2)
_FIX = "shift by one: compare logits[:, :-1] with ids[:, 1:], or take y = data[i + 1:i + 1 + T] for x = data[i:i + T]"
_INPUTS = ("input_ids", "x", "idx", "ids", "tokens", "inputs", "input", "src")
_LABELS = lazy_regex(r"labels?|targets?|tgt|y")


def copied_targets(code: Code) -> Iterator[Mechanism]:
    """Every cross entropy of a model's answer to its own target."""
    for call in code.calls:
        logits, target = _compared(code, call)
        if logits is None or target is None:
            continue
        if _MEANT.search(code.text):
            return
        answer = _origin(code, logits)
        if isinstance(answer, ast.Call) and _is_a_model(answer) and not _shifts_inside(code, answer):
            asked = _origin(code, _asked(answer))
            if asked is not None and _same(asked, _origin(code, target)) and not _is_changed(code, asked, target):
                text = f"{ast.unparse(answer)[:60]} is compared with its own input"
                yield Mechanism("target-out-of-step", text, call, sure=_is_a_sequence(logits), fix=_FIX)
        elif _embeds_target(code, call, target):
            text = "the labels are embedded as inputs, and nothing shifts them"
            yield Mechanism("target-out-of-step", text, call, sure=False, fix=_FIX)
        elif _takes_both(code, call, target):
            text = "the labels are a copy of the inputs, and nothing shifts them"
            yield Mechanism("target-out-of-step", text, call, fix=_FIX)


def same_windows(code: Code) -> Iterator[Mechanism]:
    """`x = data[i:i + T]` and `y = data[i:i + T]`: the targets are cut out of the data where the inputs are."""
    for name, values in code.assigned.items():
        for value, at in values if name in _WINDOWS else ():
            cut = value is not None and any(isinstance(each, ast.Slice) for each in ast.walk(value))
            others = [each for other in _WINDOWS[name] for each in code.assigned.get(other, ()) if name in _WINDOWS]
            beside = [each for each in others if each.value and code.scope_of(each.at) is code.scope_of(at)]
            alike = cut and value and any(ast.dump(each.value) == ast.dump(value) for each in beside if each.value)
            if alike and isinstance(at, ast.stmt) and _is_a_language(code):
                yield Mechanism("target-out-of-step", "the targets are the inputs, not shifted", at, fix=_FIX)


_WINDOWS = {"y": ("x",), "yb": ("xb",), "targets": ("inputs", "x"), "target": ("input", "x"), "labels": ("inputs", "x")}
"""Names of targets, and of the inputs beside them."""


def _is_a_language(code: Code) -> bool:
    """Whether the next token is predicted: a cross entropy, and neither a shift nor a gap to be filled."""
    loss = any(name_of(each) in ("cross_entropy", "CrossEntropyLoss") for each in code.calls)
    return loss and not (_MEANT.search(code.text) or _SHIFTS.search(code.text))


def _compared(code: Code, call: ast.Call) -> tuple[ast.expr | None, ast.expr | None]:
    """The two sides of a cross entropy."""
    function = call.func
    made = [] if isinstance(function, ast.Call) else code.objects(function)
    by_class = [each for each in (function, *made) if isinstance(each, ast.Call)]
    if last_name(function) != "cross_entropy" and not (
        by_class and all(last_name(each.func) == "CrossEntropyLoss" for each in by_class)
    ):
        return None, None
    return given(call, 0, "input"), given(call, 1, "target")


def _origin(code: Code, value: ast.expr | None) -> ast.expr | None:
    """What a value was before it was reshaped, copied and named anew."""
    for _ in range(12):
        if isinstance(value, ast.Attribute) and value.attr == "logits":
            value = value.value
        elif isinstance(value, ast.Call) and last_name(value.func) in _RESHAPES:
            method = isinstance(value.func, ast.Attribute) and dotted_name(value.func.value, {}) not in ("torch", "F")
            value = value.func.value if method and isinstance(value.func, ast.Attribute) else given(value, 0, "input")
        elif isinstance(value, ast.Name) and (held := code.value_of(value, value)) is not None:
            if isinstance(held, ast.Call) and not (last_name(held.func) in _RESHAPES or _is_a_model(held)):
                return value
            if not isinstance(held, (ast.Name, ast.Call, ast.Attribute, ast.Subscript)):
                return value
            value = held
        else:
            return value
    return value


def _is_a_model(call: ast.Call) -> bool:
    """Whether a call asks a model: by a plain name, or `self.model`."""
    name = dotted_name(call.func, {}) if isinstance(call.func, (ast.Name, ast.Attribute)) else ""
    return _MODEL.fullmatch(name) is not None


_MODEL = lazy_regex(r"(?:self\.)?(?:\w*model|net|network|lm|gpt|transformer|rnn|lstm|decoder|m)")


def _asked(call: ast.Call) -> ast.expr | None:
    return given(call, 0, *_INPUTS)


def _same(one: ast.expr, other: ast.expr | None) -> bool:
    plain = isinstance(one, (ast.Name, ast.Subscript, ast.Attribute)) and not isinstance(one, ast.Constant)
    return plain and other is not None and ast.dump(one) == ast.dump(other)


def _is_changed(code: Code, asked: ast.expr, target: ast.expr) -> bool:
    """Whether places of the inputs or labels are written over: `ids[chosen] = MASK`; `-100` masks padding alone."""
    names = {each.id for value in (asked, target) for each in ast.walk(value) if isinstance(each, ast.Name)}
    for node in code.nodes:
        for each in node.targets if isinstance(node, ast.Assign) else ():
            written = isinstance(each, ast.Subscript) and dotted_name(each, {}) in names
            if written and isinstance(node, ast.Assign) and "-100" not in ast.unparse(node.value):
                return True
    return False


def _is_a_sequence(logits: ast.expr) -> bool:
    """Whether the logits of all places are laid out in one row."""
    return _IN_A_ROW.search(ast.unparse(logits)) is not None


_IN_A_ROW = lazy_regex(r"view\(-1|reshape\(-1|flatten|transpose|permute|mT\b|rearrange")


def _shifts_inside(code: Code, answer: ast.Call) -> bool:
    """Whether the model's own class shifts its input."""
    made = [each for each in code.objects(answer.func) if isinstance(each, ast.Call)]
    owners = [code.classes[last_name(each.func)] for each in made if last_name(each.func) in code.classes]
    return any(_SHIFTS.search(ast.unparse(each)) for each in owners or code.classes.values())


def _embeds_target(code: Code, call: ast.Call, target: ast.expr) -> bool:
    """Whether a `forward` looks the labels up in its embedding of inputs."""
    scope, label = code.scope_of(call), _origin(code, target)
    inside = code.class_of(scope)
    if not isinstance(scope, FUNCTIONS) or scope.name != "forward" or not isinstance(label, ast.Name) or inside is None:
        return False
    if label.id not in parameters_of(scope) or _SHIFTS.search(ast.unparse(inside)):
        return False
    for each in (node for node in ast.walk(scope) if isinstance(node, ast.Call) and node.args):
        made = code.objects(each.func)
        embeds = bool(made) and all(
            isinstance(value, ast.Call) and last_name(value.func) == "Embedding" for value in made
        )
        if embeds and _same(label, _origin(code, each.args[0])):
            return True
    return False


def _takes_both(code: Code, call: ast.Call, target: ast.expr) -> bool:
    """Whether a `forward` compares with labels that it gets, and those are given as a copy of the inputs."""
    scope = code.scope_of(call)
    label = _origin(code, target)
    if not isinstance(scope, FUNCTIONS) or scope.name != "forward" or not isinstance(label, ast.Name):
        return False
    own = label.id in parameters_of(scope) and _LABELS.fullmatch(label.id) is not None
    inside = code.class_of(scope)
    return own and inside is not None and not _SHIFTS.search(ast.unparse(inside)) and _copies(code, label.id)


def _copies(code: Code, label: str) -> bool:
    """Whether inputs are handed over as labels: `labels = input_ids.clone()`, `{"labels": ids, "input_ids": ids}`."""
    for node in code.nodes:
        if isinstance(node, ast.Dict):
            keys = [each.value if isinstance(each, ast.Constant) else "" for each in node.keys]
            told = dict(zip(keys, node.values, strict=True))
            inputs = next((told[each] for each in _INPUTS if each in told), None)
            if label in told and inputs is not None and _alike(code, inputs, told[label]):
                return True
        elif isinstance(node, ast.Call) and _is_a_model(node):
            labels = next((each.value for each in node.keywords if each.arg == label), None)
            asked = _asked(node)
            if labels is not None and asked is not None and _alike(code, asked, labels):
                return True
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            place, value = node.targets[0], _origin(code, node.value)
            if _key(place) == label and isinstance(value, ast.Subscript) and _key(value) in _INPUTS:
                return True
    return False


def _alike(code: Code, inputs: ast.expr, labels: ast.expr) -> bool:
    one, other = _origin(code, inputs), _origin(code, labels)
    return one is not None and _same(one, other) and not _is_changed(code, one, labels)


def _key(place: ast.Subscript) -> str:
    return str(place.slice.value) if isinstance(place.slice, ast.Constant) else ""
