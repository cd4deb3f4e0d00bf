"""Expected and actual SHA-256 hashes of checkpoint files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.checkpoints.facts import CheckpointFacts, FileFacts, Trouble
from stayfinite.readers.checkpoints.formats.opening import open_regular
from stayfinite.readers.checkpoints.steps import read_json
from stayfinite.readers.malformed import Malformed

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
        into.troubles.append(Trouble(kind="damaged", text=f"its {MANIFEST} does not mark it as good"))
        return
    for name, entry in listed.items():
        path = directory / str(name)
        size = entry.get("bytes") if isinstance(entry, dict) else None
        if "/" in str(name):
            continue
        if not path.is_file():
            into.troubles.append(Trouble(kind="incomplete", text=f"{name} is missing; {MANIFEST} lists it"))
        elif path.stat().st_size != size:
            text = f"{name} has {path.stat().st_size:,} bytes, expected {size}"
            into.troubles.append(Trouble(kind="truncated", text=text))
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
