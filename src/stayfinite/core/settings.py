"""What a run was told to do: settings as they were written, found again whatever a framework calls them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

_SEPARATORS = re.compile(r"[\s\-./]+")
_STEPS = re.compile(r"[./]+")
_MOST_STEPS = 16
"""Of a path, counted from its end, that a name can match."""
_OTHER_MEANING = re.compile(
    "no|not|non|disable|without|min|minimum|max|end|final|eval|valid|validation|test|dev|compute|storage|quant|old|prev|previous|last|current|"
    "warmup|ema|teacher|target|decoder|encoder|text|discriminator|disc"
)
"""Words that, in front of a name, make it the name of something else: `min_lr` is no `lr`, `eval_batch_size` not the
batch size, `bnb_4bit_compute_dtype` not the dtype of the weights."""


def plain_name(name: str) -> str:
    """``--model.Learning-Rate`` -> ``model_learning_rate``: how names are compared."""
    return _SEPARATORS.sub("_", name.strip().lstrip("-")).strip("_").lower()


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str
    """As written, with the path that leads to it: `training.optimizer.lr`, `fp16.enabled`, `--learning-rate`.
    A call's arguments come under the call's name: `TrainingArguments.fp16`, `AutoModel.from_pretrained.dtype`."""
    value: Any
    """A plain Python value: number, string, bool, None, list or dict of such. Where a program computes it, the
    expression as written, as an ``Expression``."""
    source: str
    line: int = 0
    kind: str = "file"
    """Where it comes from: `file`, `script`, `notebook`, `command`, `log`, or `default` (of an argument or a field)."""
    bound_to: str = ""
    """Of a call's argument: what the call's result goes to, `ref_model` of `ref_model = Model.from_pretrained(...)`."""
    doubtful: bool = False
    """Whether it stands in a branch of which only a run would tell whether it is taken."""

    @property
    def where(self) -> str:
        """`train.py:12`, or the file alone where lines mean nothing."""
        return f"{self.source}:{self.line}" if self.line else self.source

    @property
    def plain(self) -> str:
        """The name as it is compared."""
        return plain_name(self.name)


class Expression(str):
    """Source text of a value that only running the program would tell."""

    __slots__ = ()


class Settings:
    """All settings of a run, in the order of reading, and the texts they were read from."""

    def __init__(self, settings: Iterable[Setting] = (), notes: Iterable[tuple[str, str]] = ()) -> None:
        self._settings = list(settings)
        self._index: _Index | None = None
        self.notes = list(notes)
        """``(where, text)``: remarks, commands and lines of code as they stand, for what is no key and value."""

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __bool__(self) -> bool:
        return bool(self._settings or self.notes)

    def __add__(self, other: Settings) -> Settings:
        return Settings([*self._settings, *other._settings], [*self.notes, *other.notes])

    def find(self, *names: str) -> Setting | None:
        """The first of these names that is set: an explicit value before a default, a known one before an expression.

        A name matches a setting that is called so or ends in it: ``lr`` finds `optimizer.params.lr`,
        ``fp16_enabled`` finds `fp16.enabled`, ``dtype`` finds `torch_dtype`. Whole steps of the path come before parts
        of a step, and a step in which another word changes the meaning does not match: ``lr`` never finds `min_lr`.
        """
        for name in names:
            found = self._matches(name)
            if found:
                return min(found, key=_doubt)  # the first of the least doubtful
        return None

    def all(self, *names: str) -> list[Setting]:
        """Every setting of one of these names, in the order of reading."""
        found = {id(setting): setting for name in names for setting in self._matches(name, loose=True)}
        return [setting for setting in self._settings if id(setting) in found] if len(names) > 1 else [*found.values()]

    def value(self, *names: str) -> Any:
        """The value of the first of these names that is set, else None."""
        setting = self.find(*names)
        return None if setting is None else setting.value

    def search(self, pattern: str | re.Pattern[str]) -> tuple[str, str] | None:
        """``(where, text)`` of the first note or textual value that the pattern occurs in."""
        matcher = re.compile(pattern, re.IGNORECASE) if isinstance(pattern, str) else pattern
        for where, text in self.texts():
            if matcher.search(text):
                return where, text
        return None

    def texts(self) -> Iterator[tuple[str, str]]:
        """Every note, and every setting as `name: value`."""
        yield from self.notes
        for setting in self._settings:
            yield setting.where, f"{setting.name}: {setting.value}"

    def _matches(self, name: str, *, loose: bool = False) -> list[Setting]:
        if self._index is None:
            self._index = _Index(self._settings)
        return self._index.matches(plain_name(name), loose=loose)


class _Index:
    """Which settings end in a name. Built once: rules ask for hundreds of names."""

    def __init__(self, settings: list[Setting]) -> None:
        self._settings = settings
        self._exact: dict[str, list[int]] = {}
        """By whole steps of the path: `optimizer.params.lr` under `lr`, `params_lr`, `optimizer_params_lr`."""
        self._loose: dict[str, list[int]] = {}
        """By the words of the last step: `train_batch_size` under `batch_size`, `size`."""
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


def _doubt(setting: Setting) -> int:
    if isinstance(setting.value, Expression):
        return 3
    return 2 if setting.doubtful else 1 if setting.kind == "default" else 0
