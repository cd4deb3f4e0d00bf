"""Whether training continued after an error, which was then caught."""

from __future__ import annotations

from stayfinite.core.series import Message
from stayfinite.rules.facts import Facts

ENOUGH = 3
"""Losses after a message that prove it; one or two may come from another rank or a buffer."""


def went_on(facts: Facts, message: Message) -> bool:
    """Whether the same log has losses after the last such message."""
    last = max(message.line, message.last_line)
    return any(
        sum(line > last for _, _, line in run.column("loss")) >= ENOUGH
        for run in facts.runs
        if run.source == message.source
    )
