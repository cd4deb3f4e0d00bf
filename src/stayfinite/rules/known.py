"""Values of settings with the place that told them, whatever form they were written in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from stayfinite.core.settings import Setting, Settings

_NUMBER = re.compile(r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?", re.IGNORECASE)
_ON = frozenset({"true", "yes", "on", "1", "enabled", "enable"})
_OFF = frozenset({"false", "no", "off", "0", "disabled", "disable", "none", "null"})


@dataclass(frozen=True, slots=True)
class Known:
    """A value and the place that told it."""

    value: Any
    where: str
    text: str = ""
    """As it was written: `fp16: True`."""


def written(setting: Setting, value: Any) -> Known:
    """What a setting means, with how it was written."""
    return Known(value, setting.where, f"{setting.name}: {setting.value}")


def is_on(value: Any) -> bool | None:
    """Whether a switch is on; None when the value is no switch."""
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
    """The number that a value is or begins with."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        found = _NUMBER.match(value.strip())
        return float(found.group()) if found else None
    if isinstance(value, list) and value:
        return number_in(value[0])
    return None


def first_number(settings: Settings, *names: str) -> Known | None:
    """The first setting of these names that has a number; a switch that is off counts as 0."""
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
    """The first setting of these names whose value is a text."""
    for setting in settings.all(*names):
        if isinstance(setting.value, str):
            return written(setting, setting.value)
    return None


def switched_on(settings: Settings, *names: str) -> Known | None:
    """The first setting of these names that is there and not off."""
    for setting in settings.all(*names):
        if setting.value is not None and is_on(setting.value) is not False:
            return written(setting, setting.value)
    return None


def mention(settings: Settings, pattern: str) -> Known | None:
    """The first text of the settings in which a pattern (case ignored) occurs; its value is what matched."""
    found = settings.search(pattern)
    if found is None:
        return None
    matched = re.search(pattern, found[1], re.IGNORECASE)
    return Known(matched.group() if matched else "", *found)


def in_short(names: Any, shown: int = 4) -> str:
    """A few of many names, the rest counted; anything that is no list as it is."""
    if not isinstance(names, list | tuple):
        return str(names)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(map(str, names[:shown])) + more
