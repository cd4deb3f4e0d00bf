"""Setting values with their source, in any spelling."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.numerals import plain_numbers
from stayfinite.core.settings import Setting, Settings

_NUMBER = lazy_regex(r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?", re.IGNORECASE)
_ON = frozenset({"true", "yes", "on", "1", "enabled", "enable"})
_OFF = frozenset({"false", "no", "off", "0", "disabled", "disable", "none", "null"})


@dataclass(frozen=True, slots=True)
class Known:
    """A value and its source."""

    value: Any
    where: str
    text: str = ""
    """As written: `fp16: True`."""


LONGEST = 200
"""Characters of a value that are shown."""


def written(setting: Setting, value: Any) -> Known:
    """A value derived from a setting, with the setting's text."""
    said = str(setting.value)
    return Known(value, setting.where, f"{setting.name}: {said[:LONGEST]}{'…' if len(said) > LONGEST else ''}")


def is_on(value: Any) -> bool | None:
    """Whether a switch is on; None if the value is not a switch."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value != 0
    if isinstance(value, str):
        word = re.split(r"[\s,;(]", value.strip().lower(), maxsplit=1)[0].strip("'\"")
        if word in _ON:
            return True
        if word in _OFF:
            return False
    return None


def number_in(value: Any) -> float | None:
    """The number that a value is or starts with."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        found = _NUMBER.match(plain_numbers(value.strip()))
        return float(found.group()) if found else None
    if isinstance(value, list) and value:
        return number_in(value[0])
    return None


def first_number(settings: Settings, *names: str) -> Known | None:
    """The first of these settings with a number; a switch that is off counts as 0."""
    for name in names:
        for setting in settings.all(name):
            off = setting.value is None or (
                not isinstance(setting.value, int | float) and is_on(setting.value) is False
            )
            value = 0.0 if off else number_in(setting.value)
            if value is not None:
                return written(setting, value)
    return None


def first_text(settings: Settings, *names: str) -> Known | None:
    """The first of these settings with a text."""
    for setting in settings.all(*names):
        if isinstance(setting.value, str):
            return written(setting, setting.value)
    return None


def switched_on(settings: Settings, *names: str) -> Known | None:
    """The first of these settings that is present and not off."""
    for setting in settings.all(*names):
        if setting.value is not None and is_on(setting.value) is not False:
            return written(setting, setting.value)
    return None


def mention(settings: Settings, pattern: str) -> Known | None:
    """The first text of the settings that matches a pattern (case ignored); its value is the match."""
    found = settings.search(pattern)
    if found is None:
        return None
    matched = re.search(pattern, found[1], re.IGNORECASE)
    return Known(matched.group() if matched else "", *found)


def in_short(names: Any, shown: int = 4) -> str:
    """The first few names with the rest counted; anything but a list unchanged."""
    if not isinstance(names, list | tuple):
        return str(names)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(map(str, names[:shown])) + more
