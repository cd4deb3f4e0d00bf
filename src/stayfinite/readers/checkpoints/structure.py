"""Read the structure of checkpoints without their values; needs no torch and takes milliseconds."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from stayfinite.readers.checkpoints.discovery import Group, discover
from stayfinite.readers.checkpoints.facts import CheckpointFacts, FileFacts, Trouble
from stayfinite.readers.checkpoints.formats import dcp
from stayfinite.readers.checkpoints.formats.dcp import TABLE
from stayfinite.readers.checkpoints.formats.opening import open_regular, read_file
from stayfinite.readers.checkpoints.hashes import MANIFEST, expect_hashes
from stayfinite.readers.checkpoints.shard_index import check_index, check_numbers
from stayfinite.readers.checkpoints.steps import read_json, step_of
from stayfinite.readers.malformed import Malformed


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
        facts.troubles.append(Trouble(kind="incomplete", text=text))
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
        facts.troubles.append(Trouble(kind=getattr(error, "kind", "unreadable"), text=text))
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
                facts.troubles.append(
                    Trouble(kind="incomplete", text=f"{name} is missing, but the file `latest` names it")
                )
    models = [file for file in facts.files if file.path.name.endswith("_model_states.pt")]
    optims = [file for file in facts.files if file.path.name.endswith("_optim_states.pt")]
    ranks = max((file.marks.get("dp_world_size", 0) for file in models), default=0)
    ranks *= max((file.marks.get("mp_world_size", 1) for file in models), default=1)
    if optims and len(optims) < ranks:
        text = f"{ranks - len(optims)} of {ranks} ranks' _optim_states.pt are missing"
        facts.troubles.append(Trouble(kind="incomplete", text=text))


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
