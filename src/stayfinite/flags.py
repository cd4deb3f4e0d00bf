"""A command's flags, from a dataclass by tyro, with help that reads well: `--steps INT`, not `--steps {None}|INT`."""

from __future__ import annotations

import ast
import inspect
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import MISSING, Field, fields
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro

Kind = TypeVar("Kind")
WORDS: dict[Any, str] = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH", bool: "{True,False}"}
USAGE = "usage: "
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_READY: set[tuple[type, bool]] = set()


def parsed(
    kind: type[Kind], arguments: Sequence[str], prog: str, *, hint: str = "", pairs: bool = True, **more: Any
) -> Kind:
    """The settings that the arguments ask for; exits with a message where they are none.

    Arguments:
        hint: stands below what the help says of the command.
        pairs: a switch that is off by default has a `--no-...` beside it, for where a file may turn it on.
    """
    helping = not {"-h", "--help"}.isdisjoint(arguments)
    _make_ready(kind, helping=helping, pairs=pairs)
    about = "\n\n".join(" ".join(each.split()) for each in f"{kind.__doc__ or ''}\n\n{hint}".strip().split("\n\n"))
    with _wrapped() if helping else _telling_wrong_values(kind, prog):
        found: Kind = tyro.cli(kind, args=list(arguments), prog=prog, description=about, **more)
    return found


_NOT_NUMBERS = (
    (r"invalid literal for int\(\) with base 10: ('.*?')", "a whole number"),
    (r"could not convert string to float: ('.*?')", "a number"),
)
"""What Python says of a value, and what was expected."""


def _telling_wrong_values(kind: type, prog: str) -> AbstractContextManager[object]:
    """Context in which a wrong value of one of these settings ends the program with one line on stderr, and 2."""
    try:
        from tyro._errors import on_parse_error
    except ImportError:
        return nullcontext()  # an older tyro draws its own box
    return _told_by(kind, prog, on_parse_error)


@contextmanager
def _told_by(kind: type, prog: str, on_error: Callable[[Any], AbstractContextManager[None]]) -> Iterator[None]:
    def tell(event: Any) -> None:
        argument = getattr(event, "argument", None)
        flags = getattr(getattr(argument, "lowered", None), "name_or_flags", ())
        expected = _expected(event, kind, flags)
        if expected and flags:
            sys.stderr.write(f"{prog}: {flags[0]}: expected {expected}\n  fix: {prog} --help lists the flags\n")
            raise SystemExit(2)

    with on_error(tell):
        yield


def _expected(event: Any, kind: type, flags: tuple[str, ...]) -> str:
    """`a whole number, not 'abc'`; empty for what tyro tells well itself."""
    message = str(getattr(event, "message", ""))
    for pattern, wanted in _NOT_NUMBERS:
        found = re.search(pattern, message)
        if found is not None:
            return f"{wanted}, not {found[1]}"
    choices = [each for each in getattr(event, "choices", ()) if each != "None"]
    if not choices or not flags:
        return ""
    declared = _choices_of(get_type_hints(kind).get(flags[0].lstrip("-").replace("-", "_")))
    ordered = [each for each in declared if each in choices] or sorted(choices)
    *first, last = ordered
    return f"{', '.join(first)} or {last}, not {event.value!r}" if first else f"{last}, not {event.value!r}"


def _choices_of(hint: Any) -> list[str]:
    """The values of the first Literal in a type, in their order."""
    if get_origin(hint) is Literal:
        return [str(each) for each in get_args(hint)]
    parts = [each for each in get_args(hint) if each not in (NoneType, Ellipsis)]
    return next((found for each in parts if (found := _choices_of(each))), [])


@contextmanager
def _wrapped() -> Iterator[None]:
    """Break lines between words: tyro prints a paragraph as one line, which a terminal breaks anywhere."""
    terminal, kept = sys.stdout, io.BytesIO()
    held = io.TextIOWrapper(kept, terminal.encoding or "utf-8", errors="replace", write_through=True)
    held.isatty = terminal.isatty  # type: ignore[method-assign]
    width = shutil.get_terminal_size().columns
    try:
        with redirect_stdout(held):
            yield
    finally:
        for line in kept.getvalue().decode(held.encoding).splitlines():
            usage = _COLOURS.sub("", line).startswith(USAGE)
            fits = len(line) <= width or not (usage or line[:1].isalpha())  # neither a colored line nor one of a box
            more = " " * len(USAGE) if usage else ""
            wrapped = textwrap.fill(line, width, subsequent_indent=more, break_long_words=False, break_on_hyphens=False)
            terminal.write(line if fits else wrapped)
            terminal.write("\n")


def _make_ready(kind: type, *, helping: bool, pairs: bool) -> None:
    if (kind, helping) in _READY:
        return
    hints = get_type_hints(kind, include_extras=True)
    # In the help a command's own flags come before those that it shares with others.
    known, mine = vars(kind)["__dataclass_fields__"], list(kind.__annotations__)
    for name in [*(name for name in mine if name in known), *(name for name in known if name not in mine)]:
        known[name] = known.pop(name)
    helps = _helps_of(kind) if helping else {}
    for field in fields(kind):
        hint = hints[field.name]
        word, default = _word(field, hint), _default(field)
        empty = default is None or default is False or default in ((), "") or (word or "").startswith("[")
        # Before what the field itself says, which wins.
        said = tyro.conf.arg(metavar=word, help=helps.get(field.name), help_behavior_hint="" if empty else None)
        alone = () if pairs or default is not False else (tyro.conf.FlagCreatePairsOff,)
        inner, own = (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())
        kind.__annotations__[field.name] = Annotated[(inner, said, *alone, *own)]
    _READY.add((kind, helping))


def _helps_of(kind: type) -> dict[str, str]:
    """The docstrings under the settings, each on one line; tyro would keep the line breaks of the source."""
    found = {}
    for owner in reversed(kind.__mro__[:-1]):
        try:
            (of_class,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        except OSError:
            continue  # installed without its source
        assert isinstance(of_class, ast.ClassDef)
        for field, text in pairwise(of_class.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found


def _word(field: Field[Any], hint: Any) -> str | None:
    """What stands for the value; None where tyro's own word is right."""
    own: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        own = tuple(rest)
    if get_origin(hint) is tuple and tyro.conf.Positional in own:
        return f"[{field.name.upper()} ...]"
    if tyro.conf.Positional in own:
        return field.name.upper()
    if get_origin(hint) is tuple and get_args(hint)[-1] is ...:
        kind = get_args(hint)[0]
        several = f"{{{','.join(get_args(kind))}}}" if get_origin(kind) is Literal else WORDS.get(kind)
        return several and f"{several} [...]"
    kinds = [each for each in get_args(hint) if each is not NoneType]
    if NoneType not in get_args(hint) or len(kinds) != 1:
        return None
    if get_origin(kinds[0]) is Literal:
        return f"{{{','.join(map(str, get_args(kinds[0])))}}}"
    return WORDS.get(kinds[0])


def _default(field: Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default
