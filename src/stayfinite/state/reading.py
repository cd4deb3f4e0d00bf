"""Find and read the newest good checkpoint, without unpickling."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from stayfinite.errors import PoisonedState, StateError
from stayfinite.state import shelf
from stayfinite.state.contents import GROUPS, MODEL, STATE_VERSION, name_in_file, rest_file, state_file
from stayfinite.state.parts import TrainingParts, is_finite
from stayfinite.state.sharded import needs_parts, read_parts
from stayfinite.state.shelf import Manifest, read_manifest
from stayfinite.state.training import TrainingState
from stayfinite.state.writer import check_file


class PassedOver(NamedTuple):
    """A skipped checkpoint."""

    path: Path
    reason: str


class Newest(NamedTuple):
    """The checkpoint to resume from, and newer ones that were skipped."""

    path: Path | None
    passed_over: list[PassedOver]


def newest_good(directory: str | os.PathLike[str]) -> Newest:
    """Find the newest checkpoint that is unmodified, loadable and finite.

    Raises:
        StateError: the directory exists but cannot be read.
    """
    directory = Path(directory)
    try:
        passed = [PassedOver(*each) for each in shelf.doubtful(directory)]
        for path, _ in shelf.finished(directory):
            try:
                verify(path)
            except StateError as error:
                passed.append(PassedOver(path, error.message))
            else:
                return Newest(path, passed)
    except OSError as error:
        raise StateError(f"cannot read the checkpoints in {directory}: {error.strerror or error}") from error
    return Newest(None, passed)


def verify(path: Path) -> Manifest:
    """Verify a checkpoint: sizes, hashes, loadable, finite.

    Raises:
        StateError: the message says what is wrong. ``PoisonedState`` for NaN or infinity.
    """
    manifest = read_manifest(path)
    for name, expected in manifest.files.items():
        check_file(path / name, expected)
    exempt = {name_in_file(name) for name in _read_tree(path, 0)["exempt"]}
    bad = []
    for name in manifest.files:
        if name.endswith(".safetensors"):
            watched = name.split(".", 1)[0].split("-", 1)[0] in GROUPS
            bad += [
                key for key, tensor in _each(path / name) if watched and key not in exempt and not is_finite(tensor)
            ]
    if bad:
        raise PoisonedState(f"{len(bad)} tensors hold NaN or inf, first {bad[0]}")
    return manifest


def load(path: str | os.PathLike[str], *, parts: TrainingParts | None = None, rank: int = 0) -> TrainingState:
    """Read a checkpoint that ``newest_good`` has verified.

    Arguments:
        parts: the target training; needed if it is sharded, to read only this rank's shards.
        rank: this process. A rank that did not exist at saving gets the state of rank 0, without generators.

    Raises:
        StateError: it cannot be read.
    """
    path = Path(path)
    manifest = read_manifest(path)
    own = rank if state_file(rank) in manifest.files else 0
    tree = _read_tree(path, own)
    if own != rank:
        tree["rng"] = None
    with _reading(path):
        rest = load_file(path / rest_file(own)) if rest_file(own) in manifest.files else {}
        if manifest.sharded or (parts is not None and needs_parts(parts)):
            tensors, shards = read_parts(path, tree, parts)
            return TrainingState(tree=tree, tensors=tensors | rest, shards=shards)
        tensors = dict(rest)
        for group in GROUPS:
            if (name := f"{group}.safetensors") in manifest.files:
                prefix = MODEL if group == "model" else ""
                tensors |= {f"{prefix}{key}": tensor for key, tensor in load_file(path / name).items()}
    return TrainingState(tree=tree, tensors=tensors)


def notes_of_ranks(path: Path) -> list[Any]:
    """Notes of all ranks of the run that wrote a checkpoint, by rank."""
    names = read_manifest(path).files
    found: list[Any] = []
    while state_file(rank := len(found)) in names:
        with _reading(path):
            tensors = load_file(path / rest_file(rank)) if rest_file(rank) in names else {}
        found.append(TrainingState(tree=_read_tree(path, rank), tensors=tensors).notes)
    return found


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise StateError(f"cannot read checkpoint {path}: {error}") from error


def _read_tree(path: Path, rank: int) -> dict[str, Any]:
    name = state_file(rank)
    try:
        record = json.loads((path / name).read_bytes())
        version, tree = record["version"], record["tree"]
        if version != STATE_VERSION or not isinstance(tree, dict) or "exempt" not in tree:
            raise StateError(f"{name} has version {version!r}; this stayfinite reads {STATE_VERSION}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, StateError):
            raise
        raise StateError(f"{name} is damaged: {type(error).__name__}: {error}") from error
    return tree


def _each(path: Path) -> Iterator[tuple[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            for key in file.keys():  # noqa: SIM118
                yield key, file.get_tensor(key)
    except (SafetensorError, OSError) as error:
        raise StateError(f"cannot load {path.name}: {error}") from error
