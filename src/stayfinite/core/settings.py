"""Settings of a run as written, found under whatever name a framework uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal

from stayfinite.core.lazy_regex import lazy_regex

_IN_SCRIPT = lazy_regex(r"\.(?:py|ipynb):\d+$")
_SEPARATORS = lazy_regex(r"[\s\-./]+")
_STEPS = lazy_regex(r"[./]+")
_MOST_STEPS = 16
"""Path components, from the end, that a name can match."""
LONGEST_TEXT = 4_000
"""Characters of one setting that rules search; a constant in a script may have millions."""
MOST_TEXT = 250_000
"""Characters of all settings that rules search."""
_OTHER_MEANING = lazy_regex(
    "no|not|non|disable|without|min|minimum|max|end|final|eval|val|valid|validation|test|dev|compute|storage|quant|old|prev|previous|last|current|"
    "warmup|ema|teacher|target|decoder|encoder|text|discriminator|disc"
)
"""Prefixes that change the meaning: `min_lr` is not `lr`, `eval_batch_size` not the batch size,
`bnb_4bit_compute_dtype` not the dtype of the weights.
"""


def plain_name(name: str) -> str:
    """Normalize a name for comparison: ``--model.Learning-Rate`` -> ``model_learning_rate``."""
    return _SEPARATORS.sub("_", name.strip().lstrip("-")).strip("_").lower()


def in_script(where: str) -> bool:
    """Whether this place is a line of a program: `train.py:12`."""
    return _IN_SCRIPT.search(where) is not None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting and where it was written."""

    name: str
    """As written, with its path: `training.optimizer.lr`, `fp16.enabled`, `--learning-rate`. Arguments of a call are
    under its name: `TrainingArguments.fp16`, `AutoModel.from_pretrained.dtype`.
    """
    value: Any
    """Number, string, bool, None, or a list or dict of these. A computed value is an ``Expression`` with its source."""
    source: str
    line: int = 0
    kind: str = "file"
    """Origin: `file`, `script`, `notebook`, `command`, `log`, or `default` (of an argument or a field)."""
    bound_to: str = ""
    """For a call's argument, the target of the call: `ref_model` in `ref_model = Model.from_pretrained(...)`."""
    doubtful: bool = False
    """Whether it is in a branch that may not be taken."""

    @property
    def where(self) -> str:
        """`train.py:12`, or the file alone if there is no line."""
        return f"{self.source}:{self.line}" if self.line else self.source

    @property
    def plain(self) -> str:
        """Normalized name."""
        return plain_name(self.name)


When = Literal["", "still", "exploded", "finite"]
"""No weight moves; numbers are not finite or grow without end; all numbers are finite."""


@dataclass(frozen=True, slots=True)
class CodeFault:
    """A fault that a program shows by its own text."""

    cause: str
    """The slug of the rule."""
    text: str
    where: str
    sure: bool
    """Whether nothing that was left out could excuse it."""
    mild: bool = False
    """Whether training survives it."""
    when: When = ""
    """The symptom without which it is no evidence."""
    fix: str = ""
    """What to do, where the rule's own fix does not fit."""
    fact: bool = False
    """Whether it holds whatever else the program does, so that only something worse could be the cause."""
    whole: bool = False
    """Whether the whole program was followed: nothing else can have done what is missing."""


class Expression(str):
    """Source text of a value that is known only at run time."""

    __slots__ = ()


class Settings:
    """All settings of a run, in reading order, and the texts they were read from."""

    def __init__(
        self,
        settings: Iterable[Setting] = (),
        notes: Iterable[tuple[str, str]] = (),
        code_faults: Iterable[CodeFault] = (),
    ) -> None:
        self._settings = list(settings)
        self._index: _Index | None = None
        self._written: list[tuple[str, str]] | None = None
        self.notes = list(notes)
        """``(where, text)``: remarks, commands and code lines that are not key-value pairs."""
        self.code_faults = list(code_faults)
        """What quoted code shows."""

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __bool__(self) -> bool:
        return bool(self._settings or self.notes)

    def __add__(self, other: Settings) -> Settings:
        faults = [*self.code_faults, *other.code_faults]
        return Settings([*self._settings, *other._settings], [*self.notes, *other.notes], faults)

    def find(self, *names: str) -> Setting | None:
        """First of these names that is set; explicit values come before defaults, known ones before expressions.

        A name matches a setting with that name or ending: ``lr`` finds `optimizer.params.lr`, ``fp16_enabled`` finds
        `fp16.enabled`, ``dtype`` finds `torch_dtype`. Whole path components come before parts of one, and a prefix that
        changes the meaning does not match: ``lr`` never finds `min_lr`.
        """
        for name in names:
            found = self._matches(name)
            if found:
                return min(found, key=_doubt)
        return None

    def all(self, *names: str) -> list[Setting]:
        """All settings with one of these names, in reading order."""
        found = {id(setting): setting for name in names for setting in self._matches(name, loose=True)}
        return [setting for setting in self._settings if id(setting) in found] if len(names) > 1 else [*found.values()]

    def value(self, *names: str) -> Any:
        """Value of the first of these names that is set, else None."""
        setting = self.find(*names)
        return None if setting is None else setting.value

    def search(self, pattern: str | re.Pattern[str]) -> tuple[str, str] | None:
        """``(where, text)`` of the first note or setting that matches."""
        words, flags = (pattern, re.IGNORECASE) if isinstance(pattern, str) else (pattern.pattern, pattern.flags)
        found = _matcher(words, flags)
        for where, text in self.texts():
            if found(text):
                return where, text
        return None

    def texts(self) -> Iterator[tuple[str, str]]:
        """All notes, and the settings as `name: value`, within `LONGEST_TEXT` and `MOST_TEXT`."""
        if self._written is None:
            written = [(each.where, f"{each.name}: {each.value}"[:LONGEST_TEXT]) for each in self._settings]
            ends = accumulate(len(text) for _, text in written)
            self._written = [each for each, end in zip(written, ends, strict=True) if end <= MOST_TEXT]
        yield from self.notes
        yield from self._written

    def _matches(self, name: str, *, loose: bool = False) -> list[Setting]:
        if self._index is None:
            self._index = _Index(self._settings)
        return self._index.matches(plain_name(name), loose=loose)


class _Index:
    """Settings by the endings of their names. Built once: rules look up hundreds of names."""

    def __init__(self, settings: list[Setting]) -> None:
        self._settings = settings
        self._exact: dict[str, list[int]] = {}
        """By whole path components: `optimizer.params.lr` under `lr`, `params_lr`, `optimizer_params_lr`."""
        self._loose: dict[str, list[int]] = {}
        """By words of the last component: `train_batch_size` under `batch_size`, `size`."""
        for position, setting in enumerate(settings):
            steps = [plain_name(step) for step in _STEPS.split(setting.name.strip().lstrip("-"))[-_MOST_STEPS:]]
            ending = ""
            for step in reversed(steps):
                ending = f"{step}_{ending}" if ending else step
                self._exact.setdefault(ending, []).append(position)
            words = steps[-1].split("_")
            for start in range(1, len(words)):
                if not _OTHER_MEANING.fullmatch(words[start - 1]):
                    self._loose.setdefault("_".join(words[start:]), []).append(position)
                else:
                    break

    def matches(self, name: str, *, loose: bool) -> list[Setting]:
        exact = self._exact.get(name, [])
        if exact and not loose:
            return [self._settings[position] for position in exact]
        more = self._loose.get(name, [])
        positions = sorted({*exact, *more}) if loose else more
        return [self._settings[position] for position in positions]


@lru_cache(maxsize=1024)
def _matcher(pattern: str, flags: int) -> Callable[[str], object]:
    """Searches a text once: a run that is looked at again, and the next run, have mostly the same settings."""
    return lru_cache(maxsize=1024)(re.compile(pattern, flags).search)


def _doubt(setting: Setting) -> int:
    if isinstance(setting.value, Expression):
        return 3
    return 2 if setting.doubtful else 1 if setting.kind == "default" else 0
