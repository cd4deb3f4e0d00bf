"""Numbers among a program's settings, within what they may be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stayfinite.errors import UsageError


def check_numbers(config: Any, names: Sequence[str], *, above: bool) -> None:
    """Raise UsageError unless each of these is left out (None), or finite and above 0; or 0, with ``above`` off."""
    for name in names:
        value = getattr(config, name)
        if value is None or (math.isfinite(value) and (value > 0 or (value == 0 and not above))):
            continue
        raise UsageError(
            f"--{name.replace('_', '-')} {value}: expected {'more than 0' if above else '0 or more'}",
            fix=f"the default is {type(config).__dataclass_fields__[name].default}",
        )
