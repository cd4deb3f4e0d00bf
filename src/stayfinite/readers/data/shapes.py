"""Recognize the layout of rows from column names and values: chats, Alpaca, preferences, translations, pairs.

A shape names the source and target columns; `sides` turns them into texts, so that every recipe reads every shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.data.chats import conversation, is_chat, is_from
from stayfinite.readers.data.chunk import Broken
from stayfinite.readers.data.languages import is_a_language

Columns = Mapping[str, Sequence[Any]]
CHATS = ("messages", "conversations", "conversation", "dialog", "turns", "chat")
COUNTED = lazy_regex(r"column \d+")  # names that readers give to unnamed columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A known row layout."""

    name: str
    """For people: `ShareGPT conversations`."""
    source: tuple[str, ...]
    """Input columns; the first must not be empty, the others are appended to it."""
    target: str | None = None
    """The output column; None if source and target are in one conversation."""

    @property
    def chat(self) -> bool:
        return self.target is None


def shape_of(columns: Columns) -> Shape | None:
    """The shape of rows with these columns; None if unknown."""
    named = {name.strip().lower(): name for name in reversed(list(columns))}
    for name in (*(named[each] for each in CHATS if each in named), *columns):
        first = _first(columns[name])
        if is_chat(first) and name.strip().lower() not in ("chosen", "rejected", "prompt", "completion"):
            return Shape(name="ShareGPT conversations" if is_from(first) else "chat messages", source=(name,))
    if {"instruction", "output"} <= named.keys():
        beside = tuple(named[each] for each in ("input",) if each in named)
        return Shape(name="Alpaca rows", source=(named["instruction"], *beside), target=named["output"])
    if {"chosen", "rejected"} <= named.keys():
        prompt = next((named[each] for each in ("prompt", "question", "instruction") if each in named), None)
        chosen = named["chosen"]
        if prompt is not None:
            return Shape(name="preference rows", source=(prompt,), target=chosen)
        if is_chat(_first(columns[chosen])):
            return Shape(name="preference rows", source=(chosen,))
    languages = [name for name in columns if name.startswith("translation.")]
    if len(languages) == 2 or (len(columns) == 2 and not languages and all(map(is_a_language, columns))):
        languages = languages or list(columns)
        return Shape(name="translations by language", source=(languages[0],), target=languages[1])
    if len(columns) == 2 and all(map(COUNTED.fullmatch, columns)):
        one, two = columns
        return Shape(name="list of pairs", source=(one,), target=two)
    return None


class Sides(NamedTuple):
    """Source and target of each row; None for a broken row."""

    source: list[Any]
    target: list[Any]
    broken: list[Broken]


def sides(shape: Shape, columns: Columns, lines: Sequence[int]) -> Sides:
    """Extract source and target of some rows.

    In a conversation, the target is the last answer and the source is everything before it.
    """
    if shape.chat:
        return _of_chats(columns[shape.source[0]], lines)
    assert shape.target is not None
    blank = [None] * len(lines)
    parts = [columns.get(name, blank) for name in shape.source]
    sources = [_joined(row) for row in zip(*parts, strict=True)]
    targets = [conversation(each).last if is_chat(each) else each for each in columns.get(shape.target, blank)]
    return Sides(sources, targets, [])


def _of_chats(values: Sequence[Any], lines: Sequence[int]) -> Sides:
    made = Sides([], [], [])
    for line, value in zip(lines, values, strict=True):
        said = conversation(value)
        question, answer = said.before_last, said.last
        if not question.strip() or not answer.strip():
            lacks = "a user's message" if not question.strip() else "an answer (assistant or gpt) after it"
            made.broken.append(Broken(line, f"expected messages from a user and an assistant; {lacks} is missing"))
            question, answer = "", ""
        made.source.append(question)
        made.target.append(answer)
    return made


def _joined(row: Sequence[Any]) -> Any:
    """A prompt followed by its other columns."""
    first = conversation(row[0]).whole if is_chat(row[0]) else row[0]
    more = [value.strip() for value in row[1:] if isinstance(value, str) and value.strip()]
    return "\n".join([first, *more]) if more and isinstance(first, str) else first


def _first(values: Sequence[Any]) -> Any:
    return next((value for value in values if value is not None), None)
