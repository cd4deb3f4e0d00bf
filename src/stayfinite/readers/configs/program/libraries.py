"""Library calls: known by name, methods of plain data, command-line parsers, objects known by their arguments alone."""

from __future__ import annotations

import ast
import posixpath
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.commands import settings_of_command
from stayfinite.readers.configs.program.files import composed, loaded, merge
from stayfinite.readers.configs.program.names import (
    OF_MODELS,
    RETURN_THEMSELVES,
    computed_by,
    declared_default,
    environment_value,
    given_argument,
    lineage,
    result_of,
    table_in,
)
from stayfinite.readers.configs.program.state import (
    MISSING,
    Call,
    Class,
    External,
    Function,
    Instance,
    Made,
    Method,
    OpenFile,
    Parser,
    Row,
    Run,
    Slots,
    Table,
    Unknown,
    Value,
    copied,
)
from stayfinite.readers.configs.script_calls import is_constructor

_MOST_TEXT = 5_000
_OF_TEXTS = frozenset({
    "lower", "upper", "strip", "lstrip", "rstrip", "startswith", "endswith", "replace", "removeprefix",
    "removesuffix", "title", "capitalize", "casefold", "isdigit",
})  # fmt: skip
_OF_PATHS = frozenset({"resolve", "absolute", "expanduser", "as_posix"})


def call_method(run: Run, method: Method, call: Call) -> Value:
    """Return the result of a method and apply its changes."""
    data = method.of.data
    if isinstance(data, Table):
        return _of_table(run, method, data, call)
    if isinstance(data, Row):
        return _of_row(run, method, data, call)
    if isinstance(data, Parser):
        return call_parser(run, method, data, call)
    if method.name in RETURN_THEMSELVES:
        return method.of
    if method.name in OF_MODELS:
        return run.unknown(call.node, method.of)
    if isinstance(data, Instance):
        return _save_hyperparameters(run, data, call)
    if isinstance(data, OpenFile):
        return method.of if method.name in {"read", "__enter__"} else run.unknown(call.node)
    return _of_text(run, method, call)


def _save_hyperparameters(run: Run, instance: Instance, call: Call) -> Value:
    """Lightning: the parameters of the calling `__init__`, or the arguments, become `self.hparams`."""
    kept = {name: each for name, each in run.frame.given.items() if each.data is not instance}
    for each in call.positional:
        kept.update(table_in(each))
    run.store.put(instance.attributes, "hparams", run.value(Table(kept), call.node))
    return run.value(None, call.node)


def _of_table(run: Run, method: Method, data: Table, call: Call) -> Value:
    first = call.first
    if method.name in {"get", "pop", "setdefault"} and first is not None and first.is_scalar:
        found = data.entries.get(first.data)
        if method.name == "pop":
            run.store.put(data.entries, first.data, MISSING)
        default = call.second("default") or run.value(None, call.node)
        if method.name == "setdefault" and found is None:
            run.store.put(data.entries, first.data, default)
        return default if found is None else found
    if method.name in {"update", "merge_from_dict"}:
        more = table_in(first) if first is not None else {}
        for key, each in {**more, **call.keywords}.items():
            run.store.put(data.entries, key, each)
        return run.value(None, call.node)
    if method.name in {"copy", "deepcopy", "clone", "to_dict", "model_dump", "toDict", "to_container"}:
        return copied(method.of)
    if method.name == "merge_from_file" and first is not None:
        read = read_all(run, first, call.node, "")
        whole = dict(data.entries)
        merge(whole, read.data.entries if isinstance(read.data, Table) else {})
        for key, each in whole.items():
            run.store.put(data.entries, key, each)
        return run.value(None, call.node)
    if method.name in {"items", "keys", "values"}:
        return run.value(Row([_part(method.name, *each) for each in data.entries.items()]), call.node)
    return run.unknown(call.node)


def _part(which: str, key: Any, value: Value) -> Value:
    name = Value(key, value.origin, value.line, value.node, value.assumed)
    if which == "keys":
        return name
    return value if which == "values" else Value(Row([name, value]), value.origin, value.line)


def _of_row(run: Run, method: Method, data: Row, call: Call) -> Value:
    if "items" not in data.cell:
        return run.unknown(call.node)
    if method.name == "append" and call.positional:
        run.store.put(data.cell, "items", [*data.items, call.positional[0]][:1000])
    elif method.name in {"extend", "__iadd__"} and call.positional and isinstance(call.positional[0].data, Row):
        run.store.put(data.cell, "items", [*data.items, *call.positional[0].data.items][:1000])
    elif method.name == "copy":
        return copied(method.of)
    elif method.name in {"insert", "remove", "pop", "clear", "sort", "reverse", "add", "discard", "update"}:
        run.store.put(data.cell, "items", MISSING)
    return run.unknown(call.node)


def _of_text(run: Run, method: Method, call: Call) -> Value:
    text = method.of.data
    if method.name in _OF_PATHS:
        return method.of
    if method.name in {"read_text", "open"}:
        return run.value(OpenFile(text), call.node)
    if method.name == "joinpath":
        result = result_of(posixpath.join, [method.of, *call.positional])
        return run.unknown(call.node) if result is MISSING else run.value(result, call.node, method.of)
    if method.name == "split" and len(text) < _MOST_TEXT:
        parts = text.split(*(each.data for each in call.positional[:1] if isinstance(each.data, str) and each.data))
        return run.value(Row([run.value(part, call.node, method.of) for part in parts[:200]]), call.node)
    if method.name == "format" and call.positional and all(each.is_scalar for each in call.positional):
        return _formatted(run, text, call)
    result = (
        result_of(getattr(str, method.name), [method.of, *call.positional]) if method.name in _OF_TEXTS else MISSING
    )
    if result is MISSING:
        return run.unknown(call.node)
    return Value(result, method.of.origin, method.of.line, method.of.node, method.of.assumed)


def _formatted(run: Run, text: str, call: Call) -> Value:
    """`"mt5-{}".format(size)`, with plain braces only."""
    parts = text.split("{}")
    if len(parts) != len(call.positional) + 1 or "{" in "".join(parts) or len(text) > _MOST_TEXT:
        return run.unknown(call.node)
    filled = "".join(part + str(each.data) for part, each in zip(parts, call.positional, strict=False)) + parts[-1]
    return run.value(filled, call.node, *call.positional)


def read_all(run: Run, value: Value, node: ast.expr, kind: str) -> Value:
    """Load an open or named file."""
    path = value.data.path if isinstance(value.data, OpenFile) else value.data if isinstance(value.data, str) else ""
    return (loaded(run, path, kind) if path else None) or run.unknown(node)


_BF16 = frozenset({"is_bf16_supported", "is_torch_bf16_gpu_available", "is_bfloat16_supported", "is_bf16_available"})
_OTHERS = frozenset({
    "torch.backends.mps.is_available", "torch.backends.mps.is_built", "torch.xpu.is_available",
    "torch.npu.is_available", "torch.mps.is_available", "is_torch_npu_available", "is_torch_xpu_available",
    "is_torch_mps_available", "is_torch_xla_available", "is_torch_tpu_available",
})  # fmt: skip
"""Backends other than CUDA."""


def answered(run: Run, function: External, call: Call) -> Value | None:
    """Evaluate `torch.cuda.is_available()` and similar; None for any other call."""
    full = function.full
    last = full.rpartition(".")[2]
    card, cuda = run.surroundings.card, run.surroundings.cuda
    if full in {"torch.cuda.is_available", "cuda.is_available", "torch.accelerator.is_available"}:
        return run.value(cuda, call.node)
    if last in _BF16:
        known = run.surroundings.bf16
        return run.unknown(call.node) if known is None else run.value(known, call.node)
    if full in _OTHERS or last in _OTHERS:
        return run.value(False, call.node)
    if full in {"torch.cuda.device_count", "torch.accelerator.device_count"}:
        return run.unknown(call.node, least=1) if cuda else run.value(0, call.node)
    if full == "torch.cuda.get_device_capability" and card is not None and cuda and not card.amd:
        return run.value(Row([run.value(each, call.node) for each in card.capability]), call.node)
    if full == "torch.cuda.get_device_name" and card is not None and cuda:
        return run.value(card.name, call.node)
    if full in {"torch.device", "device"} and call.positional and isinstance(call.positional[0].data, str):
        return call.positional[0]
    if full in {"torch.get_default_device", "torch.accelerator.current_accelerator"}:
        return run.value("cuda" if cuda else "cpu", call.node)
    return None


_LOADERS = {
    "yaml.safe_load": "yaml", "yaml.load": "yaml", "yaml.full_load": "yaml", "json.load": "json", "json.loads": "json",
    "toml.load": "toml", "tomllib.load": "toml", "tomli.load": "toml", "YAML.load": "yaml",
    "OmegaConf.load": "", "omegaconf.OmegaConf.load": "",
}  # fmt: skip
_PARSERS = frozenset({"ArgumentParser", "ArgParser", "FlexibleArgumentParser"})
_CLASS_PARSERS = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
_WRAPPERS = frozenset({
    "DataParallel", "DistributedDataParallel", "DDP", "DP", "FullyShardedDataParallel", "FSDP", "compile",
    "convert_sync_batchnorm", "convert_syncbn_model", "setup_module",
})  # fmt: skip
"""Calls that return the model they are given, wrapped or compiled."""
_STARTERS = frozenset({"Fire", "cli", "CLI", "entrypoint", "auto_cli", "nested_entrypoint"})
"""Calls that pass the command line to a function or a class."""
_LAUNCHERS = frozenset({"spawn", "start_processes", "notebook_launcher", "debug_launcher"})


def parser_of(owner: Class) -> External | None:
    """The library's class behind `class OwnParser(HfArgumentParser)`, whose objects are filled in the same way."""
    bases = (base.data for each in lineage(owner) for base in each.bases if isinstance(base.data, External))
    return next((each for each in bases if each.full.rpartition(".")[2] in _CLASS_PARSERS), None)


def call_library(run: Run, function: External, call: Call) -> Value:
    """The value of a library call."""
    found = (
        answered(run, function, call)
        or computed_by(run, function, call)
        or _from_outside(run, function, call)
        or _started(run, function, call)
    )
    if found is not None:
        return found
    last = function.full.rpartition(".")[2]
    if last == "prepare" and call.positional:  # accelerate returns the same objects, wrapped
        return call.positional[0] if len(call.positional) == 1 else run.value(Row(call.positional), call.node)
    if last in _WRAPPERS and call.positional and isinstance(call.positional[0].data, (Unknown, Made, Instance)):
        return call.positional[0]
    if is_constructor(last):
        return run.value(Made(function.name, Slots(call.keywords)), call.node)
    return run.unknown(call.node, *call.positional, *call.keywords.values())


def _from_outside(run: Run, function: External, call: Call) -> Value | None:
    """Environment, files and command lines."""
    full, last = function.full, function.full.rpartition(".")[2]
    first = call.first
    if full in {"os.getenv", "os.environ.get", "getenv", "environ.get", "os.environ.setdefault"}:
        return _environment(run, full, call)
    if full in _LOADERS and first is not None:
        return read_all(run, first, call.node, _LOADERS[full])
    if full.endswith("OmegaConf.from_cli"):
        return run.value(Table(), call.node)
    if full.endswith(("OmegaConf.merge", "OmegaConf.unsafe_merge")):
        whole: dict[str, Value] = {}
        for each in call.positional:
            merge(whole, table_in(each))
        return run.value(Table(whole), call.node)
    if full == "hydra.compose" or last == "compose":
        name = call.keywords.get("config_name", first)
        return composed(run, "", name.data) if name is not None and isinstance(name.data, str) else None
    if last in _PARSERS:
        return run.value(Parser(), call.node)
    if last in _CLASS_PARSERS and (first is not None or call.keywords):
        given = first if first is not None else next(iter(call.keywords.values()))
        classes = given.data.items if isinstance(given.data, Row) else [given]
        return run.value(Parser(classes=list(classes)), call.node)
    if last == "instantiate" and first is not None and isinstance(first.data, Table):
        return _instantiated(run, first.data, call)
    return None


def _environment(run: Run, full: str, call: Call) -> Value | None:
    name = call.positional[0].data if call.positional else None
    if not isinstance(name, str):
        return None
    known = environment_value(run, name)
    if known is not None:
        return known
    default = call.second("default") or run.value(None, call.node)
    if full.endswith("setdefault"):
        run.store.put(run.environment, name, default)
    return Value(default.data, default.origin, default.line, default.node, assumed=True)


def _instantiated(run: Run, table: Table, call: Call) -> Value | None:
    """`hydra.utils.instantiate(cfg.optimizer)`: the call that the config describes."""
    target = table.entries.get("_target_")
    if target is None or not isinstance(target.data, str):
        return None
    own = {str(key): each for key, each in table.entries.items() if not str(key).startswith("_")}
    run.telling.call(run, target.data, Call(call.node, keywords={**own, **call.keywords}))
    return run.value(Made(target.data, Slots(own)), call.node)


def _started(run: Run, function: External, call: Call) -> Value | None:
    """`fire.Fire(main)`, `tyro.cli(Config)`, `app.run(main)`, `mp.spawn(worker, args=(args,))`."""
    last = function.full.rpartition(".")[2]
    own = [each for each in (*call.positional, *call.keywords.values()) if isinstance(each.data, (Function, Class))]
    if not own:
        return None
    if last in _STARTERS or function.full in {"typer.run", "pyrallis.parse", "draccus.parse", "simple_parsing.parse"}:
        return run.call_assumed(run, own[0], call.node)
    if last in _LAUNCHERS:
        handed = call.second("args")
        more = list(handed.data.items) if handed is not None and isinstance(handed.data, Row) else []
        rank = [] if last.endswith("launcher") else [run.unknown(call.node)]
        return run.call(run, own[0], Call(call.node, [*rank, *more]))
    if function.full in {"app.run", "absl.app.run"}:
        return run.call(run, own[0], Call(call.node, [run.unknown(call.node)]))
    return None


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
