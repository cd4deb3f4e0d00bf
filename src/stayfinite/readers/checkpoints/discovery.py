"""Group the files of a directory into checkpoints, by names and first bytes only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.checkpoints.formats import safetensors
from stayfinite.readers.checkpoints.formats.dcp import TABLE
from stayfinite.readers.checkpoints.formats.opening import SUFFIXES
from stayfinite.readers.checkpoints.steps import step_in_name
from stayfinite.readers.pickles.torch_files import looks_old

_DEEPEST = 12
_MOST_ENTRIES = 200_000
_PASSED_OVER = frozenset({"__pycache__", "incidents", "node_modules", "wandb", "site-packages"})
_KNOWN = lazy_regex(
    r"(pytorch_model|model|diffusion_pytorch_model|adapter_model|optimizer|scheduler|scaler|ema|rest|rng_state|"
    r"random_states"
    r"|consolidated|training_args|model_optim_rng|distrib_optim|value_head|v_head|pytorch_lora_weights)"
    r"([-_.]?\d*)*(-of-\d+)?\.(safetensors|bin|pt|pth|ckpt)|.*_(model|optim)_states\.pt|.*\.distcp"
)
_SIGNS = frozenset({"trainer_state.json", "manifest.json", "adapter_config.json", "model_index.json", TABLE, "latest"})
_BOOKKEEPING = lazy_regex(r"(training_args|random_states.*)\.(bin|pkl)")


@dataclass(slots=True)
class Group:
    """One checkpoint: a file, or a directory with its relevant files."""

    path: Path
    files: list[Path] = field(default_factory=list)
    tables: list[Path] = field(default_factory=list)
    """The ``.metadata`` files of torch.distributed.checkpoint."""

    indices: list[Path] = field(default_factory=list)


@dataclass(slots=True)
class _Folder:
    path: Path
    names: list[str]
    folders: list[_Folder] = field(default_factory=list)
    closed: list[Path] = field(default_factory=list)
    """Unreadable directories named like checkpoints."""

    def below(self) -> Iterator[_Folder]:
        yield self
        for folder in self.folders:
            yield from folder.below()


def discover(path: Path) -> list[Group]:
    """Return the checkpoint that the path is, or all below it. Raises OSError if the path cannot be read."""
    if not path.is_dir():
        path.stat()
        return [Group(path, [path])]
    return [group for group in _groups(_walk(path)) if group.files or group.tables]


def _walk(path: Path) -> _Folder:
    seen: set[tuple[int, int]] = set()
    left = _MOST_ENTRIES

    def enter(path: Path, depth: int) -> _Folder:
        nonlocal left
        folder = _Folder(path, [])
        with os.scandir(path) as entries:
            # Prefer the target of a symlink if both are found.
            found = sorted(entries, key=lambda entry: (entry.is_symlink(), entry.name))
        left -= len(found)
        for entry in found:
            try:
                if not entry.is_dir():
                    folder.names.append(entry.name)
                    continue
                status = entry.stat()
                identity = (status.st_dev, status.st_ino)
                if identity in seen or depth > _DEEPEST or left < 0:
                    continue
                seen.add(identity)
                if entry.name not in _PASSED_OVER and not entry.name.startswith("."):
                    folder.folders.append(enter(Path(entry.path), depth + 1))
            except OSError:
                if step_in_name(entry.name) is not None:
                    folder.closed.append(Path(entry.path))
        return folder

    status = path.stat()
    seen.add((status.st_dev, status.st_ino))
    return enter(path, 0)


def _groups(folder: _Folder) -> Iterator[Group]:
    if _claims_all_below(folder):
        yield _collect(folder.path, list(folder.below()))
        return
    own = _collect(folder.path, [folder])
    if not _together(folder, own):
        loose = [path for path in own.files if not _BOOKKEEPING.fullmatch(path.name)]
        yield from (Group(path, [path]) for path in loose)
    else:
        alone = [path for path in own.files if _stands_alone(path)]
        own.files = [path for path in own.files if path not in alone]
        yield own
        yield from (Group(path, [path]) for path in alone)
    yield from (Group(path, [path]) for path in folder.closed)
    for each in folder.folders:
        yield from _groups(each)


def _claims_all_below(folder: _Folder) -> bool:
    """A directory named after a step, or a pipeline, is one checkpoint with all its subdirectories."""
    if "model_index.json" in folder.names:
        return True
    step = step_in_name(folder.path.name)
    others = {step_in_name(each.path.name) for each in folder.below() if each is not folder}
    if step is None:
        # DeepSpeed and FSDP put subdirectories into a checkpoint that the user has named.
        return "latest" in folder.names and "trainer_state.json" in folder.names and len(others - {None}) <= 1
    return others <= {None, step}


def _together(folder: _Folder, group: Group) -> bool:
    if group.tables or group.indices or _SIGNS & set(folder.names):
        return True
    return any(_KNOWN.fullmatch(path.name) for path in group.files)


def _stands_alone(path: Path) -> bool:
    return not _KNOWN.fullmatch(path.name) and (step_in_name(path.name) is not None or path.suffix == ".ckpt")


def _collect(path: Path, folders: list[_Folder]) -> Group:
    group = Group(path)
    for folder in folders:
        for name in folder.names:
            file = folder.path / name
            if name == TABLE:
                group.tables.append(file)
            elif name.endswith(".index.json"):
                group.indices.append(file)
            elif name.endswith(SUFFIXES) and (not name.endswith(".bin") or _is_checkpoint(file)):
                group.files.append(file)
    return group


def _is_checkpoint(path: Path) -> bool:
    """Whether a ``.bin`` file, which may be anything, is a checkpoint."""
    if _KNOWN.fullmatch(path.name):
        return True
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            head = file.read(64)
        return head.startswith(b"PK\x03\x04") or looks_old(head) or safetensors.looks_like(head, path.stat().st_size)
    except OSError:
        return False
