"""Normalize spelling: Unicode forms, quotes, subscripts, gap marks. The same in training and in use."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Literal, get_args

Form = Literal["nfc", "nfkc", "diacritics", "quotes", "subscripts", "gaps", "spaces"]
FORMS: tuple[Form, ...] = get_args(Form)

_QUOTES = str.maketrans({
    "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'", "\u00b4": "'", "\u0060": "'",
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2033": '"', "\u00ab": '"', "\u00bb": '"',
})  # fmt: skip
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉ₓ₊₋", "0123456789x+-")
_GAP = re.compile(r"\[?\s*(?:\.\s*){3,}\]?|\[?\s*…(?:\s*…)*\s*\]?|\[\s*x(?:\s+x)*\s*\]")
_SPACES = re.compile(r"\s+")


def _bare(text: str) -> str:
    apart = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(c for c in apart if not unicodedata.combining(c)))


_STEPS: dict[Form, Callable[[str], str]] = {
    "nfc": lambda text: unicodedata.normalize("NFC", text),
    "nfkc": lambda text: unicodedata.normalize("NFKC", text),
    "diacritics": _bare,
    "quotes": lambda text: text.translate(_QUOTES),
    "subscripts": lambda text: text.translate(_SUBSCRIPTS),
    "gaps": lambda text: _GAP.sub(" ... ", text),
    "spaces": lambda text: text,
}


def normalizer(forms: Sequence[Form]) -> Callable[[str], str]:
    """A function that applies these forms in a fixed order and collapses whitespace."""
    steps = [step for form, step in _STEPS.items() if form in forms]

    def normalize(text: str) -> str:
        for step in steps:
            text = step(text)
        return _SPACES.sub(" ", text).strip() if steps else text

    return normalize


def legible(text: str) -> str:
    """The text with `?` for undecodable bytes and lone surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")
