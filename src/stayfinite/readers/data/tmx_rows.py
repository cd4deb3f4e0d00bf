"""Rows of TMX translation memories: one row per unit, one column per language. Streamed; entities are not expanded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import Broken, Chunk, Gathered, Source
from stayfinite.readers.data.packed import open_bytes
from stayfinite.readers.data.text_lines import LONGEST

PIECE = 1 << 18
DEPTH = 64  # nesting depth limit; a TMX has about eight levels
CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})  # inline elements that hold markup, not words
LANG = ("xml:lang", "lang")


def tmx_chunks(source: Source) -> Iterator[Chunk]:
    """The units of a translation memory."""
    units = _Units(source)
    with open_bytes(source.path) as (stream, done):
        ended = False
        while not ended:
            try:
                piece = stream.read(PIECE)
                ended = not piece
                units.parser.Parse(piece, ended)
            except OSError as error:
                units.found.broken.append(Broken(units.line, f"reading stopped here: {error}", ends=True))
                ended = True
            except expat.ExpatError as error:
                what = "the file is truncated" if ended else (f"invalid XML from here: {expat.ErrorString(error.code)}")
                units.found.broken.append(Broken(error.lineno, what, ends=True))
                ended = True
            if units.found.full or ended:
                yield units.found.chunk(done())


class _Units:
    """Units parsed since the last chunk."""

    def __init__(self, source: Source) -> None:
        self.parser = parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.ordered_attributes = False
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._entity
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        self._path = source.path
        self._languages: dict[str, None] = {}
        self._source_language = ""
        self._stack: list[str] = []
        self._unit: dict[str, str] = {}
        self._unit_line = 0
        self._language = ""
        self._text: list[str] | None = None
        self._length = 0
        self.found = Gathered(source, self._columns)

    @property
    def line(self) -> int:
        return int(self.parser.CurrentLineNumber)

    def _columns(self, rows: list[dict[str, str]]) -> dict[str, list[Any]]:
        names = sorted(self._languages, key=lambda name: name.lower() != self._source_language)
        return {name: [row.get(name) for row in rows] for name in names}

    def _entity(self, name: str, *_: Any) -> None:
        raise UsageError(
            f"{self._path}:{self.line}: custom entity {name!r} is not expanded, for safety",
            fix="export it again without a DTD, or replace the entity by its text",
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._stack and name != "tmx":
            raise UsageError(f"{self._path} is not a translation memory: expected <tmx>, not <{name}>")
        self._stack.append(name)
        if len(self._stack) > DEPTH:
            raise UsageError(
                f"{self._path}:{self.line}: elements nested {DEPTH} deep; a TMX has about eight", fix="export it again"
            )
        if name == "header":
            self._source_language = attributes.get("srclang", "").lower()
        elif name == "tu":
            self._unit, self._unit_line = {}, self.line
        elif name == "tuv":
            self._language = next((attributes[key] for key in LANG if key in attributes), "")
        elif name == "seg":
            self._text, self._length = [], 0

    def _characters(self, text: str) -> None:
        if self._text is None or CODES.intersection(self._stack[-4:]):
            return
        self._length += len(text)
        if self._length <= LONGEST:
            self._text.append(text)

    def _end(self, name: str) -> None:
        self._stack.pop()
        if name == "seg" and self._text is not None:
            if not self._language:
                self.found.broken.append(Broken(self.line, "a <tuv> without xml:lang"))
            elif self._length > LONGEST:
                self.found.broken.append(Broken(self.line, f"a text of more than {LONGEST >> 20} MiB"))
            else:
                # Further texts in the same language are variants.
                self._unit.setdefault(self._language, " ".join("".join(self._text).split()))
            self._text = None
        elif name == "tu":
            self._take()

    def _take(self) -> None:
        if len(self._unit) < 2:
            has = f"only {next(iter(self._unit))}" if self._unit else "none"
            self.found.broken.append(Broken(self._unit_line, f"expected a <tuv> in two languages; this <tu> has {has}"))
            return
        self._languages |= dict.fromkeys(self._unit)
        self.found.add(self._unit, self._unit_line, sum(map(len, self._unit.values())))
