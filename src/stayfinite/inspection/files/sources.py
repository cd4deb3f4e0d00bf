"""The inputs of `stayfinite check` and `diff`: files and commands, read but never executed."""

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Settings
from stayfinite.errors import UsageError
from stayfinite.inspection.files.names import last_step
from stayfinite.readers.configs import looks_like_config, read_config
from stayfinite.readers.configs.commands import looks_like_command, settings_of_command
from stayfinite.readers.configs.files import MOST_BYTES, as_text, kind_of, read_content
from stayfinite.readers.configs.program.state import Surroundings
from stayfinite.readers.configs.reading import settings_of_kind
from stayfinite.readers.configs.script_settings import syntax_error
from stayfinite.readers.configs.vocabulary import without_secrets
from stayfinite.rules.cards import Card

COMMAND = "command"  # source name of a command's settings

MOST_NAMED = 16  # limit of files that a command or config refers to


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One file or command of a run."""

    name: str
    """As given: a path, or `command`."""
    kind: str
    """`yaml`, `json`, `toml`, `ini`, `script`, `notebook`, `shell`, `pickle`, `notes` or `command`."""
    text: str
    """The raw text; empty for binary files."""
    settings: Settings
    named_by: str = ""
    """The source that refers to this one; empty if the user gave it."""


def read_sources(
    arguments: Sequence[str], card: Card | None = None, instead: Mapping[str, str] | None = None
) -> list[Source]:
    """Read the given files and commands, and the scripts and configs they refer to. Raises UsageError.

    Scripts are read for this GPU and command; ``instead`` replaces the text of some files.
    """
    instead = instead or {}
    commands = [_read_command(each) for each in arguments if _is_command(each)]
    flags = {setting.plain: setting for source in commands for setting in source.settings}
    flags |= {setting.name: setting for source in commands for setting in source.settings if setting.name.isupper()}
    surroundings = Surroundings(card=card, arguments=flags)
    given = [_read(each, surroundings, instead) for each in arguments]
    seen = {os.path.realpath(source.name) for source in given}
    found = list(given)
    for source in found:  # grows during iteration: a command names a script, a script its DeepSpeed file
        for path in _named_in(source):
            if os.path.realpath(path) not in seen and len(found) < MOST_NAMED:
                seen.add(os.path.realpath(path))
                passed = _passed_by(source, surroundings)
                named = _read_if_whole(path, source.name, passed, instead)
                found.extend([named] if named else [])
    return found


def _passed_by(source: Source, surroundings: Surroundings) -> Surroundings:
    """With the flags of a launch script: the program that it names is read for them, if it names one only."""
    commands = [each for each in source.settings if each.kind == "command"] if source.kind == "shell" else []
    scripts = {each.value for each in source.settings if last_step(each) == "script"}
    if not commands or len(scripts) != 1:
        return surroundings
    flags = {each.plain: each for each in commands if not isinstance(each.value, Expression)}
    return replace(surroundings, arguments={**flags, **surroundings.arguments})


def _read(argument: str, surroundings: Surroundings, instead: Mapping[str, str]) -> Source:
    if not argument.strip():
        raise UsageError("empty name", fix="name a config, a script, a notebook, or a command in quotes")
    return _read_command(argument) if _is_command(argument) else _read_file(argument, surroundings, instead)


def _read_command(argument: str) -> Source:
    settings = without_secrets(Settings(settings_of_command(argument, COMMAND)))
    if not settings:
        raise UsageError(f"no options in the command {argument!r}", fix="give the whole command in quotes")
    missing = missing_script(argument, settings)
    if missing and all(last_step(each) in _OPERANDS for each in settings):
        raise UsageError(f"no such file: {missing}", fix="check the path")
    return Source(name=COMMAND, kind="command", text=argument, settings=settings)


_OPERANDS = frozenset({"script", "config", "-u", "-O", "-B", "u", "O", "B"})
"""Words that name files, and switches of Python itself; without the files they tell nothing."""
_ELSEWHERE = lazy_regex(r"\bcd\s|[$`*?~]|--(?:chdir|working[-_]dir)|docker|kubectl|\bssh\b")


def missing_script(command: str, settings: Settings) -> str:
    """The script that a command starts, if it should be here and is not; else empty."""
    scripts = [each.value for each in settings if last_step(each) == "script" and isinstance(each.value, str)]
    if len(scripts) != 1 or _ELSEWHERE.search(command) or Path(scripts[0]).exists():
        return ""
    return scripts[0]


def missing_script_of(argument: str) -> str:
    """The missing script that this argument starts; empty for a file, and for a command that runs elsewhere."""
    if not _is_command(argument):
        return ""
    return missing_script(argument, Settings(settings_of_command(argument, COMMAND)))


def _is_command(argument: str) -> bool:
    if os.path.lexists(argument) and "\n" not in argument:
        return False
    words = argument.split()
    return len(words) > 1 and (looks_like_command(argument) or any(word.startswith("--") for word in words[1:]))


def _read_file(path: str, surroundings: Surroundings, instead: Mapping[str, str], named_by: str = "") -> Source:
    if path in instead:
        return _read_text(instead[path], path, surroundings, named_by)
    _refuse_directory(path)
    content = read_content(path)
    size = f"{content.size / 2**20:,.1f} MiB"
    if not content.data.strip():
        raise UsageError(f"{path} is empty", fix="name the config, script or notebook that the run is started with")
    kind = kind_of(content.source, content.data[:4096])
    text = "" if kind == "pickle" else as_text(content.data)
    if text is None:
        raise UsageError(f"{path} is not text", fix="name a config, a script, a notebook, or a command in quotes")
    if content.cut and kind == "notebook":
        raise UsageError(
            f"notebook {path} has {size} without outputs; the limit is {MOST_BYTES >> 20} MiB",
            fix=f"save a copy without outputs: jupyter nbconvert --clear-output --to notebook --output bare {path}",
        )
    if content.cut and kind != "pickle":
        raise UsageError(
            f"{path} has {size}; the limit for configs is {MOST_BYTES >> 20} MiB",
            fix="name the config; for logs use `stayfinite diagnose`, for data `stayfinite check --data`",
        )
    return Source(name=path, kind=kind, text=text or "", settings=read_config(path, surroundings), named_by=named_by)


def _read_text(text: str, path: str, surroundings: Surroundings, named_by: str) -> Source:
    kind = kind_of(path, text[:4096].encode())
    settings = without_secrets(settings_of_kind(kind, text, path, surroundings))
    return Source(name=path, kind=kind, text=text, settings=settings, named_by=named_by)


def _refuse_directory(path: str) -> None:
    try:
        if not stat.S_ISDIR(Path(path).stat().st_mode):
            return
        inside = sorted(Path(path).iterdir())
    except (OSError, ValueError):
        return  # read_content reports the problem
    likely = [each.name for each in inside[:500] if each.is_file() and _looks_like_config(each)][:4]
    example = " ".join(str(Path(path) / name) for name in likely)
    raise UsageError(
        f"{path} is a directory; name the files of one run",
        fix=f"stayfinite check {example}" if example else "name a config, a script, a notebook, or a command in quotes",
    )


def _looks_like_config(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return looks_like_config(path, file.read(4096))
    except OSError:
        return False


_FILE = lazy_regex(r"[\w./~@+\- ]+\.(?:py|ya?ml|json|toml|sh)")
_LEADS = lazy_regex(r"script|(?:\w+_)?config(?:_file)?|deepspeed|cfg|yaml")


def _named_in(source: Source) -> list[str]:
    """Files that a command, shell script or config refers to, next to it or here."""
    if source.kind == "notes":
        return []
    found = []
    for setting in source.settings:
        last = last_step(setting)
        if not _LEADS.fullmatch(last) or not isinstance(setting.value, str) or isinstance(setting.value, Expression):
            continue
        if last == "script" and source.kind not in ("command", "shell", "notebook"):
            continue
        if _FILE.fullmatch(setting.value):
            beside = Path(source.name).parent / setting.value if source.kind != "command" else Path(setting.value)
            places = [place for place in (beside, Path(setting.value)) if place.is_file()]
            found.extend([str(places[0])] if places else [])
    return found


def _read_if_whole(path: str, named_by: str, surroundings: Surroundings, instead: Mapping[str, str]) -> Source | None:
    try:
        return _read_file(path, surroundings, instead, named_by)
    except UsageError:
        return None  # not requested by name


MEND = "fix the syntax error"

_AT_LINE = lazy_regex(r", line (\d+)$| \(at line (\d+), column \d+\)$")
_OWN_LIMIT = lazy_regex(r"not installed|nested deeper|entries|steps")
"""Ends a reading although the file may be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakage:
    """A syntax error that stops the reading of a file."""

    text: str
    where: str
    in_a_cell: bool = False
    """Only a notebook's code is wrong: its other cells still run."""


def broken_in(sources: Iterable[Source]) -> list[Breakage]:
    """The syntax errors of these files, at most one each."""
    return [found for source in sources if (found := next(_of(source), None)) is not None]


def _of(source: Source) -> Iterator[Breakage]:
    if source.kind == "script" and source.name.endswith(".py"):
        error = syntax_error(source.text)
        if error is not None:
            yield Breakage(text=f"syntax error: {error[1]}", where=f"{source.name}:{error[0]}")
    if source.kind not in ("json", "yaml", "toml", "notebook"):
        return
    for where, text in source.settings.notes:
        if where != source.name:
            continue
        if text.startswith("incomplete"):
            yield _cut_json(source)
        elif text.startswith("read line by line: "):
            cell = source.kind == "notebook"
            problem = text.removeprefix("read line by line: ")
            at = _AT_LINE.search(problem)
            if _OWN_LIMIT.search(problem) is None:
                line = f":{at[1] or at[2]}" if at is not None else ""
                yield Breakage(text=_AT_LINE.sub("", problem), where=f"{where}{line}", in_a_cell=cell)


def _cut_json(source: Source) -> Breakage:
    """Where JSON ends before its brackets are closed; a comment before that place is no error to its reader."""
    try:
        json.loads(source.text)
    except RecursionError:
        pass
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        return Breakage(text=f"incomplete JSON: {re.sub(r':? line.*', '', str(error))}", where=f"{source.name}:{line}")
    return Breakage(text="incomplete JSON", where=source.name)
