"""What a project sets: its defaults, and findings ignored for a stated reason, there or by a comment on their line."""

import difflib
import io
import os
import re
import tokenize
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from stayfinite.core.finding import Finding
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.policy import Policy
from stayfinite.errors import PolicyError, UsageError
from stayfinite.inspection.inspection import Ignored, Inspection
from stayfinite.inspection.notes import Line
from stayfinite.readers.configs.files import as_text, read_content
from stayfinite.rules.cards import card_asked_for
from stayfinite.rules.registry import rule_of

_COMMENT = lazy_regex(r"(?:#|//|;)\s*stayfinite:\s*ignore\b(?P<codes>\[[^\]]*\])?(?P<reason>.*)")
_EVIDENCE = lazy_regex(r"(?P<where>[^\n]*?:\d+): ")


class BadIgnore(UsageError):
    """A finding is ignored without a reason, or does not exist."""


@dataclass(frozen=True, slots=True)
class Remark:
    """`# stayfinite: ignore[SF201] reason` in a file."""

    where: str
    """Location of the comment."""
    codes: tuple[str, ...]
    reason: str
    covers: frozenset[str]
    """Locations it applies to: its own line or, if the comment is alone on it, the next."""


def remarks_in(text: str, name: str, kind: str) -> list[Remark]:
    """The ignore comments of a file. Raises BadIgnore for one without codes or reason."""
    if "stayfinite:" not in text:
        return []
    found = []
    for number, line, at in _comments(text, kind):
        match = _COMMENT.match(line, at)
        if match is None:
            continue
        where = f"{name}:{number}"
        words = (match["codes"] or "[]")[1:-1].replace(",", " ").split()
        if not words:
            raise BadIgnore(f"{where}: ignore without a code", fix="# stayfinite: ignore[SF201] why it is fine here")
        reason = match["reason"].strip(' \t\\,:"-')
        codes = tuple(known_code(word, where) for word in words)
        require_reason(codes, reason, where, "# stayfinite: ignore[{code}] why it is fine here")
        alone = not line[:at].strip(" \t\"'")
        found.append(Remark(where, codes, reason, frozenset({where, f"{name}:{number + 1}"} if alone else {where})))
    return found


def known_code(word: str, where: str) -> str:
    """The code of a rule given by code or slug. Raises BadIgnore with the location."""
    try:
        return rule_of(word).code
    except UsageError as error:
        raise BadIgnore(f"{where}: {error.message}", fix=error.fix) from None


def require_reason(codes: Sequence[str], reason: Any, where: str, example: str) -> None:
    """Raise BadIgnore if there is no reason."""
    if not isinstance(reason, str) or not reason.strip():
        raise BadIgnore(f"{where}: {', '.join(codes)} ignored without a reason", fix=example.format(code=codes[0]))


def _comments(text: str, kind: str) -> Iterator[tuple[int, str, int]]:
    """``(line number, line, column)`` of each possible comment."""
    if kind == "script":
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    yield token.start[0], token.line.split("\n")[0], token.start[1]
        except (tokenize.TokenError, SyntaxError):
            return  # the part before the syntax error has been read
        return
    for number, line in enumerate(text.split("\n"), 1):
        found = re.search(r"(?:#|//|;)\s*stayfinite:", line)
        if found:
            yield number, line, found.start()


def without_ignored(
    found: Inspection, *, project: Mapping[str, str] | None = None, remarks: Iterable[Remark] = ()
) -> Inspection:
    """Move ignored findings to ``ignored``, and report comments that ignore nothing.

    ``project`` has reasons by code, for findings anywhere; ``remarks`` are comments, for findings on their lines.
    """
    project, remarks = project or {}, list(remarks)
    kept: list[Finding] = []
    ignored: list[Ignored] = []
    used: set[str] = set()
    for finding in found.findings:
        if finding.code in project:
            ignored.append(Ignored(finding, project[finding.code], "project file"))
            continue
        mine = [remark for remark in remarks if finding.code in remark.codes]
        left = finding
        for remark in mine:
            if _places(left) & remark.covers:
                used.add(remark.where)
                rest = _elsewhere(left, remark.covers)
                if rest is None:
                    ignored.append(Ignored(left, remark.reason, remark.where))
                    break
                left = rest
        else:
            kept.append(left)
    lines = [_as_ignored(line, ignored, kept) for line in found.lines]
    for remark in remarks:
        if remark.where not in used:
            what = f"unused: no {' or '.join(remark.codes)} here ({remark.where})"
            lines.append(Line(status="note", group="Ignored", title="ignore comments", seen=what))
    return replace(found, findings=kept, lines=lines, ignored=[*found.ignored, *ignored])


def _places(finding: Finding) -> set[str]:
    matches = (_EVIDENCE.match(line) for line in finding.evidence)
    return {finding.where, *(each["where"] for each in matches if each)}


def _elsewhere(finding: Finding, covered: frozenset[str]) -> Finding | None:
    """The finding without evidence from these locations; None if no evidence is left."""
    left = []
    for line in finding.evidence:
        match = _EVIDENCE.match(line)
        if match is None or match["where"] not in covered:
            left.append((match["where"] if match else "", line))
    where = next((place for place, _ in left if place), None)
    if where is None:
        return None
    return replace(finding, where=where, evidence=tuple(line for _, line in left), place=None)


def _as_ignored(line: Line, ignored: Sequence[Ignored], kept: Sequence[Finding]) -> Line:
    reason = next((each.reason for each in ignored if each.finding.code == line.code), None)
    if not line.code or reason is None or any(finding.code == line.code for finding in kept):
        return line
    return replace(line, status="skip", seen=f"{line.code} ignored: {reason}", code="", fix="")


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
