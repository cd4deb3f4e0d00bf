"""Values from the command that starts the script: flags and environment."""

from __future__ import annotations

from stayfinite.core.settings import Expression, Setting, plain_name
from stayfinite.readers.configs.program.state import Run
from stayfinite.readers.configs.program.values import Origin, Row, Unknown, Value


def given_argument(run: Run, name: str) -> Value | None:
    """The value of an argument in the command; None if absent."""
    setting = run.surroundings.arguments.get(plain_name(name))
    return None if setting is None else _value(setting)


def environment_value(run: Run, name: str) -> Value | None:
    """An environment variable set by the command or the script."""
    if name in run.environment:
        return run.environment[name]
    setting = run.surroundings.arguments.get(name)
    if setting is None or setting.name != name:
        return None
    value = _value(setting)
    value.data = str(value.data) if value.is_scalar else value.data
    return value


def _value(setting: Setting) -> Value:
    origin = Origin(setting.source)
    data = setting.value
    if isinstance(data, list):
        data = Row({"items": [Value(each, origin, setting.line) for each in data]})
    elif isinstance(data, (Expression, dict)):
        data = Unknown()
    return Value(data, origin, setting.line)
