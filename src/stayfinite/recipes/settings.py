"""Settings from flags and a YAML file; flags win."""

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from operator import gt, le, lt
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import yaml

from stayfinite.errors import StayfiniteError, UsageError
from stayfinite.recipes.running.once import is_first, print_once

Kind = TypeVar("Kind")


def read_settings(
    kind: type[Kind], arguments: Sequence[str], prog: str, settle: Callable[[Kind], Kind] | None = None
) -> Kind:
    """Parse the settings; ``--config FILE`` names a YAML file with the same names.

    Arguments:
        settle: maps the parsed settings to defaults for everything not set explicitly.

    Raises:
        UsageError: an unreadable file, or an unknown setting.
    """
    from stayfinite.flags import parsed  # tyro: what only refuses or records does without it

    path, flags = _config_of(list(arguments))
    given = [] if path is None else list(_as_flags(kind, _mapping(path), path))
    _check_values(kind, flags)
    ask = partial(parsed, kind, [*given, *flags], prog, hint=HINT)
    try:
        asked = ask(console_outputs=is_first())
    except SystemExit:
        print_once("flags", (lambda: None) if is_first() else ask)  # tyro has printed it on rank 0
        raise
    return asked if settle is None else ask(default=settle(asked))


HINT = "Every setting can also be in a YAML file: --config train.yaml; flags override it."


def _config_of(flags: list[str]) -> tuple[str | None, list[str]]:
    """Remove ``--config FILE`` or ``--config=FILE`` from the flags."""
    for index, flag in enumerate(flags):
        if flag == "--config":
            if index + 1 == len(flags):
                raise UsageError("--config without a file", fix="--config train.yaml")
            return flags[index + 1], flags[:index] + flags[index + 2 :]
        if flag.startswith("--config="):
            return flag.partition("=")[2], flags[:index] + flags[index + 1 :]
    return None, flags


def _check_values(kind: type[Any], flags: Sequence[str]) -> None:
    """Raise UsageError for a value of the wrong kind; unknown flags are left to tyro."""
    names, hints = names_of(kind), get_type_hints(kind)
    name, typed = None, ""
    for word in flags:
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if flag:
            typed, name = flag, names.get(flag[2:].replace("-", "_"))
        if name is not None and (equals or not flag):
            if hints[name] is not bool and (words := expected(hints[name], value)):
                raise UsageError(f"{typed} {value}: expected {words}", fix=_leave_out(kind, name, typed))
            name = name if get_origin(hints[name]) is tuple else None  # one value only


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _leave_out(kind: type[Any], name: str, flag: str = "") -> str:
    default = kind.__dataclass_fields__[name].default
    usual = "" if default in (None, MISSING, (), "") else f"; {default} is usual"
    return f"leave {flag or _flag(name)} out{usual}"


def _mapping(path: str) -> Mapping[str, Any]:
    try:
        with Refusing(path, "name a readable YAML file", (OSError,)):
            read = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not YAML: {error}", fix="write one `name: value` per line") from error
    if read is None:
        return {}
    if not isinstance(read, Mapping):
        raise UsageError(
            f"{path}: expected `name: value` lines, not a {type(read).__name__}", fix="learning_rate: 1e-4"
        )
    return read


def names_of(kind: type[Any]) -> dict[str, str]:
    """Every name of a setting, aliases included, with its field."""
    hints = get_type_hints(kind, include_extras=True)
    found = {field.name: field.name for field in fields(kind)}
    for name in list(found):
        for note in getattr(hints[name], "__metadata__", ()):
            for alias in getattr(note, "aliases", None) or ():
                found[alias.lstrip("-").replace("-", "_")] = name
    return found


NUMBERS: dict[Any, tuple[str, Callable[[str], Any]]] = {int: ("a whole number", int), float: ("a number", float)}


def expected(hint: Any, value: Any) -> str:
    """What a setting of this type expects; empty if the value fits.

    Arguments:
        value: the text after a flag, or what a YAML file has.
    """
    if get_origin(hint) is tuple:
        each = get_args(hint)[0]
        found = (expected(each, one) for one in (value if isinstance(value, list | tuple) else [value]))
        return next(filter(None, found), "")
    kinds = get_args(hint) if NoneType in get_args(hint) else (hint,)
    if value is None or (NoneType in kinds and value == "None"):
        return ""
    (kind,) = (each for each in kinds if each is not NoneType)
    if get_origin(kind) is Literal:
        choices = [str(each) for each in get_args(kind)]
        return "" if str(value) in choices else f"{', '.join(choices[:-1])} or {choices[-1]}"
    if kind is bool:
        return "" if str(value) in ("True", "False") else "True or False"
    if kind in NUMBERS:
        words, read = NUMBERS[kind]
        try:
            read(str(value))
        except ValueError:
            return words
    return "one value" if isinstance(value, list | dict) else ""


YAML_WORDS = {False: ("off", "no", "false"), True: ("on", "yes", "true")}
"""Words that YAML reads as false or true."""


def _as_flags(kind: type[Any], mapping: Mapping[str, Any], path: str) -> Iterator[str]:
    """A YAML file as equivalent flags, so that both are checked alike."""
    names, hints = names_of(kind), get_type_hints(kind)
    for name, value in mapping.items():
        key = str(name).replace("-", "_")
        if key not in names:
            close, known = difflib.get_close_matches(key, names, n=1), dict.fromkeys(names.values())
            raise UsageError(
                f"{path}: unknown setting {name!r}",
                fix=f"did you mean {close[0]!r}?" if close else f"the settings are {', '.join(known)}",
            )
        hint, flag = hints[names[key]], _flag(key)
        if isinstance(value, bool) and hint is not bool:
            # YAML reads `off` and `no` as false; use the word if the setting has it as a choice.
            value = next((word for word in YAML_WORDS[value] if word in get_args(hint)), value)
        if words := expected(hint, value):
            raise UsageError(f"{path}: {name}: {value}: expected {words}", fix=f"leave {name} out, or correct it")
        if value is None:
            if "None" in str(hint):
                yield from (flag, "None")
        elif hint is bool:
            yield flag if value else f"--no-{flag[2:]}"
        elif isinstance(value, list | tuple):
            yield from (flag, *map(str, value))
        else:
            yield f"{flag}={value}"  # one word, since a value may begin with a dash


@dataclass(frozen=True)
class Refusing:
    """A context in which errors of a library become a UsageError: ``what``, then the error's first line.

    Arguments:
        errors: what the library raises.
    """

    what: str
    fix: str
    errors: tuple[type[Exception], ...] = (OSError, ValueError, KeyError)

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, self.errors) and not isinstance(error, StayfiniteError):
            said = str(getattr(error, "strerror", None) or error) or type(error).__name__
            raise UsageError(f"{self.what}: {said.splitlines()[0]}", fix=self.fix) from error


Ends = Literal["[0, 1)", "(0, 1)", "[0, 1]", "(0, 1]"]
"""Interval notation: `[` includes the end, `(` excludes it."""
SHARES: Mapping[Ends, tuple[str, Callable[[float], bool]]] = {
    "[0, 1)": ("from 0 to below 1", lambda value: 0 <= value < 1),
    "(0, 1)": ("above 0 and below 1", lambda value: 0 < value < 1),
    "[0, 1]": ("from 0 to 1", lambda value: 0 <= value <= 1),
    "(0, 1]": ("above 0 and up to 1", lambda value: 0 < value <= 1),
}


def require(
    config: Any,
    *,
    above_zero: Sequence[str] = (),
    at_least: Mapping[int, Sequence[str]] = MappingProxyType({}),
    shares: Mapping[Ends, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Refuse numbers out of range, naming their flag. None is skipped; seeds must fit torch's generators.

    Arguments:
        config: a dataclass.
        above_zero: names of settings.
        at_least: names of settings by minimum.
        shares: names of settings by interval.

    Raises:
        UsageError: out of range or not finite.
    """
    limits: list[tuple[Sequence[str], str, Callable[[float], bool]]] = [
        (above_zero, "above 0", partial(lt, 0)),
        (("seed",) if hasattr(config, "seed") else (), "below 2**63", partial(gt, 2**63)),
        *((names, f"of at least {least}", partial(le, least)) for least, names in at_least.items()),
        *((names, *SHARES[ends]) for ends, names in shares.items()),
    ]
    for names, words, holds in limits:
        for name in names:
            value = getattr(config, name)
            # An int is always finite, even if too large for a float.
            fits = value is None or ((isinstance(value, int) or math.isfinite(value)) and holds(value))
            if not fits:
                raise UsageError(
                    f"{_flag(name)} {value}: expected a number {words}", fix=_leave_out(type(config), name)
                )


USUAL: Mapping[int, Sequence[str]] = {
    1: (
        "epochs", "steps", "max_steps", "batch_size", "accumulation", "rank", "rows", "held_out", "eval_epochs",
        "eval_steps", "eval_rows", "new_tokens", "logging_steps", "checkpoint_steps", "keep_checkpoints",
        "shuffle_rows", "tensor_parallel",
    ),
    0: ("warmup_steps", "weight_decay", "samples", "patience", "seed", "workers"),
}  # fmt: skip
"""Settings that mean the same in every recipe, by minimum."""


def require_usual(config: Any) -> None:
    """Refuse numbers out of range in settings that recipes share; see :func:`require`."""
    shared = {least: [name for name in names if hasattr(config, name)] for least, names in USUAL.items()}
    rates = [name for name in ("learning_rate", "alpha", "minutes") if hasattr(config, name)]
    require(config, above_zero=rates, at_least=shared)
