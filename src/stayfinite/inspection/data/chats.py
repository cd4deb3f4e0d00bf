"""Conversations: what is read, and what is learnt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ANSWERS = frozenset({"assistant", "gpt", "model", "bot", "chatgpt", "bing", "bard"})


def is_chat(value: Any) -> bool:
    """Whether a cell is a list of messages."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and _role(value[0]) is not None


def prompt_and_answer(value: Any) -> tuple[str, str, str]:
    """What stands before the first answer, all answers, and the whole; empty where it is no conversation."""
    if isinstance(value, str):
        return value, "", value
    if not is_chat(value):
        return "", "", ""
    before, answers, whole = [], [], []
    for message in value:
        if not isinstance(message, Mapping):
            continue
        text = _content(message)
        whole.append(text)
        if _role(message) in ANSWERS:
            answers.append(text)
        elif not answers:
            before.append(text)
    return "\n".join(before), "\n".join(answers), "\n".join(whole)


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
