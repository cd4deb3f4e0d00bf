"""Methods of plain data: dicts, lists, strings, open files and parsers."""

from __future__ import annotations

import ast
from typing import Any

from stayfinite.readers.configs.program.attributes import RETURN_THEMSELVES
from stayfinite.readers.configs.program.data_files import loaded
from stayfinite.readers.configs.program.hydra import merge
from stayfinite.readers.configs.program.joining import copied
from stayfinite.readers.configs.program.parsers import call_parser
from stayfinite.readers.configs.program.state import Run
from stayfinite.readers.configs.program.store import MISSING
from stayfinite.readers.configs.program.values import Instance, Method, OpenFile, Parser, Row, Table, Value

_MOST_TEXT = 5_000
_OF_TEXTS = frozenset(
    {
        "lower", "upper", "strip", "lstrip", "rstrip", "startswith", "endswith", "replace", "removeprefix",
        "removesuffix", "title", "capitalize", "casefold", "isdigit",
    }
)  # fmt: skip
_OF_PATHS = frozenset({"resolve", "absolute", "expanduser", "as_posix"})


def call_method(run: Run, method: Method, positional: list[Value], keywords: dict[str, Value], node: ast.expr) -> Value:
    """Return the result of a method and apply its changes."""
    data = method.of.data
    if isinstance(data, Table):
        return _of_table(run, method, data, positional, keywords, node)
    if isinstance(data, Row):
        return _of_row(run, method, data, positional, node)
    if isinstance(data, Parser):
        return call_parser(run, method, data, positional, keywords, node)
    if isinstance(data, Instance):
        if method.name in RETURN_THEMSELVES:
            return method.of
        return _save_hyperparameters(run, data, positional, node)
    if isinstance(data, OpenFile):
        return method.of if method.name in {"read", "__enter__"} else run.unknown(node)
    return _of_text(run, method, positional, node)


def _save_hyperparameters(run: Run, instance: Instance, positional: list[Value], node: ast.expr) -> Value:
    """Lightning: the parameters of the calling `__init__`, or the arguments, become `self.hparams`."""
    kept = {name: each for name, each in run.frame.given.items() if each.data is not instance}
    for each in positional:
        kept.update(table_in(each))
    run.store.put(instance.attributes, "hparams", run.value(Table(kept), node))
    return run.value(None, node)


def _of_table(
    run: Run, method: Method, data: Table, positional: list[Value], keywords: dict[str, Value], node: ast.expr
) -> Value:
    first = positional[0] if positional else None
    if method.name in {"get", "pop", "setdefault"} and first is not None and first.is_scalar:
        found = data.entries.get(first.data)
        if method.name == "pop":
            run.store.put(data.entries, first.data, MISSING)
        default = positional[1] if len(positional) > 1 else keywords.get("default", run.value(None, node))
        if method.name == "setdefault" and found is None:
            run.store.put(data.entries, first.data, default)
        return default if found is None else found
    if method.name in {"update", "merge_from_dict"}:
        more = table_in(first) if first is not None else {}
        for key, each in {**more, **keywords}.items():
            run.store.put(data.entries, key, each)
        return run.value(None, node)
    if method.name in {"copy", "deepcopy", "clone", "to_dict", "model_dump", "toDict", "to_container"}:
        return copied(method.of)
    if method.name == "merge_from_file" and first is not None:
        read = read_all(run, first, node, "")
        whole = dict(data.entries)
        merge(whole, read.data.entries if isinstance(read.data, Table) else {})
        for key, each in whole.items():
            run.store.put(data.entries, key, each)
        return run.value(None, node)
    if method.name in {"items", "keys", "values"}:
        return run.value(Row({"items": [_part(method.name, *each) for each in data.entries.items()]}), node)
    return run.unknown(node)


def _part(which: str, key: Any, value: Value) -> Value:
    name = Value(key, value.origin, value.line, value.node, value.assumed)
    if which == "keys":
        return name
    return value if which == "values" else Value(Row({"items": [name, value]}), value.origin, value.line)


def table_in(value: Value) -> dict[Any, Value]:
    """The entries of a dict, a namespace or pairs; empty if unknown."""
    data = value.data
    if isinstance(data, Table):
        return data.entries
    if isinstance(data, Instance):
        return dict(data.attributes)
    if isinstance(data, Row):
        pairs = [each.data.items for each in data.items if isinstance(each.data, Row) and len(each.data.items) == 2]
        return {key.data: each for key, each in pairs if key.is_scalar}
    return {}


def _of_row(run: Run, method: Method, data: Row, positional: list[Value], node: ast.expr) -> Value:
    if "items" not in data.cell:
        return run.unknown(node)
    if method.name == "append" and positional:
        run.store.put(data.cell, "items", [*data.items, positional[0]][:1000])
    elif method.name in {"extend", "__iadd__"} and positional and isinstance(positional[0].data, Row):
        run.store.put(data.cell, "items", [*data.items, *positional[0].data.items][:1000])
    elif method.name == "copy":
        return copied(method.of)
    elif method.name in {"insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard", "update"}:
        run.store.put(data.cell, "items", MISSING)
    return run.unknown(node)


def _of_text(run: Run, method: Method, positional: list[Value], node: ast.expr) -> Value:
    text = method.of.data
    if method.name in _OF_PATHS:
        return method.of
    if method.name in {"read_text", "open"}:
        return run.value(OpenFile(text), node)
    if method.name == "joinpath" and all(isinstance(each.data, str) for each in positional):
        return run.value("/".join([text, *(each.data for each in positional)]), node, method.of)
    if method.name == "split" and len(text) < _MOST_TEXT:
        parts = text.split(*(each.data for each in positional[:1] if isinstance(each.data, str) and each.data))
        return run.value(Row({"items": [run.value(part, node, method.of) for part in parts[:200]]}), node)
    if method.name == "format" and positional and all(each.is_scalar for each in positional):
        return _formatted(run, text, positional, node)
    if method.name not in _OF_TEXTS or not all(isinstance(each.data, str) for each in positional):
        return run.unknown(node)
    if len(text) > _MOST_TEXT or sum(len(each.data) for each in positional) > 100:
        return run.unknown(node)
    try:
        result = getattr(text, method.name)(*(each.data for each in positional))
    except (TypeError, ValueError):
        return run.unknown(node)
    return Value(result, method.of.origin, method.of.line, method.of.node, method.of.assumed)


def _formatted(run: Run, text: str, positional: list[Value], node: ast.expr) -> Value:
    """`"mt5-{}".format(size)`, with plain braces only."""
    parts = text.split("{}")
    if len(parts) != len(positional) + 1 or "{" in "".join(parts) or len(text) > _MOST_TEXT:
        return run.unknown(node)
    filled = "".join(part + str(each.data) for part, each in zip(parts, positional, strict=False)) + parts[-1]
    return run.value(filled, node, *positional)


def read_all(run: Run, value: Value, node: ast.expr, kind: str) -> Value:
    """Load an open or named file."""
    path = value.data.path if isinstance(value.data, OpenFile) else value.data if isinstance(value.data, str) else ""
    return (loaded(run, path, kind) if path else None) or run.unknown(node)
