"""Whether the first row of a table of text holds the names of its columns, or is a row like any other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stayfinite.inspection.data import column_names as names
from stayfinite.inspection.data.values import as_number

WRITTEN = frozenset({"csv", "tsv"})
"""Kinds of files in which nothing but the first row itself says what it is."""
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
"""Of languages, in two letters and in three."""
NAMES = (
    "afrikaans akkadian albanian amharic arabic armenian assyrian babylonian basque bengali bulgarian burmese catalan "
    "chinese croatian czech danish dutch egyptian english estonian farsi finnish french galician georgian german "
    "greek gujarati hausa hebrew hindi hittite hungarian icelandic indonesian irish italian japanese kannada kazakh "
    "khmer korean latin latvian lithuanian macedonian malay malayalam mandarin marathi mongolian nepali norwegian "
    "persian polish portuguese punjabi romanian russian sanskrit serbian sinhala slovak slovenian somali spanish "
    "sumerian swahili swedish tamil telugu thai tibetan turkish ugaritic ukrainian urdu uzbek vietnamese welsh yoruba "
    "zulu"
)
LANGUAGES = frozenset((*CODES.split(), *NAMES.split()))
"""What columns of translations are called: codes, and names in English."""
USUAL = frozenset(
    name
    for listed in (names.SOURCES, names.TARGETS, names.TEXTS, names.LABELS, names.CHATS, names.TOKEN_IDS, names.IDS)
    for name in listed
)
WORDS = frozenset({"text", "texts", "sentence", "sentences", "lang", "language", "name", "column", "original"})
"""What stands beside them in names of several words: `english sentence`."""
FEWEST = 3
"""Numbers below a word, from which on the word is their name."""
LONGEST_CODE, LONGEST_REGION = 3, 4
AN_IDENTIFIER = re.compile(r"[A-Za-z]\w*_\w+|[a-z]+[A-Z]\w*")
COUNTED = re.compile(r"column \d+")
"""The names that a reader gives to columns that have none."""


def is_header(cells: Iterable[str]) -> bool:
    """Whether this is surely a row of names: one of them is usual or an identifier, or two are languages."""
    stripped = [cell.strip() for cell in cells]
    if all(map(COUNTED.fullmatch, stripped)):
        return True  # the reader has seen that the first row is none, and has kept it
    return any(map(_is_usual, stripped)) or sum(map(_is_a_language, stripped)) > 1


def has_header(columns: Mapping[str, Sequence[Any]]) -> bool:
    """Whether the names of these columns surely are some: by themselves, or since they stand above numbers."""
    return is_header(columns) or any(
        as_number(name) is None and _are_numbers(values) for name, values in columns.items()
    )


def _are_numbers(values: Sequence[Any]) -> bool:
    """Nothing but numbers and gaps, and enough numbers."""
    read = [as_number(value) for value in values]
    return None not in read and sum(number is not None and math.isfinite(number) for number in read) >= FEWEST


def _is_usual(cell: str) -> bool:
    if names.plain(cell) in USUAL or AN_IDENTIFIER.fullmatch(cell):
        return True
    parts = _parts(cell)
    # `english sentence`; but not languages alone, since `so am` may be a row.
    return 1 < len(parts) <= 3 and (USUAL | WORDS | LANGUAGES).issuperset(parts) and not LANGUAGES.issuperset(parts)


def _is_a_language(cell: str) -> bool:
    """`en`, `PT-br`, `French`; `No` and `El` are words as well."""
    code, _, region = cell.replace("_", "-").partition("-")
    if cell.lower() in LANGUAGES and len(cell) > LONGEST_CODE:
        return True
    plain = code.lower() in LANGUAGES and not code.istitle()
    return plain and (not region or (region.isalpha() and len(region) <= LONGEST_REGION))


def _parts(cell: str) -> list[str]:
    return [part for part in names.plain(cell).split("_") if part]
