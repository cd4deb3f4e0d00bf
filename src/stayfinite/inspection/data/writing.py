"""Characters beyond ASCII, and which of them are encoding damage."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.data.places import Tally

_CONTINUED = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(0x80, 0xC0))
"""Continuation bytes of UTF-8, misread as cp1252."""
_PUNCTUATION = "\u00a0\u00ab\u00bb\u2018\u2019\u201a\u201c\u201d\u201e\u2039\u203a\u2013\u2014\u2026\u2022"
"""Punctuation that may follow an accented letter in correct text."""
_RAISED = "\u00b0\u00b1\u00b2\u00b3\u00b4\u00b7\u00b9\u00ae\u2122"
_ANY = re.escape(_CONTINUED)
_TELLING = re.escape("".join(c for c in _CONTINUED if c not in _PUNCTUATION))
_SURE = re.escape("".join(c for c in _CONTINUED if c not in _PUNCTUATION + _RAISED))
_DOUBLY = (
    f"\u00c3[{_TELLING}]|\u00c2[\u00a0-\u00bf]|[\u00c4\u00c5][{_SURE}]|"  # é as Ã©, £ as Â£, š as Å¡
    f"(?:[\u00ce\u00cf\u00d0\u00d1\u00d7\u00d8\u00d9][{_ANY}]){{2}}|"  # Greek, Cyrillic, Hebrew, Arabic
    f"\u00e2\u20ac[{_ANY}]|[\u00e0-\u00ef](?:[{_SURE}][{_ANY}]|[{_ANY}][{_SURE}])"  # quotes as â€™, Chinese
)
_DAMAGE = lazy_regex(
    f"(?P<replaced>\ufffd)|(?P<undecodable>[\ud800-\udfff])|"
    f"(?P<control>[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f])|(?P<doubly>{_DOUBLY})"
)
_CONTROLS = bytes([*range(9), *range(14, 27), *range(28, 32), 127])
_BEYOND = lazy_regex("[^\x00-\x7f]+")
_SIGNS = frozenset(_CONTINUED) - frozenset(_PUNCTUATION)
_LEADS = frozenset(map(chr, range(0xC2, 0xF0)))
_PAIR = lazy_regex(f"[\u00c2-\u00ef][{_ANY}]")
"""Quick filter: text without such a pair was not decoded twice."""

KINDS = {
    "replaced": "replacement characters (U+FFFD)",
    "undecodable": "bytes that are not UTF-8",
    "control": "control characters",
    "doubly": "doubly decoded text (é as Ã©)",
}


@dataclass(slots=True)
class Writing:
    """The characters of a split's texts."""

    characters: Counter[str] = field(default_factory=Counter)
    """Beyond ASCII."""
    total: int = 0
    """All characters."""
    damage: dict[str, Tally] = field(default_factory=lambda: {kind: Tally() for kind in KINDS})
    damaged: Tally = field(default_factory=Tally)
    """Rows with any damage."""
    sample: dict[str, str] = field(default_factory=dict)
    """The first damaged text of each kind."""
    rows_with: Counter[str] | None = None
    """Number of texts per character; None if not counted."""
    composed: int = 0
    decomposed: Tally = field(default_factory=Tally)

    def take(self, first: int, columns: Sequence[Sequence[str]]) -> None:
        """Add the texts of some rows; ``first`` is the number of the first one."""
        seen: set[int] = set()
        for texts in columns:
            joined = "\n".join(texts)
            self.total += len(joined) - len(texts) + 1
            if joined.isascii():
                raw = joined.encode()
                if len(raw.translate(None, _CONTROLS)) != len(raw):
                    self._look(first, texts, seen)
                continue
            found = Counter("".join(_BEYOND.findall(joined)))
            self.characters.update(found)
            raw = joined.encode("utf-8", "surrogatepass")
            if (
                "\ufffd" in found
                or any("\ud800" <= c <= "\udfff" or "\x80" <= c <= "\x9f" for c in found)
                or len(raw.translate(None, _CONTROLS)) != len(raw)
                or (not _SIGNS.isdisjoint(found) and not _LEADS.isdisjoint(found) and _PAIR.search(joined) is not None)
            ):
                self._look(first, texts, seen)
            if self.rows_with is not None:
                for text in texts:
                    if not text.isascii():
                        self.rows_with.update(set(text))
            self._forms(first, texts)
        for row in sorted(seen):
            self.damaged.add(row)

    def _look(self, first: int, texts: Sequence[str], seen: set[int]) -> None:
        for row, text in enumerate(texts, first):
            kinds: dict[str, str] = {}
            for found in _DAMAGE.finditer(text):
                kinds.setdefault(str(found.lastgroup), text[max(0, found.start() - 12) : found.end() + 12])
                if len(kinds) == len(KINDS):
                    break
            for kind, near in kinds.items():
                self.damage[kind].add(row)
                self.sample.setdefault(kind, near)
                seen.add(row)

    def _forms(self, first: int, texts: Sequence[str]) -> None:
        normal = unicodedata.is_normalized
        for row, text in enumerate(texts, first):
            if text.isascii():
                continue
            if not normal("NFC", text):
                self.decomposed.add(row)
            elif not normal("NFD", text):
                self.composed += 1


def script_of(character: str) -> str:
    """The script or symbol kind: usually the first word of the Unicode name."""
    name = unicodedata.name(character, "")
    if not name:
        return "private use" if unicodedata.category(character) == "Co" else "unnamed"
    for script in ("LATIN", "GREEK", "CYRILLIC", "HEBREW", "ARABIC", "DEVANAGARI", "CUNEIFORM", "HANGUL", "HIRAGANA",
                   "KATAKANA", "THAI", "ARMENIAN", "GEORGIAN", "TAMIL", "BENGALI", "ETHIOPIC"):  # fmt: skip
        if name.startswith(script):
            return script.capitalize()
    if name.startswith("CJK"):
        return "Han"
    category = unicodedata.category(character)
    if name.startswith(("SUBSCRIPT", "SUPERSCRIPT")):
        return "raised and lowered"
    return {
        "M": "combining marks", "P": "punctuation", "S": "symbols", "Z": "spaces", "C": "invisible", "N": "digits",
    }.get(category[0], "other letters")  # fmt: skip
