"""What lies beside the files of a checkpoint: its step, the SHA-256 hashes, the index of its shards."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.checkpoints.facts import CheckpointFacts, FileFacts
from stayfinite.readers.checkpoints.formats.opening import open_regular
from stayfinite.readers.malformed import Malformed

_WORDS = r"global_?step|checkpoint|ckpt|steps?|iter|iteration|update|ba"
_IN_NAME = lazy_regex(rf"(?:^|[-_.=])(?:{_WORDS})[-_=]?(\d+)(?=$|[-_.])", re.IGNORECASE)
_FAIRSEQ = lazy_regex(r"checkpoint_\d+_(\d+)\.pt")
LARGEST_JSON = 64 << 20


def step_in_name(name: str) -> int | None:
    """Read the step from a name: ``checkpoint-500``, ``epoch=1-step=20.ckpt``, ``iter_0000100``."""
    if fairseq := _FAIRSEQ.fullmatch(name):
        return int(fairseq[1])
    found = _IN_NAME.findall(name)
    return int(found[-1]) if found and len(found[-1]) < 16 else None


def step_of(path: Path, files: list[FileFacts]) -> int | None:
    """The step of a checkpoint, from its metadata, else its name, else its files."""
    if path.is_dir():
        for name, key in (("manifest.json", "step"), ("trainer_state.json", "global_step"), ("state.json", "step")):
            noted = read_json(path / name)
            if isinstance(noted, dict) and type(noted.get(key)) is int and 0 <= noted[key] < 1 << 62:
                return int(noted[key])
    if (named := step_in_name(path.name)) is not None:
        return named
    for file in files:
        for key in ("global_step", "global_steps", "step", "iteration", "iter_num", "iter", "num_updates", "steps"):
            if key in file.marks:
                return file.marks[key]
    return None


def read_json(path: Path) -> Any:
    """Read a small JSON file; None if missing or unreadable."""
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_JSON:
            return None
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


_LINE = lazy_regex(r"(?:SHA256 \((?P<bsd>[^)]+)\) = )?(?P<sum>[0-9a-fA-F]{64})(?:\s+\*?(?P<name>\S.*))?")
_LISTS = ("SHA256SUMS", "SHA256SUMS.txt", "sha256sums.txt", "sha256sum.txt", "checksums.sha256", "checksum.sha256")
MANIFEST = "manifest.json"
PIECE = 4 << 20


def expect_hashes(directory: Path, files: dict[str, FileFacts], into: CheckpointFacts) -> None:
    """Set the expected hash of each file from our manifest, ``FILE.sha256`` or ``SHA256SUMS``."""
    for name in _LISTS:
        for file, digest in _sums(directory / name).items():
            _expect(files, file, digest, name)
    for file in list(files):
        own = _sums(directory / f"{file}.sha256")
        for digest in own.values():
            _expect(files, file, digest, f"{file}.sha256")
    manifest = read_json(directory / MANIFEST)
    if isinstance(manifest, dict) and "written_as" in manifest:
        _of_manifest(directory, manifest, files, into)


def check_hash(facts: FileFacts, on_bytes: Callable[[int], object] = id) -> None:
    """Report a file whose hash differs from the expected one."""
    digest = hashlib.sha256()
    try:
        with open_regular(facts.path) as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                on_bytes(len(piece))
    except (OSError, Malformed) as error:
        facts.complain("unreadable", f"cannot read it: {getattr(error, 'strerror', None) or error}")
        return
    if digest.hexdigest() != facts.sha256:
        found, wanted = digest.hexdigest()[:12], str(facts.sha256)[:12]
        facts.complain("hash", f"its SHA-256 is {found}…, but {facts.vouched_by} says {wanted}…: it was modified")


def _of_manifest(
    directory: Path, manifest: dict[str, object], files: dict[str, FileFacts], into: CheckpointFacts
) -> None:
    listed = manifest.get("files")
    if manifest.get("good") is not True or not isinstance(listed, dict):
        into.complain("damaged", f"its {MANIFEST} does not mark it as good")
        return
    for name, entry in listed.items():
        path = directory / str(name)
        size = entry.get("bytes") if isinstance(entry, dict) else None
        if "/" in str(name):
            continue
        if not path.is_file():
            into.complain("incomplete", f"{name} is missing; {MANIFEST} lists it")
        elif path.stat().st_size != size:
            text = f"{name} has {path.stat().st_size:,} bytes, expected {size}"
            into.complain("truncated", text)
        elif isinstance(entry, dict) and isinstance(entry.get("sha256"), str):
            if name not in files and into.kind == "file":
                continue
            if name not in files:
                files[name] = FileFacts(path=path, size=path.stat().st_size, format="json")
                into.files.append(files[name])
            _expect(files, name, entry["sha256"], MANIFEST)


def _expect(files: dict[str, FileFacts], name: str, digest: str, source: str) -> None:
    if name in files:
        files[name].sha256 = digest.lower()
        files[name].vouched_by = source


def _sums(path: Path) -> dict[str, str]:
    try:
        if not path.is_file() or path.stat().st_size > 1 << 20:
            return {}
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        if match := _LINE.fullmatch(line.strip()):
            name = match["bsd"] or match["name"] or path.name.removesuffix(".sha256")
            found[name.removeprefix("./")] = match["sum"]
    return found


_NUMBERED = lazy_regex(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.\w+)")


def check_index(index: Path, files: Mapping[str, FileFacts], into: CheckpointFacts) -> None:
    """Compare a ``model.safetensors.index.json`` with the files next to it, and report problems to ``into``."""
    record = read_json(index)
    mapping = record.get("weight_map") if isinstance(record, dict) else None
    if not isinstance(mapping, dict) or not all(isinstance(each, str) for each in mapping.values()):
        into.complain("damaged", f"{index.name} is damaged: it has no weight_map")
        return
    expected: dict[str, set[str]] = {}
    for name, file in mapping.items():
        expected.setdefault(file, set()).add(name)
    for file, names in sorted(expected.items()):
        if file not in files:
            first = min(names)
            into.complain(
                "incomplete", f"{file} is missing; {index.name} lists {len(names)} tensors in it, first {first}"
            )
        elif not files[file].troubles:
            _compare(index.name, file, names, {place.name for place in files[file].places}, into)
    _check_total(index.name, record.get("metadata"), [files[file] for file in expected if file in files], into)


def check_numbers(files: Mapping[str, FileFacts], indexed: bool, into: CheckpointFacts) -> None:
    """Report missing shards of files numbered "3 of 5", unless an index was checked."""
    groups: dict[tuple[str, str, str], set[int]] = {}
    for name in files:
        if match := _NUMBERED.fullmatch(name):
            groups.setdefault((match["stem"], match["count"], match["suffix"]), set()).add(int(match["number"]))
    for (stem, count, suffix), numbers in groups.items():
        # transformers counts from 1, others from 0.
        first = 0 if 0 in numbers else 1
        missing = [number for number in range(first, first + min(int(count), 100_000)) if number not in numbers]
        if missing and not indexed:
            name = f"{stem}-{missing[0]:05d}-of-{count}{suffix}"
            into.complain("incomplete", f"{len(missing)} of {int(count)} shards are missing, first {name}")
        elif stem == "model" and suffix == ".safetensors" and not indexed and into.kind == "transformers":
            into.complain("incomplete", "model.safetensors.index.json is missing: tensors cannot be assigned to shards")


def _compare(index: str, file: str, expected: set[str], there: set[str], into: CheckpointFacts) -> None:
    if missing := sorted(expected - there):
        text = f"{file} lacks {len(missing)} tensors listed in {index}, first {missing[0]}"
        into.complain("incomplete", text)
    if extra := sorted(there - expected):
        text = f"{file} holds {len(extra)} tensors not listed in {index}, first {extra[0]}"
        into.complain("incomplete", text)


def _check_total(index: str, metadata: object, files: list[FileFacts], into: CheckpointFacts) -> None:
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(total, bool) or not isinstance(total, int | float) or not 0 <= total < 1 << 62:
        return
    if any(file.format != "safetensors" for file in files):
        return
    found = sum(place.nbytes for file in files for place in file.places)
    if total != found and not into.troubles and not any(file.troubles for file in files):
        # Loaders ignore this number, and converters often leave it outdated.
        into.complain("note", f"{index} says {total:,} bytes in total, the tensors have {found:,}")
