"""Initial weights that cannot work: far too large for the width, or the scales of normalization set to zero."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.mechanisms.code import Code, Mechanism, given, last_name, whole_number

GAIN = 4.0
"""Growth of a layer from which three layers exceed a factor of 20, with ReLU's loss of half the variance."""
_NARROWEST = 64
_FEWEST_LAYERS = 3
_STD = lazy_regex(r"weight_scale|init(?:ial)?(?:izer)?_(?:std|range|scale)|w_scale|weight_std|init_stddev")
_WIDTH = lazy_regex(r"(?:d_|n_)?(?:hidden|model|width|units|embd?)(?:_?(?:size|dims?|units|width|layers))?")
_DEPTH = lazy_regex(r"(?:self\.)?(?:n|num|n_hidden|num_hidden)_?layers?|depth|n_blocks")
_OTHER = lazy_regex(r"embed|\bnorm(?!al)|bias|pos|token|cls|query|noise|latent|ln_|bn\d?|gamma|sqrt|fan_in|fan_out", 2)
_WEIGHT = lazy_regex(r"(?:^|\.|\[')(?:W|[Ww]eights?)(?:_?\d+)?(?:$|')|\['W' \+")
_NORM = lazy_regex(r"(?:Batch|Layer|Group|RMS|Instance)Norm\w*|resnet\d+\w*|TransformerEncoder\w*", 2)
_INIT = lazy_regex(r"\w*init\w*|\w*reset\w*", 2)
_KEEP = 'choose biases by name (name.endswith("bias")); the weights of normalization layers start at 1'
_ONES = lazy_regex(r"ones_\(|fill_\(1|constant_\([^)]*, 1(?:\.0)?\)")


def too_large(code: Code) -> Iterator[Mechanism]:
    """A standard deviation that makes each of several wide layers multiply the size of its input."""
    widths = [each for each in _widths(code) if each >= _NARROWEST]
    if not widths or max(len(widths), *_depths(code)) < _FEWEST_LAYERS:
        return
    width = sorted(widths)[len(widths) // 2]
    for text, std, node in _deviations(code):
        gain = std * math.sqrt(width)
        if gain >= GAIN:
            shown = f"weights of standard deviation {std:g} over {width} inputs: {gain:.0f} times larger at each layer"
            yield Mechanism("bad-init", f"{shown} ({text})", node, sure=False, when="exploded")


def zeroed_scales(code: Code) -> Iterator[Mechanism]:
    """`if p.dim() == 1: p.zero_()`: not only biases have one dimension, the scales of normalization do, too."""
    for node in code.nodes:
        if isinstance(node, ast.If) and _zeroes(_of_one_dimension(node)):
            loop = next((each for each in code.around(node) if isinstance(each, ast.For)), None)
            of_all = loop is not None and "parameters()" in ast.unparse(loop.iter)
            scope = getattr(code.scope_of(node), "name", "")
            initial = not scope or _INIT.fullmatch(scope) is not None or "init" in ast.unparse(node)
            if of_all and initial and not _excused(code, node) and not _ONES.search(code.text):
                words = "all parameters of one dimension become 0, the scales of normalization layers, too"
                yield Mechanism("bad-init", words, node, _NORM.search(code.text) is not None, fix=_KEEP)


def zero_weights(code: Code) -> Iterator[Mechanism]:
    """`parameters["W1"] = np.zeros((n, m))`: all units of a layer stay alike."""
    for node in code.nodes:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        sizes = (
            node.value.args[0].elts
            if node.value.args and isinstance(node.value.args[0], ast.Tuple)
            else node.value.args
        )
        wide = len(sizes) == 2 and all(whole_number(each) != 1 for each in sizes)
        if last_name(node.value.func) == "zeros" and wide and _WEIGHT.search(ast.unparse(node.targets[0])):
            words = "weights that are all 0 give every unit of a layer the same gradient"
            yield Mechanism("bad-init", words, node, sure=False, when="still")


def _widths(code: Code) -> Iterator[int]:
    """The inputs of each linear layer, and the hidden sizes that are told."""
    for call in code.calls:
        number = whole_number(given(call, 0, "in_features")) if last_name(call.func) == "Linear" else None
        if number is not None:
            yield number
        if any(each.arg and _STD.fullmatch(each.arg) for each in call.keywords):
            yield from (number for each in call.args for number in _numbers(each))
        for each in call.keywords:
            if each.arg and _WIDTH.fullmatch(each.arg):
                yield from _numbers(each.value)
    for name, values in code.assigned.items():
        if _WIDTH.fullmatch(name.rpartition(".")[2]):
            for value, _ in values:
                yield from _numbers(value)


def _depths(code: Code) -> list[int]:
    """The numbers of layers that are told."""
    told = [each.value for call in code.calls for each in call.keywords if each.arg and _DEPTH.fullmatch(each.arg)]
    told += [
        each.value for name, values in code.assigned.items() if _DEPTH.fullmatch(name) for each in values if each.value
    ]
    return [whole_number(each) or 0 for each in told] + [0, 0]


def _numbers(value: ast.expr | None) -> Iterator[int]:
    """`100`, `[100, 100, 100]`, `[100] * 5`."""
    number = whole_number(value)
    if number is not None:
        yield number
    elif isinstance(value, (ast.List, ast.Tuple)):
        yield from (number for each in value.elts if (number := whole_number(each)) is not None)
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and isinstance(value.left, ast.List):
        yield from list(_numbers(value.left)) * min(whole_number(value.right) or 1, 100)


def _deviations(code: Code) -> Iterator[tuple[str, float, ast.expr | ast.stmt]]:
    """``(code, std, node)`` of each spread of initial weights."""
    for name, values in code.assigned.items():
        for value, at in values:
            std = _number(value)
            if std is not None and _STD.fullmatch(name.rpartition(".")[2]) and isinstance(at, ast.stmt):
                yield f"{name} = {std:g}", std, at
    for call in code.calls:
        shown = ast.unparse(call)
        for each in call.keywords:
            std = _number(each.value)
            if std is not None and each.arg and _STD.fullmatch(each.arg):
                yield f"{each.arg}={std:g}", std, call
        around = code.tests_around(call)
        spared = _OTHER.search(shown) or (_OTHER.search(around) and "Linear" not in around)
        if last_name(call.func) == "normal_" and not spared:
            method = isinstance(call.func, ast.Attribute) and not ast.unparse(call.func.value).endswith("init")
            std = _number(given(call, 1 if method else 2, "std"))
            if std is not None or not (call.keywords or call.args[1:]):
                yield shown[:80], 1.0 if std is None else std, call


def _number(value: ast.expr | None) -> float | None:
    number = value.value if isinstance(value, ast.Constant) else None
    return float(number) if isinstance(number, (int, float)) and not isinstance(number, bool) else None


def _of_one_dimension(node: ast.If) -> list[ast.stmt]:
    """What is done under `p.dim() == 1`, `len(p.shape) < 2`, or where `p.dim() > 1` is not so."""
    test = node.test
    if not isinstance(test, ast.Compare) or not _COUNTS.search(ast.unparse(test.left)):
        return []
    asked = (type(test.ops[0]), whole_number(test.comparators[0]))
    if asked in ((ast.Eq, 1), (ast.LtE, 1), (ast.Lt, 2)):
        return node.body
    return node.orelse if asked in ((ast.Gt, 1), (ast.GtE, 2), (ast.NotEq, 1)) else []


_COUNTS = lazy_regex(r"\.dim\(\)|\.ndim|ndimension\(\)|len\([\w.]*(?:size\(\)|shape|size)\)")
_TO_ZERO = lazy_regex(
    r"\.zero_\(\)|zeros_\(|fill_\(0(?:\.0)?\)|constant_\(\w+(?:\.data)?, (?:val=)?0(?:\.0)?\)|zeros_like\("
)


def _zeroes(body: list[ast.stmt]) -> bool:
    first = ast.unparse(body[0]) if body and not isinstance(body[0], ast.If) else ""
    return _TO_ZERO.search(first) is not None and "grad" not in first


def _excused(code: Code, node: ast.If) -> bool:
    """Whether names or kinds of layers are looked at besides."""
    around = " ".join(ast.unparse(each.test) for each in code.around(node) if isinstance(each, ast.If))
    return any(word in f"{around} {ast.unparse(node.test)}" for word in ("isinstance", "name", "norm", "bias"))
