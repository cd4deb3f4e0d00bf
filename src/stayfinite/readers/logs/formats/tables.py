"""Tables with a heading: notebooks (Step, Training Loss), fastai, ultralytics.

::

    Step  Training Loss  Validation Loss
    500   No log         0.532100
    1000  nan            nan

          Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
          1/100      2.5G        nan        nan        nan         45        640: 100%|####| 10/10 [00:05<00:00]

        clip  exs  gnorm        lr  mean_loss  total_train_updates  tpb  updates
           1   22  404.1 1.565e-31      7.839                   22    1       22

     Epoch  |  Train loss  |  Valid loss  |  Train / Val  |  Valid acc  |  Dur
         1  |    0.693147  |         nan  |          nan  |     47.83%  |  0.6s

    LOSS    P       R       F
    184.500 0.505   1.000   0.671

A heading starts with the step or epoch, has three known columns, or a loss among names apart; rows of the last kind are
as wide as their heading. ultralytics has no total loss column: it is the sum
of its terms.
"""

from __future__ import annotations

import re
from itertools import pairwise

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import column_of, plain
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.formats.progress_bars import read_bar
from stayfinite.readers.logs.pairs import NUMBER
from stayfinite.readers.logs.reading import BATCH, BATCHES, TOTAL, Reading, fields_of

_NAMES = lazy_regex(
    r"(?:(?:Training|Train|Validation|Valid|Eval|Test)\s(?:Loss|Accuracy|Perplexity)|(?:Learning|Grad|"
    r"Gradient)\s(?:Rate|Norm)|[A-Za-z_][\w./%@()-]*)(?=[\s|,]|$)",
    re.IGNORECASE,
)
_CELL = lazy_regex(
    rf"(?<![^\s|,])(?:(?!\d+:\d\d)({NUMBER})(?:/(\d+))?|(\d+(?:\.\d+)?[GM]B?)|No log|N/?A|None|--?|\d+:\d\d(?::\d\d)?)"
    r"(?:%|m?s)?(?=[\s|:,]|$)"
)
_APART = lazy_regex(r"[^\s|](?:[^\s|]| (?=[^\s|]))*")
"""Names with a bar, a tab or two spaces between them."""
_BARRED = lazy_regex(r"[^\s|](?:[^|]{0,38}[^\s|])?(?=\s*(?:\||$))")
"""Names between bars."""
_WORDS = lazy_regex(r"[A-Za-z_%@/.\d() -]{1,24}")
_FIRST = lazy_regex(r"[\s|]*(?:global_?)?(?:steps?|epochs?|iter\w{0,8})\b", re.IGNORECASE)
_GAPS = lazy_regex(r"\S(?:\s{2,}|\s*\|\s*)[A-Za-z_]\S*\s")
_HEADS = lazy_regex(r"loss|gpu_mem", re.IGNORECASE)
_ULTRALYTICS = {"box": "box_loss", "obj": "obj_loss", "cls": "cls_loss", "total": "loss"}
"""Column names of older releases."""
_BETWEEN = " \t|,"
"""What separates cells."""
_PATIENCE = 50
_WORST = 2_000


class Tables(Format):
    """Open after a heading while rows keep coming."""

    waits = True
    marks = ("loss", "gpu_mem")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._spans: list[tuple[int, int]] = []
        self._left = 0
        self._whole = False
        """Whether a row has to fill all columns and nothing else."""

    def read(self, line: str, start: int) -> Reading | None:
        if self._names:
            reading = self._row(line, start)
            if reading is not None:
                self._left = _PATIENCE
                return reading
        self.heading(line, start)
        if self._names:
            self._left -= 1
            if self._left <= 0:
                self._names, self.is_open = [], False
        return None

    def heading(self, line: str, start: int) -> None:
        """Remember the columns if this line is a heading."""
        if len(line) - start > _WORST or not _HEADS.search(line, start):
            return
        leads = _FIRST.match(line, start) is not None
        if not leads and not _GAPS.search(line, start):
            return
        found = list(_BARRED.finditer(line, start)) if line[start:].count("|") >= 2 else _headed(line, start)
        names = [plain(match[0]) for match in found]
        columns = [column_of(name) for name in names]
        whole = False
        if len(names) < 2 or (columns[0] not in {"step", "epoch"} if leads else len({*filter(None, columns)}) < 3):
            found = list(_APART.finditer(line, start))
            names = [plain(match[0]) for match in found]
            whole = len(names) >= 3 and all(_WORDS.fullmatch(match[0]) for match in found)
            if not whole or not any(column_of(name) == "loss" for name in names):
                return
        ultralytics = "gpu_mem" in names
        if (ultralytics or any("loss" in name for name in names[not whole :])) and len(set(names)) == len(names):
            self._names = [_ULTRALYTICS.get(name, name) for name in names] if ultralytics else names
            self._spans, self._left, self.is_open = [match.span() for match in found], _PATIENCE, True
            self._whole = whole

    def _row(self, line: str, start: int) -> Reading | None:
        cells = list(_CELL.finditer(line, start))[: len(self._names)]
        whole = len(cells) == len(self._names) and any(cell[1] is not None for cell in cells)
        if len(cells) < 2 or (cells[0][1] is None and not whole) or line[start : cells[0].start()].strip(_BETWEEN):
            return None
        for before, after in pairwise(cells):
            if line[before.end() : after.start()].strip(_BETWEEN):
                return None
        if self._whole and (len(cells) < len(self._names) or line[cells[-1].end() :].strip(_BETWEEN)):
            return None
        names = self._names if len(cells) == len(self._names) else self._aligned(cells)
        if not names:
            return None
        kind = "ultralytics" if "gpu_mem" in self._names else "table"
        reading = Reading(kind, epoch_is_step=True, has_shape=False)
        reading.take([(name, *cell.span(1)) for name, cell in zip(names, cells, strict=True) if cell[1] is not None])
        if cells[0][2] and column_of(self._names[0]) == "step":
            reading.fields.append((TOTAL, *cells[0].span(2)))
        bar = read_bar(line, cells[-1].end()) if kind == "ultralytics" else None
        if bar:
            renamed = {"step": BATCH, TOTAL: BATCHES}
            reading.fields += [(renamed[name], begin, end) for name, begin, end in bar.fields if name in renamed]
        reading.loss_is_sum = kind == "ultralytics" and not reading.has("loss")
        reading.is_point = reading.has("loss", "grad_norm", "lr") or reading.loss_is_sum
        return reading

    def _aligned(self, cells: list[re.Match[str]]) -> list[str]:
        """Match cells to columns by position when some are empty; [] if ambiguous."""
        places = []
        for cell in cells:
            begin, end = cell.span()
            apart = [min(abs(begin - left), abs(end - right)) for left, right in self._spans]
            places.append(apart.index(min(apart)))
        if places[0] != 0 or any(first >= second for first, second in pairwise(places)):
            return []
        return [self._names[place] for place in places]


def _headed(line: str, start: int) -> list[re.Match[str]]:
    """The names of a heading of single words and usual pairs of words; [] where there is anything else."""
    found = list(_NAMES.finditer(line, start))
    ends = [start, *(match.end() for match in found)]
    starts = [*(match.start() for match in found), len(line)]
    between = [line[end:begin] for end, begin in zip(ends, starts, strict=True)]
    return [] if any(text.strip(_BETWEEN) for text in between) else found


_BARE_ROW = lazy_regex(
    rf"\s*+\(?(?P<step>\d{{1,9}})\s*[\s,:;|]\s*(?:tensor\()?(?P<loss>{NUMBER})(?:,[^()\n]{{0,80}}\)|\))?\s*$"
)
_PART_DONE = lazy_regex(
    rf"\s*+(?P<step>\d{{2,9}})\s+\d{{1,3}}%\s+\(\d+m\s?\d+s(?: \(?- \d+m\s?\d+s\)?)?\)\s+(?P<loss>{NUMBER})\b"
)
_OF_ALL = lazy_regex(rf"\s*+(?P<step>\d{{1,9}})\s*/\s*(?P<total>\d{{2,9}})\s*:\s*(?P<loss>{NUMBER})\s*$")
_ALONE = lazy_regex(
    r"\s*(?:tensor\()?(\d{5,}\.\d+|\d(?:\.\d+)?e\+?\d{1,3}|nan|inf)(?:,[^()\n]{0,80}\)|\))?\s*$", re.IGNORECASE
)
_MEASURED = lazy_regex(r"\.|e|nan|inf", re.IGNORECASE)


class BareRows(Format):
    """Rows without names, as a ten-line training loop prints them.

    ::

        99 674.6989
        199 447.5712
        299 nan
        (300, nan)
        5000 5% (0m 12s) 2.9460 Gil / Portuguese
           0/ 200000: 27.8817

    The first number counts up, the second is the loss. A single row may be anything, so the first is only remembered,
    unless it is NaN. A lone number may be a score or a reward; two in a row above 10,000 are losses.
    """

    marks = (".", "nan", "inf")
    waits = True

    def __init__(self) -> None:
        self._step = -1
        self._follows = False
        """Whether the previous line was a single large number."""

    def read(self, line: str, start: int) -> Reading | None:
        alone = _ALONE.match(line, start)
        follows, self._follows = self._follows, alone is not None
        if alone is not None:
            self.is_open = True
            return (
                Reading("plain", fields=[("loss", *alone.span(1))], has_shape=False, is_named=False)
                if follows
                else None
            )
        done = _PART_DONE.match(line, start) or _OF_ALL.match(line, start)
        if done is not None and _MEASURED.search(done["loss"]):
            return Reading("plain", fields=fields_of(done), has_shape=False, is_named=False)
        row = _BARE_ROW.match(line, start)
        self.is_open = row is not None and _MEASURED.search(row[2]) is not None
        if row is None or not self.is_open:
            return None
        before, self._step = self._step, int(row[1])
        follows = 0 <= before < self._step
        if not follows and row[2][-1].isdigit():
            return None
        return Reading("plain", fields=fields_of(row), has_shape=False, is_named=False)


_HEADING = lazy_regex(r"\s*+\|\s*+(?:class|category|label)\w*\s*+\|(?:[\w@.\s-]{1,16}\|){1,12}\s*$", re.IGNORECASE)
_RULER = lazy_regex(r"\s*+[+|][-+=|:]{3,}\s*$")
_ROW = lazy_regex(rf"\s*+\|\s*+([A-Za-z][^|\n]{{0,40}}?)\s*+\|((?:\s*+{NUMBER}\s*+\|){{1,12}})\s*$")
_SCORE = lazy_regex(NUMBER)


class ClassTables(Format):
    """Scores of each class in a table with bars, as OpenMMLab prints them.

    ::

        |   Class    |  IoU  |  Acc  |
        +------------+-------+-------+
        | background | 95.43 | 98.46 |
        |   human    |  0.0  |  nan  |

    A cell becomes the metric `iou_class_human`. Open from a heading that begins with `Class` to the first line that is
    neither a row nor a ruler.
    """

    waits = True
    marks = ("| class", "|class", "|  class", "|   class", "| category", "| label")

    def __init__(self) -> None:
        self._scores: list[str] = []

    def read(self, line: str, start: int) -> Reading | None:
        if _HEADING.match(line, start):
            self._scores = [plain(cell) for cell in line[start:].strip().strip("|").split("|")[1:]]
            self.is_open = True
            return None
        row = _ROW.match(line, start) if self.is_open else None
        if row is None:
            self.is_open = self.is_open and _RULER.match(line, start) is not None
            return None
        cells = list(_SCORE.finditer(line, row.start(2), row.end(2)))
        if len(cells) != len(self._scores):
            return None
        name = plain(row[1])
        fields = [(f"{score}_class_{name}", *cell.span()) for score, cell in zip(self._scores, cells, strict=True)]
        return Reading("table", fields=fields, is_point=False, has_shape=False)
