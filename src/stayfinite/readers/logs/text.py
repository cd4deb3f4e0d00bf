"""Text logs of any format, line by line.

Each line is matched against the shape of the previous line, then other recent shapes (``shapes``), then the
formats, most recently used first. A line that no format claims is a message. Consecutive lines of one shape form a run,
and their numbers are converted together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RunSeries
from stayfinite.readers.logs.formats import FORMATS, Format
from stayfinite.readers.logs.lines import counts_up, split_prefix
from stayfinite.readers.logs.messages import is_trouble
from stayfinite.readers.logs.rank_state import RankState
from stayfinite.readers.logs.reading import RANK, Reading, Shape, ShapeBook

LONGEST_MEASURED = 16_384  # longer lines are always messages
OFTEN = 8  # a message seen this often gets a shape
MOST_RANKS = 4_096
MOST_OPENING = 400
"""The first lines, kept as they are: what people quote stands there."""

_MEASURES = lazy_regex(r"\d|(?i:\bnan|\binf)")
_NOT_FINITE = lazy_regex(r"(?i:\bnan\b|\binf|finite)")
_HEADS = lazy_regex(
    r"(?i:loss|gpu_mem|\|\s*(?:class|category)\b|f1-score|\bpred|\bhyp|\btrue|\btarget|\bref|"
    r"(?:weight|bias)\b.{0,24}\bnone)|abs min"
)
_BAR_BEFORE = lazy_regex(r"%\|[^|\r\n]{0,400}\|\s{0,9}\d+/(?:\d+|\?) \[[^\[\]\n]{1,300}\](?=\s*[^\s:])")
_REMARK = lazy_regex(
    r"(?i:\b(?:warning|error|exception|failed|invalid|overflow|no valid)\b|\bskipp(?:ed|ing)\b(?!\s*[:=]?\s*\d))"
)
_SAID = lazy_regex(
    r"(?i:\b(?:the|an?|my|it|is|are|was|but|and|does|only|always|never|after|with|without|for|in|why|if|"
    r"der|die|das|ist|und|nach|nicht|mit|les?|la|est|et|avec|el|los|es|con|no|y|de|que|\u043d\u0435|\u0438|\u043d\u0430)\b)|"
    r"\?\s*$|[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]{2}"
)
"""Words that no program prints between its numbers."""
MOST_SAID = 6
"""Numbers in a sentence; a line with more is a log's."""
_COMMA = lazy_regex(r"(?i:loss|norm|acc(?:uracy)?)[ :=]{1,4}[-+]?\d{1,6},(?:\d{2}|\d{4,9})(?![\d,.])")
_POINT = lazy_regex(r"\d\.\d")
_DECIMALS = lazy_regex(r"(?<![\d.,])(\d{1,9}),(\d{1,9})(?![\d,])")
_NOTHING = lazy_regex(r"(?!)").fullmatch


class TextReader:
    """Reads lines into one series per rank."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines = 0
        self._opening: list[str] = []
        self._ranks: dict[int, RankState] = {}
        self._processes: dict[str, int] = {}
        self._formats: list[Format] = [make() for make in FORMATS]
        self._waiters = [format_ for format_ in self._formats if format_.waits]
        self._waiting = False
        self._book = ShapeBook()
        self._counted: bool | None = None
        """Whether lines begin with their step; unknown before the first ones."""
        self._commas = False
        """Whether decimals are written with a comma."""
        self._shape: Shape | None = None
        self._run_lines: list[int] = []
        self._run: list[tuple[str, ...]] = []

    def feed(self, lines: Sequence[str]) -> None:
        """Read lines without line ends; one that ends in a carriage return continues in the next."""
        if self._counted is None and lines:
            self._counted = counts_up(lines)
        if len(self._opening) < MOST_OPENING:
            self._opening += lines[: MOST_OPENING - len(self._opening)]
        fullmatch = _NOTHING if self._shape is None else self._shape.pattern.fullmatch
        number = self.lines
        add_line, add_groups = self._run_lines.append, self._run.append
        for line in lines:
            number += 1
            if self._commas:
                line = _with_points(line)
            match = fullmatch(line)
            if match is not None:
                add_line(number)
                add_groups(match.groups())
                continue
            if "\r" in line:
                for part in line.split("\r"):
                    if part and not part.isspace():
                        self._split(part, number)
                number -= line[-1] == "\r"
            elif not line or line.isspace():
                continue
            else:
                self._split(line, number)
            fullmatch = _NOTHING if self._shape is None else self._shape.pattern.fullmatch
        self.lines = number
        self._flush()

    def close(self) -> None:
        self._flush()
        for state in self._ranks.values():
            block = state.traceback.close()
            if block:
                state.messages.add(*block)

    @property
    def series(self) -> list[RunSeries]:
        """One per rank, the main one first."""
        if not self._ranks:
            self._state(0)
        states = sorted(self._ranks.items(), key=lambda item: (not item[1].series.points_seen, item[0]))
        for _, state in states:
            series = state.series
            series.lines = self.lines
            series.messages = state.messages.listed(self.source, series.rank)
            series.kind = state.kind
        states[0][1].series.opening = self._opening
        return [state.repeated.measured(state.told) for _, state in states]

    def _split(self, line: str, number: int) -> None:
        """Separate a progress bar from text printed after it, and lists of a history into epochs."""
        if not self._commas and "," in line and _COMMA.search(line) and not _POINT.search(line):
            self._commas = True  # from here on
            line = _with_points(line)
        if "loss" in line and "[" in line and len(line) <= LONGEST_MEASURED:
            for row in _rows_of_history(line):
                self._read(row, number)
        while "%|" in line:
            bar = _BAR_BEFORE.search(line)
            if bar is None:
                break
            self._read(line[: bar.end()], number)
            line = line[bar.end() :]
        self._read(line, number)

    def _read(self, line: str, number: int) -> None:
        found = self._book.find(line)
        if found is not None:
            self._add_to_run(*found, number)
            return
        self._flush()
        start, rank, by_process = split_prefix(line, counted=self._counted is True)
        state = self._state(0) if rank is None else self._named_rank(line[rank[0] : rank[1]], by_process)
        text = line[start:].rstrip()
        in_traceback = state.traceback.is_open
        block = state.traceback.feed(text, number)
        if block:
            state.messages.add(*block)
        # The last line of a traceback may report a value: `Loss became infinite or NaN`.
        if not state.traceback.is_open and not (in_traceback and not _NOT_FINITE.search(text)):
            measures = _MEASURES.search(line, start)
            if measures and not self._waiting:
                met = state.messages.known(text, number)
                if met and state.repeated.add(text, number):
                    return
                if met == OFTEN and text[:1].isalnum() and len(line) < 512 and not is_trouble(text):
                    self._book.learn_message(line, start, rank, by_process)
                if met:
                    return
            if measures or self._waiting or _HEADS.search(line, start):
                reading = self._understood(line, start)
                if reading is not None:
                    reading.is_message = reading.is_message or _has_remark(reading, line)
                    partly = not reading.has("loss", "grad_norm") and state.repeated.add(text, number, claimed=True)
                    learned = None if partly else self._book.learn(line, reading, rank, by_process)
                    if learned is None:
                        self._take(reading, line, text, state, number)
                    else:
                        learned[0].message = text if reading.is_message else ""
                        self._add_to_run(*learned, number)
                    return
            state.repeated.add(text, number)
        state.messages.add(text, number)

    def _understood(self, line: str, start: int) -> Reading | None:
        if len(line) > LONGEST_MEASURED:
            return None
        reading = None
        lowered = line.lower()
        for place, format_ in enumerate(self._formats):
            for mark in format_.marks:
                if mark in lowered:
                    break
            else:
                if not format_.is_open:
                    continue
            reading = format_.read(line, start)
            if reading is not None:
                if place and not reading.moves and not format_.is_last:
                    self._formats.insert(0, self._formats.pop(place))
                break
        self._waiting = any(format_.is_open for format_ in self._waiters)
        if self._waiting:  # table rows may look like earlier messages
            self._book.forget_messages()
            self._shape = None
        return reading

    def _take(self, reading: Reading, line: str, text: str, state: RankState, number: int) -> None:
        """Add a single line."""
        for name, begin, end in reading.fields:
            if name == RANK:
                state = self._named_rank(line[begin:end], by_process=False)
        if reading.fields or reading.constants:
            names = [name for name, _, _ in reading.fields]
            state.take(reading, names, [number], [[line[begin:end] for _, begin, end in reading.fields]])
        if reading.is_message:
            state.messages.add(text, number, measured=True)

    def _add_to_run(self, shape: Shape, match: re.Match[str], number: int) -> None:
        if shape is not self._shape:
            self._flush()
            self._shape = shape
        self._run_lines.append(number)
        self._run.append(match.groups())

    def _flush(self) -> None:
        if not self._run:
            return
        shape, lines, run = self._shape, self._run_lines[:], self._run[:]
        self._run_lines.clear()
        self._run.clear()
        assert shape is not None
        if shape.rank_group < 0:
            self._apply(self._state(0), shape, lines, run)
            return
        ranks: dict[str, tuple[list[int], list[tuple[str, ...]]]] = {}
        for line, groups in zip(lines, run, strict=True):
            its_lines, its_run = ranks.setdefault(groups[shape.rank_group], ([], []))
            its_lines.append(line)
            its_run.append(groups)
        for rank, (its_lines, its_run) in ranks.items():
            self._apply(self._named_rank(rank, shape.by_process), shape, its_lines, its_run)

    @staticmethod
    def _apply(state: RankState, shape: Shape, lines: list[int], run: list[tuple[str, ...]]) -> None:
        if shape.reading.fields:
            state.take(shape.reading, shape.names, lines, run)
        if shape.message:
            state.messages.add(shape.message, lines[0], count=len(lines), last=lines[-1], measured=True)

    def _named_rank(self, rank: str, by_process: bool) -> RankState:
        """The state of the rank named in a line; process ids are numbered in order of appearance."""
        if by_process:
            index = self._processes.setdefault(rank, len(self._processes)) if len(self._processes) < MOST_RANKS else 0
        else:
            index = int(rank) if rank.isascii() and rank.isdigit() else 0
        state = self._state(index)
        state.series.rank = index if state is self._ranks.get(index) else state.series.rank
        return state

    def _state(self, rank: int) -> RankState:
        """The state of a rank. Lines without a rank belong to the first one."""
        state = self._ranks.get(rank)
        if state is None:
            if rank and len(self._ranks) >= MOST_RANKS:
                return self._state(0)
            state = self._ranks[rank] = RankState(self.source)
        return state


def _with_points(line: str) -> str:
    """`loss 2,2293` as `loss 2.2293`, where no number of the line has a point."""
    return line if _POINT.search(line) else _DECIMALS.sub(r"\1.\2", line)


def _has_remark(reading: Reading, line: str) -> bool:
    """Whether somebody says more than the numbers, or output of another process follows them on the same line."""
    if reading.kind and len(reading.fields) <= MOST_SAID and len(_SAID.findall(line)) >= 2:
        return True
    end = max((end for _, _, end in reading.fields), default=len(line))
    return len(line) - end > 12 and _REMARK.search(line, end) is not None


_LISTED = lazy_regex(r"['\"](\w{1,40})['\"]\]?\s?[:=]\s?\[((?:[-+.\de]+|nan|inf)(?:,\s?(?:[-+.\de]+|nan|inf)){3,})\]")


def _rows_of_history(line: str) -> Iterator[str]:
    """The lines of a history that is printed at the end, a list of values for each name, as each epoch would have had.

    ::

        {"loss": [0.71, 0.69, 0.69, 0.69], "val_acc": [0.5, 0.5, 0.5, 0.5]}
        history["loss"] = [nan, nan, nan, nan]
    """
    lists = {name: re.split(r",\s?", values) for name, values in _LISTED.findall(line)}
    if not any("loss" in name for name in lists):
        return
    for epoch, row in enumerate(zip_longest(*lists.values()), 1):
        pairs = [f"{name}: {value}" for name, value in zip(lists, row, strict=True) if value is not None]
        yield f"epoch {epoch} - {' - '.join(pairs)}"
