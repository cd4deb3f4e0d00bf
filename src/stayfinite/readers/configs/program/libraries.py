"""Library calls: known by name, or an object of which only the arguments are known."""

from __future__ import annotations

import ast

from stayfinite.readers.configs.program.given import environment_value
from stayfinite.readers.configs.program.hydra import composed, merge
from stayfinite.readers.configs.program.methods import read_all, table_in
from stayfinite.readers.configs.program.pure import computed_by
from stayfinite.readers.configs.program.state import Run
from stayfinite.readers.configs.program.store import Slots
from stayfinite.readers.configs.program.values import (
    Class,
    External,
    Function,
    Made,
    Parser,
    Row,
    Table,
    Value,
)
from stayfinite.readers.configs.script_calls import Given, is_constructor

_BF16 = frozenset({"is_bf16_supported", "is_torch_bf16_gpu_available", "is_bfloat16_supported", "is_bf16_available"})
_OTHERS = frozenset(
    {
        "torch.backends.mps.is_available", "torch.backends.mps.is_built", "torch.xpu.is_available",
        "torch.npu.is_available", "torch.mps.is_available", "is_torch_npu_available", "is_torch_xpu_available",
        "is_torch_mps_available", "is_torch_xla_available", "is_torch_tpu_available",
    }
)  # fmt: skip
"""Backends other than CUDA."""


def answered(run: Run, function: External, positional: list[Value], node: ast.expr) -> Value | None:
    """Evaluate `torch.cuda.is_available()` and similar; None for any other call."""
    full = function.full
    last = full.rpartition(".")[2]
    card, cuda = run.surroundings.card, run.surroundings.cuda
    if full in {"torch.cuda.is_available", "cuda.is_available", "torch.accelerator.is_available"}:
        return run.value(cuda, node)
    if last in _BF16:
        known = run.surroundings.bf16
        return run.unknown(node) if known is None else run.value(known, node)
    if full in _OTHERS or last in _OTHERS:
        return run.value(False, node)
    if full in {"torch.cuda.device_count", "torch.accelerator.device_count"}:
        return run.unknown(node, least=1) if cuda else run.value(0, node)
    if full == "torch.cuda.get_device_capability" and card is not None and cuda and not card.amd:
        return run.value(Row({"items": [run.value(each, node) for each in card.capability]}), node)
    if full == "torch.cuda.get_device_name" and card is not None and cuda:
        return run.value(card.name, node)
    if full in {"torch.device", "device"} and positional and isinstance(positional[0].data, str):
        return positional[0]
    if full in {"torch.get_default_device", "torch.accelerator.current_accelerator"}:
        return run.value("cuda" if cuda else "cpu", node)
    return None


_LOADERS = {
    "yaml.safe_load": "yaml", "yaml.load": "yaml", "yaml.full_load": "yaml", "json.load": "json", "json.loads": "json",
    "toml.load": "toml", "tomllib.load": "toml", "tomli.load": "toml", "YAML.load": "yaml",
    "OmegaConf.load": "", "omegaconf.OmegaConf.load": "",
}  # fmt: skip
_PARSERS = frozenset({"ArgumentParser", "ArgParser", "FlexibleArgumentParser"})
_CLASS_PARSERS = frozenset({"HfArgumentParser", "TrlParser", "H4ArgumentParser"})
_STARTERS = frozenset({"Fire", "cli", "CLI", "entrypoint", "auto_cli", "nested_entrypoint"})
"""Calls that pass the command line to a function or a class."""
_LAUNCHERS = frozenset({"spawn", "start_processes", "notebook_launcher", "debug_launcher"})


def call_library(
    run: Run, function: External, positional: list[Value], keywords: dict[str, Value], node: ast.expr
) -> Value:
    """The value of a library call."""
    found = (
        answered(run, function, positional, node)
        or computed_by(run, function, positional, keywords, node)
        or _from_outside(run, function, positional, keywords, node)
        or _started(run, function, positional, keywords, node)
    )
    if found is not None:
        return found
    last = function.full.rpartition(".")[2]
    if last == "prepare" and positional:  # accelerate returns the same objects, wrapped
        return positional[0] if len(positional) == 1 else run.value(Row({"items": positional}), node)
    if is_constructor(last):
        return run.value(Made(function.name, Slots(keywords)), node)
    return run.unknown(node)


def _from_outside(
    run: Run, function: External, positional: list[Value], keywords: dict[str, Value], node: ast.expr
) -> Value | None:
    """Environment, files and command lines."""
    full, last = function.full, function.full.rpartition(".")[2]
    first = positional[0] if positional else None
    if full in {"os.getenv", "os.environ.get", "getenv", "environ.get", "os.environ.setdefault"}:
        return _environment(run, full, positional, keywords, node)
    if full in _LOADERS and first is not None:
        return read_all(run, first, node, _LOADERS[full])
    if full.endswith("OmegaConf.from_cli"):
        return run.value(Table(), node)
    if full.endswith(("OmegaConf.merge", "OmegaConf.unsafe_merge")):
        whole: dict[str, Value] = {}
        for each in positional:
            merge(whole, table_in(each))
        return run.value(Table(whole), node)
    if full == "hydra.compose" or last == "compose":
        name = keywords.get("config_name", first)
        return composed(run, "", name.data) if name is not None and isinstance(name.data, str) else None
    if last in _PARSERS:
        return run.value(Parser(), node)
    if last in _CLASS_PARSERS and (first is not None or keywords):
        given = first if first is not None else next(iter(keywords.values()))
        classes = given.data.items if isinstance(given.data, Row) else [given]
        return run.value(Parser(classes=list(classes)), node)
    if last == "instantiate" and first is not None and isinstance(first.data, Table):
        return _instantiated(run, first.data, keywords, node)
    return None


def _environment(
    run: Run, full: str, positional: list[Value], keywords: dict[str, Value], node: ast.expr
) -> Value | None:
    name = positional[0].data if positional else None
    if not isinstance(name, str):
        return None
    known = environment_value(run, name)
    if known is not None:
        return known
    default = positional[1] if len(positional) > 1 else keywords.get("default", run.value(None, node))
    if full.endswith("setdefault"):
        run.store.put(run.environment, name, default)
    return Value(default.data, default.origin, default.line, default.node, assumed=True)


def _instantiated(run: Run, table: Table, keywords: dict[str, Value], node: ast.expr) -> Value | None:
    """`hydra.utils.instantiate(cfg.optimizer)`: the call that the config describes."""
    target = table.entries.get("_target_")
    if target is None or not isinstance(target.data, str):
        return None
    given = Given()
    own = {str(key): each for key, each in table.entries.items() if not str(key).startswith("_")}
    given.keywords = {name: (each, None) for name, each in {**own, **keywords}.items()}
    run.telling.call(run, target.data, node, given)
    return run.value(Made(target.data, Slots(own)), node)


def _started(
    run: Run, function: External, positional: list[Value], keywords: dict[str, Value], node: ast.expr
) -> Value | None:
    """`fire.Fire(main)`, `tyro.cli(Config)`, `app.run(main)`, `mp.spawn(worker, args=(args,))`."""
    last = function.full.rpartition(".")[2]
    own = [each for each in (*positional, *keywords.values()) if isinstance(each.data, (Function, Class))]
    if not own:
        return None
    if last in _STARTERS or function.full in {"typer.run", "pyrallis.parse", "draccus.parse", "simple_parsing.parse"}:
        return run.call_assumed(run, own[0], node)
    if last in _LAUNCHERS:
        handed = keywords.get("args", positional[1] if len(positional) > 1 else None)
        more = list(handed.data.items) if handed is not None and isinstance(handed.data, Row) else []
        rank = [] if last.endswith("launcher") else [run.unknown(node)]
        return run.call(run, own[0], [*rank, *more], {}, node)
    if function.full in {"app.run", "absl.app.run"}:
        return run.call(run, own[0], [run.unknown(node)], {}, node)
    return None
