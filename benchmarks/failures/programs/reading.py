"""Reads the programs: plain scripts, each as it is (healthy) or with one change that plants a fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from benchmarks.failures.cases import Case
from benchmarks.failures.programs.record import Planted

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Program(Case):
    """A whole program."""

    base: str
    """The script that was changed; ``split/name``."""
    text: str

    @property
    def changed(self) -> bool:
        """Whether it is not the base as it stands."""
        return self.name != self.base

    @property
    def base_text(self) -> str:
        """The healthy script behind it."""
        return _base(self.split, self.base)


def read(split: str) -> Iterator[Program]:
    """All programs of a split: the faulty, the bases, the bases with a harmless change."""
    table = import_module(f"benchmarks.failures.programs.{split}.planted")
    bases = sorted(path.stem for path in (FOLDER / split / "bases").glob("*.py"))
    for each in (*table.FAULTS, *(Planted(name, name, ()) for name in bases), *table.HEALTHY):
        yield Program(
            part="programs",
            split=split,
            name=each.name,
            causes=each.causes,
            author=table.AUTHOR,
            base=each.base,
            text=text_of(split, each),
        )


def text_of(split: str, planted: Planted) -> str:
    """The program, changed as planned."""
    text = _base(split, planted.base)
    for old, new in planted.edits:
        if old not in text:
            raise ValueError(f"{planted.name}: {old!r} is not in {planted.base}.py")
        text = text.replace(old, new)
    compile(text, planted.name, "exec")
    return text


def _base(split: str, name: str) -> str:
    return (FOLDER / split / "bases" / f"{name}.py").read_text(encoding="utf-8")
