"""`check --fix`: change single values in config files. Each change is confirmed by a second check."""

import difflib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.errors import UsageError
from stayfinite.inspection.files.inspecting import inspect_files
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.inspection import Inspection
from stayfinite.inspection.notes import Edit
from stayfinite.readers.configs.files import kind_of
from stayfinite.readers.configs.reading import settings_of_kind
from stayfinite.readers.configs.spans import spans_of

FIXABLE = ("yaml", "json", "toml", "ini")


@dataclass(slots=True)
class Fixes:
    """Safe changes, and findings left to a person."""

    before: dict[str, str] = field(default_factory=dict)
    """Original texts of the changed files."""
    after: dict[str, str] = field(default_factory=dict)
    fixed: list[Finding] = field(default_factory=list)
    left: list[tuple[Finding, str]] = field(default_factory=list)
    """Remaining findings, each with the reason."""

    def diff(self) -> str:
        """All changes as one unified diff."""
        lines: list[str] = []
        for path, text in self.after.items():
            lines += difflib.unified_diff(_lines(self.before[path]), _lines(text), f"a/{path}", f"b/{path}")
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    def write(self) -> list[str]:
        """Write the changed files atomically and return their names.

        Raises UsageError if one is not writable or has changed since the diff.
        """
        for path, text in self.after.items():
            if _read(path) != self.before[path]:
                raise UsageError(f"{path} was modified meanwhile: not written", fix="run the command again")
            _replace(Path(path).resolve(), text)
        return list(self.after)


def add_fixes(fixes: Fixes, arguments: Sequence[str], found: Inspection, *, gpu: str | None = None) -> None:
    """Try every suggested change; keep those that remove their finding and add no other."""
    now = inspect_files(arguments, gpu=gpu, instead=fixes.after) if fixes.after else found
    for finding in found.findings:
        edits = [edit for edit in found.edits if edit.cause == finding.cause]
        if not any(each.cause == finding.cause for each in now.findings):
            fixes.fixed.append(finding)  # already fixed by an earlier change
            continue
        reason = "it needs a decision" if not edits else ""
        for edit in edits:
            reason = _refusal(edit)
            tried = None if reason else _applied(edit, fixes)
            if tried is None:
                reason = reason or "the value was not found on its line"
                continue
            again = _look_again(arguments, fixes, edit.setting.source, tried, gpu)
            if again is None or not _better(now, again, finding):
                reason = "the change alone does not fix it"
                continue
            path = edit.setting.source
            fixes.before.setdefault(path, _read(path) or "")
            fixes.after[path] = tried
            now, reason = again, ""
            break
        if reason:
            fixes.left.append((finding, reason))
        else:
            fixes.fixed.append(finding)


def _refusal(edit: Edit) -> str:
    """Why a setting must not be changed; empty if it may."""
    path = edit.setting.source
    text = _read(path)
    if text is None:
        return "it is set in the command" if not Path(path).exists() else f"{path} is not UTF-8 text"
    kind = kind_of(path, text[:4096].encode())
    return "" if kind in FIXABLE else f"{path} is not a config file: change it by hand"


def _applied(edit: Edit, fixes: Fixes) -> str | None:
    """The file with this change; None if reading it again shows any other difference."""
    path, setting = edit.setting.source, edit.setting
    text = fixes.after.get(path) or _read(path) or ""
    kind = kind_of(path, text[:4096].encode())
    lines = _lines(text)
    if not 0 < setting.line <= len(lines):
        return None
    line = lines[setting.line - 1]
    spans = spans_of(line, setting.name)
    if spans is None:
        return None
    span = spans[0] if edit.name else spans[1]
    old = line[span.start : span.end]
    new = edit.name or _written(edit.value, old, kind)
    lines[setting.line - 1] = line[: span.start] + new + line[span.end :]
    changed = "".join(lines)
    before, after = (list(settings_of_kind(kind, each, path)) for each in (text, changed))
    if len(before) != len(after):
        return None
    others = [(one, two) for one, two in zip(before, after, strict=True) if one != two]
    if len(others) != 1 or others[0][0].name != setting.name or others[0][0].line != setting.line:
        return None
    good = last_step(others[0][1]) == edit.name if edit.name else others[0][1].value == edit.value
    return changed if good else None


def _written(value: Any, old: str, kind: str) -> str:
    """A value in the style of the one it replaces."""
    if isinstance(value, bool):
        words = ("True", "False") if old in ("True", "False") else ("true", "false")
        return words[0] if value else words[1]
    if isinstance(value, str):
        quote = old[:1] if old[:1] in ("'", '"') else ""
        if quote == "'":
            return f"'{value}'"
        return json.dumps(value) if quote or kind in ("json", "toml") else value
    return repr(value)


def _look_again(arguments: Sequence[str], fixes: Fixes, path: str, text: str, gpu: str | None) -> Inspection | None:
    """Check the files again with the changes made."""
    try:
        return inspect_files(arguments, gpu=gpu, instead=fixes.after | {path: text})
    except UsageError:
        return None


def _better(before: Inspection, after: Inspection, finding: Finding) -> bool:
    """Whether the finding is gone and no cause is new."""
    causes = {each.cause for each in before.findings}
    return all(each.cause in causes and each.cause != finding.cause for each in after.findings)


def _lines(text: str) -> list[str]:
    """Lines with their ends, split as the readers count them; `splitlines` knows more line ends."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_bytes().decode("utf-8")
    except (OSError, ValueError):
        return None


def _replace(path: Path, text: str) -> None:
    """Write to a temporary file and rename it; mode and owner are kept."""
    try:
        status = path.stat()
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode("utf-8"))
                file.flush()
                os.fsync(file.fileno())
            Path(beside).chmod(status.st_mode & 0o7777)
            with suppress(OSError, AttributeError):
                os.chown(beside, status.st_uid, status.st_gid)
            Path(beside).replace(path)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
    except OSError as error:
        text = f"cannot write {path}: {error.strerror or error}"
        raise UsageError(text, fix=f"check permissions: ls -l {path}") from None
