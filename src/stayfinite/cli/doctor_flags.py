"""Finds flags of the doctor that stand after PROGRAM, and so were passed to the program."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

ALONE = ("--guard", "--strict", "--watch", "--apply", "--once", "--json")
VALUED = ("--minutes", "--patch")


def misplaced_flags(program: Sequence[str], its: Sequence[str]) -> str:
    """One line that names the doctor's flags among the program's arguments; empty if there are none.

    A flag whose name stands in quotes in the program's file is the program's own.

    Arguments:
        program: the words that name the program, such as `train.py` or `-m package.train`.
        its: the arguments after it.
    """
    text = _text_of(program[-1])
    names: list[str] = []
    words: list[str] = []
    before_separator = its[: its.index("--")] if "--" in its else its
    for at, word in enumerate(before_separator):
        name, equals, _ = word.partition("=")
        if name in names or name not in (*ALONE, *VALUED) or f'"{name}"' in text or f"'{name}'" in text:
            continue
        names.append(name)
        words += before_separator[at : at + 1 + (name in VALUED and not equals)]
    if not names:
        return ""
    passed, put = ("was passed", "it") if len(names) == 1 else ("were passed", "them")
    return (
        f"{' and '.join(names)} {passed} to {program[-1]}. "
        f"For doctor, put {put} first: {shlex.join(['stayfinite', 'doctor', *words, *program])}"
    )


def _text_of(program: str) -> str:
    try:
        return Path(program).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
