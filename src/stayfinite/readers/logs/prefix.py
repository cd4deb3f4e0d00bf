"""Ranks and timestamps that launchers and loggers put before a line.

::

    [rank0]: ...   [Rank 0] ...   [0]: ...   0: ...   [default0]:...   [1,0]<stdout>:...   (RayTrainWorker pid=123) ...
    0|train  | ...
    2024-05-06 07:08:09,123 ...   [07:08:09] ...   05/06/2024 07:08:09 - ...   I0506 07:08:09.123456 99 train.py:12] ...
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from stayfinite.core.lazy_regex import lazy_regex

_DATE = r"(?:\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[-/]\d{1,2}[-/]\d{2,4}|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d)"
_TIME = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?: ?[AP]M)?(?:Z|[+-]\d{2}:?\d{2})?"
_STAMP = rf"\[?(?:{_DATE}(?:[T ,_-]{{1,3}}{_TIME})?|{_TIME})(?: \d{{4}})?\]?(?=[\s,;:|\[(-]|$)[ \t,;:|-]{{0,3}}"
_GLOG = r"[IWEF]\d{4} \d{2}:\d{2}:\d{2}\.\d{1,9} +\d{1,9} (?:[\w./-]{1,120}:\d{1,6}\] ?)?"
_RANKS = (
    r"\[(?:[Rr]ank|RANK|default|[Ww]orker|[Pp]roc|[Gg]pu|GPU)[ _:=-]?(?P<tag>\d{1,6})\]:? ?"
    r"|\[(?P<bracket>\d{1,4})\]: ?"
    r"|\[\d{1,4},(?P<mpi>\d{1,6})\]<std(?:out|err)>: ?"
    r"|(?P<srun>\d{1,4}): (?! *(?:nan|inf|nGT)\b)(?=[ ]*[A-Za-z\[{|<('_\"]|[ ]*\d{4}-)"
    r"|\((?:[\w.]{1,60} )?pid=(?P<pid>\d{1,9})(?:, [^)\n]{0,60})?\) ?"
    r"|\d{1,3}\|[\w.-]{1,40} *\| "
    r"|(?:[Rr]ank|RANK)[ :=]?(?P<word>\d{1,6})(?:\]|:|\s?\||,) ?"
)
_PREFIX = lazy_regex(rf"(?:{_STAMP}|{_GLOG}|{_RANKS}){{1,5}}")
_COUNTED = lazy_regex(rf"(?:{_STAMP}|{_GLOG}){{0,3}}(\d{{1,9}}): ")
_COUNTED_LINES = 6
"""Lines that begin with ever higher numbers, from which on these are steps and no ranks."""
_STARTS = frozenset("0123456789[(IWEFRrJFMASONDTL")


def counts_up(lines: Iterable[str]) -> bool:
    """Whether lines such as `300: D: 1.51` begin with their step: each rank would come more than once."""
    numbers = [int(found[1]) for line in lines if (found := _COUNTED.match(line))]
    return len(numbers) >= _COUNTED_LINES and all(before < after for before, after in pairwise(numbers))


def split_prefix(line: str, *, counted: bool = False) -> tuple[int, tuple[int, int] | None, bool]:
    """Return the start of the line's own text, the span of its rank or None, and whether the rank is a process id.

    Arguments:
        counted: a number and a colon at the start are the step.
    """
    if line[:1] not in _STARTS:
        return 0, None, False
    if counted and (step := _COUNTED.match(line)):
        return step.start(1), None, False
    match = _PREFIX.match(line)
    if match is None:
        return 0, None, False
    for group in ("tag", "bracket", "mpi", "srun", "word"):
        if match[group] is not None:
            return match.end(), match.span(group), False
    if match["pid"] is not None:
        return match.end(), match.span("pid"), True
    return match.end(), None, False
