"""Shapes of values, as far as the script says them: `(None, 1)` has any number of rows and one column."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stayfinite.readers.configs.course.terms import Term, constant, is_all, leaves, number

Shape = tuple[int | None, ...] | None
"""None: unknown. A size that is unknown is None."""
_DEEPEST = 60


class Shapes:
    """Answers for the values of one course."""

    def __init__(self) -> None:
        self._known: dict[int, Shape] = {}
        self._depth = 0

    def of(self, term: Term | None) -> Shape:
        """The shape of a value."""
        if term is None or self._depth > _DEEPEST:
            return None
        if id(term) not in self._known:
            self._depth += 1
            self._known[id(term)] = None
            self._known[id(term)] = self._find(term)
            self._depth -= 1
        return self._known[id(term)]

    def is_column(self, term: Term) -> bool:
        """Whether a batch of unknown rank has gone through `Linear(n, 1)`."""
        if term.op == "method" and term.name in _ELEMENTWISE and term.name not in ("numpy", "copy"):
            return self.is_column(term.parts[0])
        layer = term.parts[0] if term.op == "applied" and len(term.parts) == 2 else None
        if layer is None or layer.op != "made":
            return False
        if layer.last == "Linear":
            batched = any(each.op == "batch" for each in leaves(term.parts[1]))
            return _size(layer.given(1, "out_features")) == 1 and batched
        return _keeps(layer.last) and self.is_column(term.parts[1])

    def _attribute(self, term: Term) -> Shape:
        """The values of a column of a table."""
        owner = term.parts[0]
        column = owner.op == "index" and isinstance(constant(owner.parts[1]), str) and term.name == "values"
        return (None,) if column and any(each.name.startswith("pandas.") for each in leaves(owner)) else None

    def _find(self, term: Term) -> Shape:
        look = getattr(self, f"_{term.op}", None)
        return None if look is None else look(term)

    def _const(self, term: Term) -> Shape:
        return () if isinstance(term.data, (int, float)) else None

    def _each(self, term: Term) -> Shape:
        over = term.parts[0]
        if term.name in ("count", "row") or (over.op == "call" and over.last == "range"):
            return ()
        shape = self.of(over)
        return shape[1:] if shape else None

    def _row(self, term: Term) -> Shape:
        """A list of lists of numbers."""
        if term.data == "grown" or not term.parts:
            return None
        inner = {self.of(each) for each in term.parts}
        found = inner.pop() if len(inner) == 1 else None
        return None if found is None else (len(term.parts), *found)

    def _either(self, term: Term) -> Shape:
        shapes = {self.of(each) for each in term.parts}
        return shapes.pop() if len(shapes) == 1 else None

    def _set(self, term: Term) -> Shape:
        return self.of(term.parts[0])

    def _shuffled(self, term: Term) -> Shape:
        return self.of(term.parts[0])

    def _unary(self, term: Term) -> Shape:
        return self.of(term.parts[0])

    def _compare(self, term: Term) -> Shape:
        return broadcast([self.of(each) for each in term.parts])

    def _binary(self, term: Term) -> Shape:
        left, right = (self.of(each) for each in term.parts)
        if term.name != "MatMult":
            return broadcast([left, right])
        if left is None or right is None or not left or not right:
            return None
        return left[:-1] if len(right) == 1 else (*left[:-1], right[-1])

    def _batch(self, term: Term) -> Shape:
        shape = self.of(term.parts[0])
        if shape is None:
            return None
        return (None, *(shape if term.name == "items" else shape[1:]))

    def _index(self, term: Term) -> Shape:
        shape = self.of(term.parts[0])
        key = term.parts[1]
        if isinstance(constant(key), str) and _is_read(term.parts[0]):
            return (None,)
        keys = (
            list(key.parts)
            if key.op == "row" and getattr(key.node, "elts", None) is not None and _is_tuple(key)
            else [key]
        )
        if shape is None:
            return None
        left = list(shape)
        found: list[int | None] = []
        for each in keys:
            if each.op == "const" and each.data is None:
                found.append(1)
                continue
            if not left or (each.op == "const" and not isinstance(each.data, int)):
                return None
            size = left.pop(0)
            if each.op == "slice":
                found.append(_sliced(size, each))
            elif each.op == "const" or self.of(each) == ():
                continue
            else:
                chosen = self.of(each)
                if chosen is None or len(chosen) != 1:
                    return None
                found.append(None)
        return (*found, *left)

    def _part(self, term: Term) -> Shape:
        """Of `values, places = x.max(1)`, and what recurrent layers return."""
        owner = term.parts[0]
        if owner.op == "method" and owner.name in ("max", "min", "topk", "sort") and len(owner.parts) > 1:
            return self._reduced(owner) if owner.name in ("max", "min") else None
        if owner.op == "applied" and owner.parts[0].op == "made" and owner.parts[0].last in ("LSTM", "GRU", "RNN"):
            layer, shape = owner.parts[0], self.of(owner.parts[1])
            if shape is None or len(shape) != 3 or constant(layer.keywords.get("bidirectional")):
                return None
            width = _size(layer.given(1, "hidden_size"))
            first = constant(layer.keywords.get("batch_first")) is True
            rows = shape[0] if first else shape[1]
            if term.data == 0:
                return (shape[0], shape[1], width)
            return (None, rows, width) if layer.last != "LSTM" else None
        if owner.op == "part" and term.data in (0, 1) and owner.data == 1:
            state = Term("part", parts=owner.parts, data=1)
            inner = owner.parts[0]
            if inner.op == "applied" and inner.parts[0].last == "LSTM":
                gru = Term("made", "GRU", inner.parts[0].parts, inner.parts[0].keywords)
                return self._part(
                    Term("part", parts=(Term("applied", parts=(gru, *inner.parts[1:])),), data=state.data)
                )
        return None

    def _applied(self, term: Term) -> Shape:
        layer = term.parts[0]
        given = self.of(term.parts[1]) if len(term.parts) > 1 else None
        if layer.op != "made" or given is None:
            return None
        if layer.last == "Linear" and given:
            return (*given[:-1], _size(layer.given(1, "out_features")))
        if layer.last == "Embedding":
            return (*given, _size(layer.given(1, "embedding_dim")))
        if layer.last == "Flatten":
            return (given[0], None) if len(given) > 1 else None
        if layer.last in ("Conv1d", "Conv2d", "Conv3d") and len(given) == int(layer.last[4]) + 2:
            return (given[0], _size(layer.given(1, "out_channels")), *(None for _ in given[2:]))
        return given if _keeps(layer.last) else None

    def _call(self, term: Term) -> Shape:
        if term.last in _MAKE:
            return _written(term)
        if term.last in _LISTED:
            return (None,)
        first = term.parts[0] if term.parts else None
        if term.last == "randint" and not term.name.startswith("np"):
            sizes = term.given(2 if len(term.parts) > 2 else 1, "size")
            return _sizes(sizes.parts) if sizes is not None and sizes.op == "row" and sizes.data != "grown" else None
        if term.last in ("tensor", "FloatTensor", "LongTensor", "array", "as_tensor", "from_numpy", "asarray"):
            return self.of(first)
        if term.name in ("int", "float", "len"):
            return ()
        if term.last in _ELEMENTWISE or term.last.endswith("_like"):
            return self.of(first)
        if term.name.startswith("torch.") and term.last in _METHODS and first is not None:
            return self._method(term)
        return None

    def _method(self, term: Term) -> Shape:
        owner = term.parts[0]
        shape, name = self.of(owner), term.last
        if name in ("view", "reshape"):
            sizes = term.parts[1:]
            if len(sizes) == 1 and sizes[0].op == "row" and sizes[0].data != "grown":
                sizes = sizes[0].parts
            return (
                _sizes(sizes)
                if all(each.op in ("const", "call", "index", "binary", "method") for each in sizes)
                else None
            )
        if name in ("view_as", "reshape_as"):
            return self.of(term.parts[1])
        if name == "item":
            return ()
        if shape is None:
            return None
        if name == "squeeze":
            return self._squeezed(shape, term.parts[1:])
        if name == "unsqueeze":
            at = constant(term.parts[1]) if len(term.parts) > 1 else None
            if not isinstance(at, int):
                return None
            at = at + len(shape) + 1 if at < 0 else at
            return (*shape[:at], 1, *shape[at:])
        if name in ("argmax", "argmin", "sum", "mean", "amax", "amin", "std", "var", "any", "all", "norm", "prod"):
            return self._reduced(term)
        if name in ("t", "T"):
            return shape[::-1] if len(shape) < 3 else None
        if name == "flatten":
            return (None,) if len(term.parts) == 1 else None
        if name == "transpose":
            one, other = (constant(each) for each in (*term.parts[1:3], *(Term("unknown"),) * 2)[:2])
            if isinstance(one, int) and isinstance(other, int) and max(one, other) < len(shape):
                swapped = list(shape)
                swapped[one], swapped[other] = swapped[other], swapped[one]
                return tuple(swapped)
            return None
        return shape if name in _ELEMENTWISE or name.rstrip("_") in _ELEMENTWISE else None

    def _squeezed(self, shape: tuple[int | None, ...], given: tuple[Term, ...]) -> Shape:
        if not given:
            kept = tuple(each for each in shape if each != 1)
            return kept if None not in shape[1:] else None
        at = constant(given[0])
        if not isinstance(at, int) or not -len(shape) <= at < len(shape):
            return None
        at %= len(shape)
        return (*shape[:at], *shape[at + 1 :]) if shape[at] == 1 else shape if shape[at] else None

    def _reduced(self, term: Term) -> Shape:
        shape = self.of(term.parts[0])
        at = term.given(1 if term.op == "call" else 0, "dim", "axis")
        if term.last == "norm":
            at = term.keywords.get("dim")
        kept = term.keywords.get("keepdim") or term.given(2 if term.op == "call" else 1, "keepdim", "keepdims")
        if shape is None:
            return None
        if at is None:
            return ()
        dim, keeps = constant(at), False if kept is None else constant(kept)
        if not isinstance(dim, int) or not -len(shape) <= dim < len(shape) or keeps not in (True, False):
            return None
        dim %= len(shape)
        return (*shape[:dim], *((1,) if keeps else ()), *shape[dim + 1 :])


_MAKE = frozenset({"randn", "rand", "zeros", "ones", "empty", "full", "normal"})
_LISTED = frozenset({"arange", "linspace", "randperm", "permutation"})
_ELEMENTWISE = frozenset({
    "float", "double", "long", "int", "to", "cuda", "cpu", "clone", "detach", "contiguous", "relu", "sigmoid", "tanh",
    "softmax", "log_softmax", "exp", "log", "sqrt", "abs", "clamp", "dropout", "gelu", "elu", "leaky_relu", "sin",
    "cos", "numpy", "bool", "type", "square", "pow", "softplus", "sign", "round", "astype", "logsigmoid", "half",
    "silu", "requires_grad_", "normal_", "uniform_", "copy", "add", "sub", "mul", "div", "logical_not", "eq",
    "gt", "lt", "ge", "random_", "cumsum", "to_numpy",
})  # fmt: skip
_METHODS = _ELEMENTWISE | {
    "squeeze", "unsqueeze", "sum", "mean", "argmax", "std", "var", "transpose", "reshape", "norm",
}  # fmt: skip


_SAME_COLUMNS = frozenset({"sort_values", "reset_index", "dropna", "fillna", "drop_duplicates", "head", "tail", "copy"})


def _is_read(table: Term) -> bool:
    """Whether it is the table that pandas reads from a file with names of columns, or some of its rows."""
    while table.op == "method" and table.name in _SAME_COLUMNS:
        table = table.parts[0]
    plain = table.op == "call" and table.name in ("pandas.read_csv", "pandas.read_parquet")
    return plain and "header" not in table.keywords and "squeeze" not in table.keywords


def _keeps(name: str) -> bool:
    return name.endswith(
        ("ReLU", "Dropout", "Sigmoid", "Tanh", "GELU", "ELU", "SiLU", "Softplus", "Softmax", "Identity")
    ) or ("Norm" in name)


def broadcast(shapes: list[Shape]) -> Shape:
    """The shape of an operation on values of these shapes."""
    known = [each for each in shapes if each is not None]
    if len(known) < len(shapes):
        return None
    rank = max(map(len, known), default=0)
    padded = [(1,) * (rank - len(each)) + each for each in known]
    sizes: list[int | None] = []
    for column in zip(*padded, strict=True):
        others = [each for each in column if each != 1]
        sizes.append(1 if not others else next((each for each in others if each is not None), None))
    return tuple(sizes)


def crosses(one: Shape, other: Shape) -> bool:
    """Whether a column meets a row: each value of one is combined with each of the other."""
    if one is None or other is None or {len(one), len(other)} != {1, 2}:
        return False
    column, row = (one, other) if len(one) == 2 else (other, one)
    return column[1] == 1 and row[0] != 1 and column[0] != 1


def _size(term: Term | None) -> int | None:
    found = constant(term)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def _sizes(terms: Any) -> Shape:
    return tuple(_size(each) for each in terms)


def _written(term: Term) -> Shape:
    """`torch.randn(100, 3)`, `np.zeros((n, 4))`."""
    if term.last == "normal" or term.name.startswith("random."):
        return None
    sizes = term.parts
    if "size" in term.keywords:
        sizes = (term.keywords["size"],)
    if term.last == "full":
        sizes = sizes[:1]
    if len(sizes) == 1 and sizes[0].op == "row":
        sizes = sizes[0].parts if sizes[0].data != "grown" else (Term("starred"),)
    if len(sizes) == 1 and sizes[0].op not in ("const", "binary", "call"):
        # A name or an attribute may be a number or a shape; as a parameter it is most often a number.
        return (None,) if sizes[0].op == "unknown" and sizes[0].name in ("n", "N", "count", "size") else None
    return None if any(each.op == "starred" for each in sizes) else _sizes(sizes)


def _is_tuple(key: Term) -> bool:
    return type(key.node).__name__ == "Tuple"


def _sliced(size: int | None, key: Term) -> int | None:
    start, stop, step = key.parts
    if is_all(key):
        return size
    first = number(start) if number(start) is not None else 0 if start.op == "const" else None
    last = number(stop)
    if first is None or constant(step) is not None:
        return None
    if last is None:
        return int(size - first) if stop.op == "const" and size is not None and 0 <= first <= size else None
    if first >= 0 and last >= 0:
        count = int(last - first)
        return count if size is None or last <= size else None
    return 1 if first == -1 and stop.op == "const" and stop.data is None else None


Ask = Callable[[Term | None], Shape]
