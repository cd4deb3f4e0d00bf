"""Recognize the layout of rows from column names and values: chats, Alpaca, preferences, translations, pairs.

A shape names the source and target columns; `sides` turns them into texts, so that every recipe reads every shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.data.chunk import Broken

CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el "
    "en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu "
    "ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na "
    "nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so "
    "sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu akk "
    "ara ben bul cat ces cmn dan deu ell eng est eus fas fin fra gle glg grc heb hin hit hrv hun hye ind isl ita jpn "
    "kat kaz khm kor lao lat lav lit mar mkd mon msa mya nep nld nob nor pan pol por pus ron rus san sin slk slv som "
    "spa sqi srp sux swa swe tam tel tha tur ukr urd uzb vie xho yor yue zho zul"
)
"""Two-letter and three-letter language codes."""
NAMES = (
    "afrikaans akkadian albanian amharic arabic armenian assyrian babylonian basque bengali bulgarian burmese catalan "
    "chinese croatian czech danish dutch egyptian english estonian farsi finnish french galician georgian german "
    "greek gujarati hausa hebrew hindi hittite hungarian icelandic indonesian irish italian japanese kannada kazakh "
    "khmer korean latin latvian lithuanian macedonian malay malayalam mandarin marathi mongolian nepali norwegian "
    "persian polish portuguese punjabi romanian russian sanskrit serbian sinhala slovak slovenian somali spanish "
    "sumerian swahili swedish tamil telugu thai tibetan turkish ugaritic ukrainian urdu uzbek vietnamese welsh yoruba "
    "zulu"
)
LANGUAGES = frozenset((*CODES.split(), *NAMES.split()))  # codes and English names
LONGEST_CODE, LONGEST_REGION = 3, 4


def is_a_language(cell: str) -> bool:
    """Whether a cell is `en`, `PT-br`, `French`; `No` and `El` are also words."""
    code, _, region = cell.replace("_", "-").partition("-")
    if cell.lower() in LANGUAGES and len(cell) > LONGEST_CODE:
        return True
    plain = code.lower() in LANGUAGES and not code.istitle()
    return plain and (not region or (region.isalpha() and len(region) <= LONGEST_REGION))


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
