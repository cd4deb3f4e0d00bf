"""`training_args.bin` and other pickles with settings, in torch's zip, its older form, or plain; never unpickled."""

from __future__ import annotations

import os
import zipfile
from collections import deque
from typing import Any

from stayfinite.core.settings import Settings
from stayfinite.readers.configs.files import Content
from stayfinite.readers.configs.pickle_machine import BrokenPickle, Standin, run_pickle
from stayfinite.readers.configs.tree import Node, settings_of

MOST_BYTES = 16 * 1024 * 1024
"""Of one pickle inside a file."""
_MOST_PICKLES = 8
_MOST_NODES = 20_000
_SETTINGS_INSIDE = ("hyper_parameters", "hparams", "args", "cfg", "config", "training_args", "model_args", "ds_config")
_DICTS = frozenset({"collections.OrderedDict", "collections.defaultdict", "builtins.dict"})


def read_pickle(path: str | os.PathLike[str], content: Content) -> Settings:
    """The settings in a pickle, without importing or calling anything that it names."""
    source = content.source
    try:
        data = _zipped(path) if content.data.startswith(b"PK") else content.data
        root = _root(data)
    except (
        BrokenPickle,
        zipfile.BadZipFile,
        OSError,
        ValueError,
        NotImplementedError,
        RuntimeError,
        EOFError,
    ) as error:
        return Settings(notes=[(source, f"not read: a pickle that cannot be followed ({error})"[:300])])
    node = _told(root)
    if node is None:
        return Settings(notes=[(source, "not read: a pickle without settings in it")])
    return Settings(settings_of(node, source, prefix=node.label))


def _zipped(path: str | os.PathLike[str]) -> bytes:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.filename.endswith("data.pkl"):
                if member.file_size > MOST_BYTES:
                    raise BrokenPickle(f"{member.file_size:,} bytes are more than {MOST_BYTES:,}")
                with archive.open(member) as file:
                    return file.read(MOST_BYTES)
    raise BrokenPickle("no data.pkl in the archive")


def _root(data: bytes) -> Any:
    """The object: the last of several pickles in torch's older form, which begins with three about itself."""
    best: Any = None
    position = 0
    for _ in range(_MOST_PICKLES):
        try:
            root, length = run_pickle(data[position:])
        except BrokenPickle:
            if best is None:
                raise
            break
        if isinstance(root, (dict, Standin)) and not (isinstance(root, dict) and "little_endian" in root):
            return root
        best = root
        position += length
        if position >= len(data):
            break
    return best


def _told(root: Any) -> Node | None:
    if isinstance(root, Standin):
        node = _node(root)
        return node if isinstance(node.value, dict) and root.state is not None else None
    if not isinstance(root, dict):
        return None
    inside = {key: root[key] for key in _SETTINGS_INSIDE if key in root}
    if inside:
        return _node(inside)
    plain = [value for value in root.values() if isinstance(value, (str, int, float, bool, type(None)))]
    return _node(root) if len(plain) * 2 >= len(root) > 0 else None


def _node(root: Any) -> Node:
    """The tree of a pickled object, built without recursion and cut at ``_MOST_NODES``."""
    top = Node(None)
    work: deque[tuple[Any, Node, int]] = deque([(root, top, 0)])
    made = 0
    while work:
        value, node, depth = work.popleft()
        made += 1
        if made > _MOST_NODES or depth > 32:
            node.value = "..."
            continue
        for _ in range(8):  # an object may stand for another one
            value = _plainer(value, node)
            if not isinstance(value, Standin):
                break
        if isinstance(value, dict):
            entries = {str(key): Node(None) for key in value if not str(key).startswith("_") or key == "_n_gpu"}
            node.value = entries
            work.extend((each, entries[str(key)], depth + 1) for key, each in value.items() if str(key) in entries)
        elif isinstance(value, (list, tuple)):
            node.value = [Node(None) for _ in value[:1000]]
            work.extend((each, child, depth + 1) for each, child in zip(value, node.value, strict=False))
        else:
            node.value = value.name if isinstance(value, Standin) else value
    return top


def _plainer(value: Any, node: Node) -> Any:
    if isinstance(value, bytes):
        return value[:200].decode("latin-1")
    if not isinstance(value, Standin):
        return value if isinstance(value, (dict, list, tuple, str, int, float, bool, type(None))) else str(value)[:200]
    last = value.name.rpartition(".")[2]
    if value.name in _DICTS or (
        value.items and all(isinstance(each, tuple) and len(each) == 2 for each in value.items)
    ):
        return {str(each[0]): each[1] for each in value.items}
    if value.name == "copyreg._reconstructor" and isinstance(value.arguments, tuple) and value.arguments:
        last = value.arguments[0].name.rpartition(".")[2] if isinstance(value.arguments[0], Standin) else last
    if isinstance(value.state, dict) or (
        isinstance(value.state, tuple) and value.state and isinstance(value.state[0], dict)
    ):
        node.label = last
        state = value.state if isinstance(value.state, dict) else value.state[0]
        # OmegaConf keeps its entries in `_content`, argparse's Namespace and dataclasses in plain attributes.
        return state.get("_content", state) if isinstance(state.get("_content"), dict) else state
    if value.items:
        return list(value.items)
    if not value.called:
        return last if value.name.startswith("torch.") else value.name
    arguments = value.arguments if isinstance(value.arguments, tuple) else (value.arguments,)
    if len(arguments) == 1:  # an enum by its value, a device, a path, a set
        return arguments[0]
    plain = [str(each) for each in arguments if isinstance(each, (str, int))]
    return ":".join(plain) if last == "device" else "/".join(plain) if last.endswith("Path") else f"{last}(...)"
