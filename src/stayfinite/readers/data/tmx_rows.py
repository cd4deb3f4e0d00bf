"""Rows of TMX translation memories: one row per unit, one column per language. Streamed; entities are not expanded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from stayfinite.errors import UsageError
from stayfinite.readers.data.chunk import CHUNK_ROWS, CHUNK_SIZE, Broken, Chunk, Source
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
                units.broken.append(Broken(units.line, f"reading stopped here: {error}", ends=True))
                ended = True
            except expat.ExpatError as error:
                what = "the file is truncated" if ended else (f"invalid XML from here: {expat.ErrorString(error.code)}")
                units.broken.append(Broken(error.lineno, what, ends=True))
                ended = True
            if len(units.lines) >= CHUNK_ROWS or units.size > CHUNK_SIZE or ended:
                yield units.chunk(source, done())


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
        self.rows: list[dict[str, str]] = []
        self.lines: list[int] = []
        self.broken: list[Broken] = []
        self.size = 0

    @property
    def line(self) -> int:
        return int(self.parser.CurrentLineNumber)

    def chunk(self, source: Source, done: int) -> Chunk:
        """Return the units so far as a chunk."""
        names = sorted(self._languages, key=lambda name: name.lower() != self._source_language)
        columns: dict[str, list[Any]] = {name: [row.get(name) for row in self.rows] for name in names}
        made = Chunk(path=source.path, columns=columns, lines=self.lines, broken=self.broken, done=done)
        self.rows, self.lines, self.broken, self.size = [], [], [], 0
        return made

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
                self.broken.append(Broken(self.line, "a <tuv> without xml:lang"))
            elif self._length > LONGEST:
                self.broken.append(Broken(self.line, f"a text of more than {LONGEST >> 20} MiB"))
            else:
                # Further texts in the same language are variants.
                self._unit.setdefault(self._language, " ".join("".join(self._text).split()))
            self._text = None
        elif name == "tu":
            self._take()

    def _take(self) -> None:
        if len(self._unit) < 2:
            has = f"only {next(iter(self._unit))}" if self._unit else "none"
            self.broken.append(Broken(self._unit_line, f"expected a <tuv> in two languages; this <tu> has {has}"))
            return
        self._languages |= dict.fromkeys(self._unit)
        self.rows.append(self._unit)
        self.lines.append(self._unit_line)
        self.size += sum(map(len, self._unit.values()))
