"""Group files into checkpoints and read their structure without values; needs no torch and takes milliseconds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.checkpoints.facts import CheckpointFacts, FileFacts
from stayfinite.readers.checkpoints.formats import dcp, safetensors
from stayfinite.readers.checkpoints.formats.dcp import TABLE
from stayfinite.readers.checkpoints.formats.opening import SUFFIXES, open_regular, read_file
from stayfinite.readers.checkpoints.sidecars import (
    MANIFEST,
    check_index,
    check_numbers,
    expect_hashes,
    read_json,
    step_in_name,
    step_of,
)
from stayfinite.readers.malformed import Malformed
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


def read_structure(paths: Iterable[Path]) -> list[CheckpointFacts]:
    """Return all checkpoints at the paths, in write order. Raises OSError if a path cannot be read."""
    groups: dict[Path, Group] = {}
    for path in paths:
        for group in discover(path):
            groups.setdefault(group.path.absolute(), group)
    found = [_read_group(group) for group in groups.values()]
    return sorted(found, key=lambda each: (each.step is None, each.step or 0, each.order, str(each.path)))


def _read_group(group: Group) -> CheckpointFacts:
    facts = CheckpointFacts(path=group.path, kind=_kind(group))
    facts.order = max((_written(path) for path in [*group.files, *group.tables]), default=0.0)
    tabled: set[Path] = set()
    for table in group.tables:
        tabled |= _read_table(table, group.path, facts)
    loose = [path for path in group.files if path.suffix == ".distcp" and path not in tabled]
    if loose and not group.tables:
        text = f"{TABLE} is missing next to {len(loose)} .distcp files: writing was interrupted"
        facts.complain("incomplete", text)
    facts.files += [read_file(path) for path in group.files if path.suffix != ".distcp"]
    _check_folders(group, facts)
    facts.step = step_of(group.path, facts.files)
    facts.exempt = _exempt(group.path) if facts.kind != "file" else frozenset()
    _check_deepspeed(facts)
    return facts


def _check_folders(group: Group, facts: CheckpointFacts) -> None:
    """Check indices, shards and hashes of each directory."""
    folders: dict[Path, dict[str, FileFacts]] = {}
    for file in facts.files:
        folders.setdefault(file.path.parent, {})[file.path.name] = file
    indexed = {index.parent for index in group.indices}
    for index in group.indices:
        check_index(index, folders.get(index.parent, {}), facts)
    if facts.kind != "file":
        for folder, files in folders.items():
            check_numbers(files, folder in indexed or (folder / MANIFEST).is_file(), facts)
    for folder, files in folders.items():
        expect_hashes(folder, files, facts)


def _read_table(table: Path, root: Path, facts: CheckpointFacts) -> set[Path]:
    """Read a ``.metadata`` index and the files that it names."""
    folder = table.parent
    prefix = "" if folder == root else f"{folder.relative_to(root)}/"
    try:
        with open_regular(table) as opened:
            files = dcp.read(folder, opened, facts, prefix)
    except (Malformed, OSError) as error:
        text = f"cannot read {prefix}{TABLE}: {getattr(error, 'text', None) or error}"
        facts.complain(getattr(error, "kind", "unreadable"), text)
        return set()
    done = set()
    for name, pieces in sorted(files.items()):
        path = folder / name
        if not path.exists():
            continue
        file = FileFacts(path=path, format="dcp")
        try:
            with open_regular(path) as opened:
                file.size = os.fstat(opened.fileno()).st_size
                dcp.read_file(opened, file, pieces)
        except (Malformed, OSError) as error:
            file.complain("unreadable", f"cannot read it: {getattr(error, 'text', None) or error}")
        facts.files.append(file)
        done.add(path)
    return done


def _check_deepspeed(facts: CheckpointFacts) -> None:
    """Check that every ZeRO rank's optimizer file is present."""
    if facts.kind != "file":
        latest = facts.path / "latest"
        if latest.is_file() and latest.stat().st_size < 200:
            name = latest.read_text(encoding="utf-8", errors="replace").strip()
            if name and "/" not in name and not (facts.path / name).exists():
                facts.complain("incomplete", f"{name} is missing, but the file `latest` names it")
    models = [file for file in facts.files if file.path.name.endswith("_model_states.pt")]
    optims = [file for file in facts.files if file.path.name.endswith("_optim_states.pt")]
    ranks = max((file.marks.get("dp_world_size", 0) for file in models), default=0)
    ranks *= max((file.marks.get("mp_world_size", 1) for file in models), default=1)
    if optims and len(optims) < ranks:
        text = f"{ranks - len(optims)} of {ranks} ranks' _optim_states.pt are missing"
        facts.complain("incomplete", text)


def _kind(group: Group) -> str:
    if group.files == [group.path]:
        return "file"
    manifest = read_json(group.path / MANIFEST)
    if isinstance(manifest, dict) and "written_as" in manifest:
        return "stayfinite"
    if any(path.name.endswith("_model_states.pt") for path in group.files):
        return "deepspeed"
    if (group.path / "trainer_state.json").exists() or (group.path / "config.json").exists():
        return "transformers"
    return "dcp" if group.tables else "directory"


def _exempt(path: Path) -> frozenset[str]:
    """Buffers that our manifest lists as infinite from the start."""
    state = read_json(path / "state.json")
    tree = state.get("tree") if isinstance(state, dict) else None
    names = tree.get("exempt") if isinstance(tree, dict) else None
    return frozenset(str(name).removeprefix("model.") for name in names) if isinstance(names, list) else frozenset()


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
