"""`training_args.bin` and other pickled settings, in torch's zip, its legacy form, or plain; never unpickled."""

from __future__ import annotations

import io
import os
from collections import deque
from itertools import islice
from pathlib import Path
from typing import Any

from stayfinite.core.settings import Settings
from stayfinite.readers.configs.files import Content
from stayfinite.readers.configs.tree import MOST_ITEMS, Node, settings_of
from stayfinite.readers.malformed import Malformed
from stayfinite.readers.pickles.inert import Bounds, Global, Inert, Made, Member, Pairs, Persistent, read_inert
from stayfinite.readers.pickles.torch_files import Part, looks_old, read_directory, read_old, read_zipped

BOUNDS = Bounds(longest=16 << 20, operations=2_000_000)  # limits of a settings pickle
_MOST_NODES = 20_000
_DEEPEST = 32
_WIDEST = 128  # bits of an integer; Python refuses to print very long ones
_SETTINGS_INSIDE = ("hyper_parameters", "hparams", "args", "cfg", "config", "training_args", "model_args", "ds_config")
_VALUES = {
    "ADAMW_BNB": "adamw_bnb_8bit", "LION": "lion_32bit", "PAGED_ADAMW": "paged_adamw_32bit",
    "PAGED_ADEMAMIX": "paged_ademamix_32bit", "PAGED_LION": "paged_lion_32bit",
    "REDUCE_ON_PLATEAU": "reduce_lr_on_plateau", "RMSPROP_32BIT": "rmsprop_bnb_32bit",
    "RMSPROP_8BIT": "rmsprop_bnb_8bit",
}  # fmt: skip
"""Members of transformers' enums whose value is not their lowercase name."""
_DICTS = frozenset({"collections.OrderedDict", "collections.defaultdict", "builtins.dict"})


def read_pickle(path: str | os.PathLike[str], content: Content) -> Settings:
    """Read the settings in a pickle without importing or calling anything."""
    source = content.source
    try:
        pickle = _zipped(path, content.size) if content.data.startswith(b"PK") else _unzipped(content.data)
    except (Malformed, OSError) as error:
        return Settings(notes=[(source, f"not read: unsupported pickle ({error})"[:300])])
    node = _told(pickle.value)
    if node is None:
        return Settings(notes=[(source, "not read: a pickle without settings")])
    return Settings(settings_of(node, source, prefix=node.label))


def _zipped(path: str | os.PathLike[str], size: int) -> Inert:
    with Path(path).open("rb") as file:
        part = Part(file, 0, size)
        return read_zipped(part, read_directory(part), BOUNDS)[1]


def _unzipped(data: bytes) -> Inert:
    read = read_old if looks_old(data) else read_inert
    return read(io.BytesIO(data), BOUNDS)


def _told(root: Any) -> Node | None:
    if isinstance(root, Made):
        node = _node(root)
        return node if isinstance(node.value, dict) and root.state is not None else None
    if not isinstance(root, Pairs):
        return None
    named = {key: value for key, value in root.pairs if isinstance(key, str)}
    inside = [(key, named[key]) for key in _SETTINGS_INSIDE if key in named]
    if inside:
        return _node(Pairs(inside))
    plain = [value for _, value in root.pairs if value is None or isinstance(value, (str, int, float))]
    return _node(root) if len(plain) * 2 >= len(root.pairs) > 0 else None


def _node(root: Any) -> Node:
    """The tree of a pickled object, built without recursion and limited to ``_MOST_NODES``."""
    top = Node(None)
    work: deque[tuple[Any, Node, int]] = deque([(root, top, 0)])
    left = _MOST_NODES
    while work:
        value, node, depth = work.popleft()
        for _ in range(8):  # an object may wrap another one
            value = _plainer(value, node)
            if not isinstance(value, (Made, Member, Global, Persistent)):
                break
        if not isinstance(value, (Pairs, list, tuple)):
            node.value = value
            continue
        if left <= 0 or depth >= _DEEPEST or isinstance(value, (Member, Global, Persistent)):
            node.value = "..."
        elif isinstance(value, Pairs):
            named = {_name(key): each for key, each in islice(value.pairs, left)}
            kept = {name: each for name, each in named.items() if not name.startswith("_") or name == "_n_gpu"}
            node.value = {name: Node(None) for name in kept}
            work.extend((each, node.value[name], depth + 1) for name, each in kept.items())
            left -= len(named)
        else:
            items = value[: min(left, MOST_ITEMS)]
            node.value = [Node(None) for _ in items]
            work.extend((each, child, depth + 1) for each, child in zip(items, node.value, strict=True))
            left -= len(items)
    return top


def _name(key: Any) -> str:
    plain = key is None or isinstance(key, (str, float)) or (isinstance(key, int) and key.bit_length() <= _WIDEST)
    return str(key)[:200] if plain else type(key).__name__


def _plainer(value: Any, node: Node) -> Any:
    """Unwrap one level: plain data as it is, a wrapper's content otherwise."""
    if isinstance(value, Made):
        return _made(value, node)
    if isinstance(value, Member):
        return _VALUES.get(value.name, value.name.lower())
    if isinstance(value, Global):
        return value.name if value.module.partition(".")[0] == "torch" else str(value)
    if isinstance(value, Persistent):
        return "storage"
    if isinstance(value, bytes):
        return value[:200].decode("latin-1")
    if isinstance(value, int) and value.bit_length() > _WIDEST:
        return f"a number of {value.bit_length()} bits"
    plain = value is None or isinstance(value, (Pairs, list, tuple, str, int, float))
    return value if plain else type(value).__name__


def _made(value: Made, node: Node) -> Any:
    name, last = _names(value.callee)
    if name in _DICTS or value.pairs:
        return Pairs(value.pairs)
    arguments = value.args if isinstance(value.args, tuple) else (value.args,)
    state = value.state[0] if isinstance(value.state, tuple) and value.state else value.state
    if isinstance(state, Pairs):
        node.label = _names(arguments[0])[1] if name == "copyreg._reconstructor" and arguments else last
        # OmegaConf keeps its entries in `_content`, argparse's Namespace and dataclasses in plain attributes.
        content = next((each for key, each in state.pairs if key == "_content"), None)
        return content if isinstance(content, Pairs) else state
    if value.items:
        return value.items
    if len(arguments) == 1:  # an enum by its value, a device, a path, a set
        return arguments[0]
    plain = [_name(each) for each in arguments if isinstance(each, (str, int))]
    return ":".join(plain) if last == "device" else "/".join(plain) if last.endswith("Path") else f"{last}(...)"


def _names(callee: Any) -> tuple[str, str]:
    """The full name of a class or function, and its last part."""
    return (str(callee), callee.name.rpartition(".")[2]) if isinstance(callee, Global) else ("", "")
