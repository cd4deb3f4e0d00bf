"""Whether a run went on after a message: an error that is followed by losses was caught."""

from __future__ import annotations

from stayfinite.core.series import Message
from stayfinite.rules.facts import Facts

ENOUGH = 3
"""Losses after a message that show that training went on; one or two may come from another rank or a buffer."""


def went_on(facts: Facts, message: Message) -> bool:
    """Whether the same log has losses after the last of such messages."""
    last = max(message.line, message.last_line)
    return any(
        sum(line > last for _, _, line in run.column("loss")) >= ENOUGH
        for run in facts.runs
        if run.source == message.source
    )
