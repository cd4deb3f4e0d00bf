"""Conversations: what is read, and what is learnt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

ANSWERS = frozenset({"assistant", "gpt", "model", "bot", "chatgpt", "bing", "bard"})


def is_chat(value: Any) -> bool:
    """Whether a cell is a list of messages."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and _role(value[0]) is not None


class Conversation(NamedTuple):
    """The parts of one conversation; all empty where a cell is none."""

    prompt: str
    """What stands before the first answer."""
    answers: str
    whole: str
    spoken: str
    """The whole without what every conversation begins with, the system's message."""


def conversation(value: Any) -> Conversation:
    """A cell's conversation; a mere text is a prompt."""
    if isinstance(value, str):
        return Conversation(value, "", value, value)
    if not is_chat(value):
        return Conversation("", "", "", "")
    before, answers, whole, spoken = [], [], [], []
    for message in value:
        if not isinstance(message, Mapping):
            continue
        text, role = _content(message), _role(message)
        whole.append(text)
        if role != "system":
            spoken.append(text)
        if role in ANSWERS:
            answers.append(text)
        elif not answers:
            before.append(text)
    return Conversation(*("\n".join(part) for part in (before, answers, whole, spoken)))


def _role(message: Mapping[str, Any]) -> str | None:
    role = message.get("role", message.get("from"))
    return role.lower() if isinstance(role, str) else None


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content", message.get("value"))
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    # A call of a tool is an answer without words of its own.
    return str(message.get("tool_calls") or "")
