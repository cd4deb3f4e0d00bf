"""Conversations: prompt, answers, and the text that is learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ANSWERS = frozenset({"assistant", "gpt", "model", "bot", "chatgpt", "bing", "bard"})


def is_from(value: Any) -> bool:
    """Whether a chat uses ShareGPT keys: `from` and `value` instead of `role` and `content`."""
    return is_chat(value) and "from" in value[0]


def is_chat(value: Any) -> bool:
    """Whether a cell is a list of messages."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping) and _role(value[0]) is not None


class Conversation(NamedTuple):
    """The parts of one conversation; all empty if the cell is not one."""

    prompt: str
    """Text before the first answer."""
    answers: str
    whole: str
    spoken: str
    """The whole text without the system message."""
    before_last: str = ""
    """Text before the last answer, with speakers if there were earlier answers."""
    last: str = ""
    """The last answer."""


def conversation(value: Any) -> Conversation:
    """Split a cell into its parts; plain text is a prompt."""
    if isinstance(value, str):
        return Conversation(value, "", value, value)
    if not is_chat(value):
        return Conversation("", "", "", "")
    before, answers, whole, spoken = [], [], [], []
    turns: list[tuple[str, str]] = []
    for message in value:
        if not isinstance(message, Mapping):
            continue
        text, role = _content(message), _role(message)
        whole.append(text)
        turns.append((role or "", text))
        if role != "system":
            spoken.append(text)
        if role in ANSWERS:
            answers.append(text)
        elif not answers:
            before.append(text)
    prompt, said, everything, heard = ("\n".join(part) for part in (before, answers, whole, spoken))
    before_last, last = _last_answer(turns)
    return Conversation(prompt, said, everything, heard, before_last, last)


def _last_answer(turns: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Text before the last answer, and that answer; later turns are dropped."""
    at = next((at for at in range(len(turns) - 1, -1, -1) if turns[at][0] in ANSWERS), None)
    if at is None:
        return "\n".join(text for _, text in turns), ""
    earlier = turns[:at]
    if any(role in ANSWERS for role, _ in earlier):
        said = [text if role == "system" else f"{_speaker(role)}: {text}" for role, text in earlier]
    else:
        said = [text for _, text in earlier]
    if not any(role != "system" and text.strip() for role, text in earlier):
        said = []
    return "\n".join(said), turns[at][1]


def _speaker(role: str) -> str:
    return "Assistant" if role in ANSWERS else "User" if role in ("user", "human") else role.capitalize()


def _role(message: Mapping[str, Any]) -> str | None:
    role = message.get("role", message.get("from"))
    return role.lower() if isinstance(role, str) else None


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content", message.get("value"))
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    # A tool call is an answer without text.
    return str(message.get("tool_calls") or "")
