"""Project defaults: `[tool.stayfinite]` in pyproject.toml, or stayfinite.toml, in this folder or above."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from stayfinite.core.policy import Policy
from stayfinite.errors import PolicyError, UsageError
from stayfinite.inspection.ignoring import known_code, require_reason
from stayfinite.readers.configs.files import as_text, read_content
from stayfinite.rules.cards import card_asked_for

NAMES = ("stayfinite.toml", "pyproject.toml")  # in order of precedence within a folder

KEYS = ("paths", "gpu", "ignore", "policy")
_POLICIES: dict[str, Callable[[], Policy]] = {
    "protect": Policy,
    "refuse_spikes": Policy.refuse_spikes,
    "only_nonfinite": Policy.only_nonfinite,
    "watch": Policy.watch,
    "strict": Policy.strict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The content of a project file; all empty if there is none."""

    file: Path | None = None
    paths: tuple[tuple[str, ...], ...] = ()
    """What `stayfinite check` reads without arguments: the files of each run."""
    gpu: str | None = None
    ignore: Mapping[str, str] = field(default_factory=dict)
    """Reasons by code."""
    policy: Policy | None = None
    """The policy of `stayfinite doctor --guard`."""

    @property
    def folder(self) -> Path:
        """The base of its relative paths."""
        return self.file.parent if self.file is not None else Path()


def find_project() -> Project:
    """Read the project file of this folder or the nearest one above. Raises UsageError if invalid."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        for name in NAMES:
            if (folder / name).is_file():
                try:
                    text = as_text(read_content(folder / name).data) or ""
                except UsageError:
                    if folder == here:
                        raise
                    continue  # an unreadable folder of another user
                table = _table(folder / name, text)
                if table is not None:
                    return _project(folder / name, table)
    return Project()


def _table(file: Path, text: str) -> dict[str, Any] | None:
    """The stayfinite table of the file; None for a pyproject.toml without one."""
    if file.name == "pyproject.toml" and "stayfinite" not in text:
        return None
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not valid TOML: {error}", fix="fix the file") from None
    if file.name == "stayfinite.toml":
        return data
    tool = data.get("tool")
    table = tool.get("stayfinite") if isinstance(tool, dict) else None
    return table if table is None or isinstance(table, dict) else {"": table}


def _project(file: Path, table: dict[str, Any]) -> Project:
    for key in table:
        if key not in KEYS:
            raise _unknown(file, key, KEYS)
    gpu = table.get("gpu")
    if gpu is not None:
        _require(isinstance(gpu, str), file, "gpu", gpu, 'a GPU: gpu = "A100"')
        try:
            card_asked_for(gpu)
        except UsageError as error:
            raise UsageError(f"{file}: gpu: {error.message}", fix=error.fix) from None
    return Project(
        file=file,
        paths=_paths(file, table.get("paths", [])),
        gpu=gpu,
        ignore=_ignored(file, table.get("ignore", {})),
        policy=_policy(file, table.get("policy")),
    )


def _paths(file: Path, paths: Any) -> tuple[tuple[str, ...], ...]:
    """Each entry is one run: a file, a pattern (one run per match), or a list of files."""
    expected = 'a list of files, patterns, or lists of files: paths = ["configs/*.yaml", ["train.py", "ds.json"]]'
    _require(isinstance(paths, list), file, "paths", paths, expected)
    runs: list[tuple[str, ...]] = []
    for entry in paths:
        if isinstance(entry, str) and any(mark in entry for mark in "*?["):
            found = sorted(file.parent.glob(entry.removeprefix("./"))) if not entry.startswith("/") else []
            if not found:
                raise UsageError(f"{file}: paths: {entry!r} matches no file", fix="correct the pattern, or remove it")
            runs.extend((_shown(each),) for each in found if each.is_file())
        elif isinstance(entry, str):
            runs.append((_shown(file.parent / entry),))
        else:
            whole = isinstance(entry, list) and entry and all(isinstance(each, str) for each in entry)
            _require(bool(whole), file, "paths", entry, expected)
            runs.append(tuple(_shown(file.parent / each) for each in entry))
    return tuple(dict.fromkeys(runs))


def _shown(path: Path) -> str:
    """The path as a person would type it here."""
    try:
        return os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)


def _ignored(file: Path, table: Any) -> dict[str, str]:
    example = 'ignore = { SF201 = "the rate is scaled by the batch size" }'
    _require(isinstance(table, dict), file, "ignore", table, f"codes, each with a reason: {example}")
    found = {}
    for word, reason in table.items():
        code = known_code(word, f"{file}: ignore")
        require_reason([code], reason, f"{file}: ignore", 'ignore = {{ {code} = "why it is fine here" }}')
        found[code] = reason.strip()
    return found


def _policy(file: Path, value: Any) -> Policy | None:
    if value is None:
        return None
    if isinstance(value, str):
        if value not in _POLICIES:
            raise _unknown(file, value, _POLICIES, what="policy")
        return _POLICIES[value]()
    _require(isinstance(value, dict), file, "policy", value, 'a name, policy = "strict", or a table of settings')
    known = [each.name for each in fields(Policy)]
    for key in value:
        if key not in known:
            raise _unknown(file, key, known, what="setting of a policy")
    try:
        return Policy(**value)
    except PolicyError as error:
        raise UsageError(f"{file}: policy: {error.message}", fix=error.fix) from None


def _unknown(file: Path, word: str, known: Iterable[str], what: str = "key") -> UsageError:
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    return UsageError(f"{file}: unknown {what} {word!r}", fix=hint)


def _require(good: bool, file: Path, key: str, value: Any, expected: str) -> None:
    if not good:
        raise UsageError(f"{file}: {key} = {str(value)[:60]!r} is not understood", fix=f"give {expected}")
