"""Command-line parsers: their arguments, and their result when no arguments are passed."""

from __future__ import annotations

import ast

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.commands import settings_of_command
from stayfinite.readers.configs.program.data_files import loaded
from stayfinite.readers.configs.program.names import declared_default, given_argument
from stayfinite.readers.configs.program.state import Run
from stayfinite.readers.configs.program.values import Call, Class, Instance, Method, Parser, Row, Table, Value

_TRAINS = lazy_regex(r"(?:do_|is_|run_)?train(?:ing)?")
"""A switch that enables training. Scripts are read for their training, so it is never assumed off."""


def call_parser(run: Run, method: Method, parser: Parser, call: Call) -> Value:
    """`add_argument`, `parse_args` and similar."""
    if method.name == "add_argument":
        _add(run, parser, call)
    elif method.name == "set_defaults":
        for name, each in call.keywords.items():
            run.store.put(parser.arguments, name, _as_default(each))
    elif method.name in {"add_argument_group", "add_mutually_exclusive_group", "add_subparsers", "add_parser"}:
        return method.of
    elif method.name == "parse_args":
        return _namespace(run, parser, call)
    elif method.name in {"parse_known_args", "parse_args_and_config"} and not parser.classes:
        return run.value(Row([_namespace(run, parser, call), run.unknown(call.node)]), call.node)
    elif parser.classes and method.name.startswith("parse"):
        found = _instances(run, parser, [*call.positional, *call.keywords.values()], call.node)
        strings = call.keywords.get("return_remaining_strings")
        if strings is not None and strings.data is True:
            found.append(run.unknown(call.node))
        return run.value(Row(found), call.node)
    return run.unknown(call.node)


def _add(run: Run, parser: Parser, call: Call) -> None:
    words = [each.data for each in call.positional if isinstance(each.data, str)]
    if not words:
        return
    name = next((each for each in words if each.startswith("--")), words[0])
    destination = call.keywords.get("dest")
    attribute = destination.data if destination is not None and isinstance(destination.data, str) else name
    attribute = attribute.lstrip("-").replace("-", "_")
    for word in words:
        given = given_argument(run, word)
        if given is not None:
            action = call.keywords.get("action")
            if action is not None and action.data == "store_false" and given.data is True:
                given.data = False
            run.store.put(parser.arguments, attribute, given)
            return
    run.store.put(parser.arguments, attribute, _default(run, attribute, call))


def _default(run: Run, attribute: str, call: Call) -> Value:
    default, action = call.keywords.get("default"), call.keywords.get("action")
    if default is None:
        if action is None or action.data not in {"store_true", "store_false"}:
            return run.unknown(call.node)
        if action.data == "store_true" and _TRAINS.fullmatch(attribute):
            return run.unknown(call.node)
        default = run.value(action.data == "store_false", call.node)
    if isinstance(default.data, str) and "type" in call.keywords:  # argparse converts only strings
        converted = run.call(run, call.keywords["type"], Call(call.node, [default]))
        default = converted if converted.is_scalar else default
    return _as_default(default)


def _as_default(value: Value) -> Value:
    return Value(value.data, value.origin, value.line, value.node, assumed=True)


def _namespace(run: Run, parser: Parser, call: Call) -> Value:
    entries = dict(parser.arguments)
    if not entries:  # filled by a function that is not followed
        known = {name: declared_default(run, name) for name in run.declared}
        entries.update({name: each for name, each in known.items() if each is not None})
    words = call.positional[0].data.items if call.positional and isinstance(call.positional[0].data, Row) else []
    if words and all(each.is_scalar for each in words):
        line = " ".join(f"'{each.data}'" if " " in str(each.data) else str(each.data) for each in words)
        for setting in settings_of_command(line, words[0].origin.source, words[0].line):
            name = setting.name.lstrip("-").replace("-", "_")
            if name in entries and not isinstance(setting.value, (list, dict)):
                entries[name] = Value(setting.value, words[0].origin, words[0].line)
    return run.value(Table(entries, is_told=True), call.node)


def _instances(run: Run, parser: Parser, given: list[Value], node: ast.expr) -> list[Value]:
    """One object per class; `parse_yaml_file("x.yaml")` fills them from that file."""
    path = next((each.data for each in given if isinstance(each.data, str) and "." in each.data), "")
    table = loaded(run, path) if path else None
    entries = table.data.entries if table is not None and isinstance(table.data, Table) else {}
    found = []
    for each in parser.classes:
        if not isinstance(each.data, Class):
            found.append(run.unknown(node))
            continue
        made = run.call_assumed(run, each, node)
        if isinstance(made.data, Instance):
            told = {name: entries[name] for name in made.data.attributes if name in entries}
            made.data.attributes.update(told)
        found.append(made)
    return found
