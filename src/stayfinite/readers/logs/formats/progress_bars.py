"""Progress bars of tqdm and Lightning.

::

    Epoch 0:  22%|##2       | 4/18 [00:17<01:02,  4.47s/it, loss=9.926, v_num=193315]
    steps:   1%|          | 20/2000 [00:40<1:06:00,  2.00s/it, avr_loss=nan]
      0%| 98/24128
    train loss: nan | reg: nan : 100%|######| 20/20 [00:05<00:00,  3.4it/s]

A bar without measurements gives the position in the run and is not a message.
"""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import column_of, is_loss_part, plain
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import Pair, all_pairs, separated_pairs
from stayfinite.readers.logs.reading import BATCH, BATCHES, OTHER, TOTAL, Reading, fields_of

_BAR = lazy_regex(
    r"(?P<percent>\d{1,3})%(?:\s?\|(?P<bar>[^|\[\]\r\n]{0,400}(?=\|))?\|?|(?=\s+\d+/\d+ \[[\d:]+<))\s*"
    r"(?P<n>\d+)/(?P<total>\d+|\?)(?:\s*\[(?P<time>[\d:?]+<[^,\]]{1,20})(?:,\s*(?P<speed>[^,\]=]{1,30}(?=[,\]])))?)?"
)
_RICH = lazy_regex(
    r"[━╸╺][━╸╺ ]{2,400}\s(?P<n>\d+)/(?P<total>\d+)\s+(?P<time>\S{1,20} • \S{1,20})\s+(?P<speed>\S{1,20})"
)
_EPOCH = lazy_regex(r"\bepoch\D{0,4}(\d+)(?:\s*/\s*(\d+))?", re.IGNORECASE)
_TRAINS = lazy_regex(r"train|step|iter|epoch|^\W*$", re.IGNORECASE)
_EVALUATES = lazy_regex(r"\b(?:val|valid|validat\w+|eval\w*|test\w*|sanity|predict\w*)\b", re.IGNORECASE)
_LONGEST_TITLE = 200


def read_bar(line: str, start: int) -> Reading | None:
    """Read step or batch and total from a bar; its changing parts become variable text."""
    bar = _BAR.search(line, start) or _RICH.search(line, start)
    if bar is None:
        return None
    reading = Reading("progress bar", is_point=False, moves=True)
    groups = bar.groupdict()
    if groups.get("bar"):
        reading.wild.append((*bar.span("bar"), r"[^|\[\]]*+"))
    if bar["time"]:
        reading.wild.append((*bar.span("time"), r"[^,\]]++" if "percent" in groups else r"\S+ • \S+"))
    if bar["speed"]:
        reading.wild.append((*bar.span("speed"), r"[^,\]]++" if "percent" in groups else r"\S+"))
    before = max(start, bar.start() - _LONGEST_TITLE)
    title = line[before : bar.start()]
    epoch = _EPOCH.search(line, before, bar.start())
    if epoch:
        # `Epoch 1/3` counts from 1; Lightning's `Epoch 0` from 0.
        reading.first_epoch = 1 if epoch[2] and "percent" in groups else 0
        reading.fields = [("epoch", *epoch.span(1)), (BATCH, *bar.span("n")), (BATCHES, *bar.span("total"))]
    else:
        reading.fields = [("step", *bar.span("n")), (TOTAL, *bar.span("total"))]
    if bar["total"] == "?":
        reading.fields.pop()
    if not _TRAINS.search(title.strip()) or _EVALUATES.search(title):
        reading.fields = [(OTHER, *bar.span("n"))]  # data preparation, model loading or evaluation
    return reading


class ProgressBars(Format):
    """Bars with and without numbers after them."""

    marks = ("%|", "% |", "━", "it/s", "s/it")

    def read(self, line: str, start: int) -> Reading | None:
        bar = _BAR.search(line, start) or _RICH.search(line, start)
        reading = read_bar(line, start) if bar else None
        if bar is None or reading is None:
            return None
        pairs = [pair for pair in separated_pairs(line, bar.end()) if plain(pair[0]) != "v_num"]
        titled = self._titled(line, start, bar.start())
        before = max(start, bar.start() - _LONGEST_TITLE)
        evaluation = not titled and _EVALUATES.search(line, before, bar.start()) is not None
        pairs = titled + pairs
        measured = Reading(
            "progress bar", fields=list(reading.fields), wild=reading.wild, first_epoch=reading.first_epoch
        )
        measured.take(pairs, evaluation=evaluation)
        if len(measured.fields) == len(reading.fields):
            return reading
        measured.is_point = measured.has("loss", "grad_norm", "lr") and not evaluation
        return measured

    @staticmethod
    def _titled(line: str, start: int, end: int) -> list[Pair]:
        """The pairs before a bar, if they include a loss."""
        if "loss" not in line[start:end].lower():
            return []
        pairs = [pair for pair in all_pairs(line, start) if pair[2] <= end and column_of(plain(pair[0])) != "epoch"]
        names = [plain(name) for name, _, _ in pairs]
        return pairs if any(column_of(name) == "loss" or is_loss_part(name) for name in names) else []


_HEADING = lazy_regex(r"\s*Epoch\s+(\d+)\s*/\s*\d+\s*:?\s*$")
_KERAS_BAR = lazy_regex(
    r"\s*(?P<batch>\d+)/(?P<batches>\d+)\s+(\[[=>.]*\]|[━╸╺ ]*)\s(?:(\S.{0,40}?)\s)??-\s(?=(?!ETA)\w+: )"
)
_KERAS_EPOCH = lazy_regex(
    r"\s*(?:(?P<batch>\d+)/(?P<batches>\d+) )?- (?P<time>\d+m?s(?: \d+[mu]?s/(?:step|epoch|sample))?) - "
    r"(?=(?!ETA)\w+: )"
)
"""With `verbose=2`: no bar, one line an epoch."""


class Keras(Format):
    """Keras: one heading per epoch, then a redrawn bar with running means.

    ::

        Epoch 3/10
         100/1875 [=>............................] - ETA: 5s - loss: 0.4300 - accuracy: 0.8800
        1875/1875 ━━━━━━━━━━━━━━━━━━━━ 3s 1ms/step - accuracy: 0.9 - loss: nan - val_loss: nan
        1875/1875 - 3s - loss: 0.4300 - val_loss: 0.3910
    """

    marks = ("epoch", " - ")

    def read(self, line: str, start: int) -> Reading | None:
        heading = _HEADING.match(line, start)
        if heading:
            return Reading("keras", fields=[("epoch", *heading.span(1))], is_point=False, moves=True)
        bar = _KERAS_BAR.match(line, start)
        if bar is None:
            return self._epoch_line(line, start)
        reading = Reading("keras", fields=fields_of(bar))
        if bar[3]:
            reading.wild.append((*bar.span(3), r"[\[\]=>.━╸╺ ]*+"))
        if bar[4]:
            reading.wild.append((*bar.span(4), ".{0,60}?"))
        reading.take([pair for pair in separated_pairs(line, bar.end() - 1) if pair[0].lower() != "eta"])
        reading.is_point = reading.has("loss", "lr")
        return reading if len(reading.fields) > 2 else None

    @staticmethod
    def _epoch_line(line: str, start: int) -> Reading | None:
        found = _KERAS_EPOCH.match(line, start)
        if found is None:
            return None
        reading = Reading("keras", fields=[each for each in fields_of(found) if each[0] != "time"])
        reading.wild.append((*found.span("time"), r"[\w /]++"))
        reading.take(separated_pairs(line, found.end() - 1))
        reading.is_point = reading.has("loss", "lr")
        return reading if reading.is_point else None
