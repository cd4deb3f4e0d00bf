"""Multi-line JSON: trainer_state.json, arrays of records, a history of lists. Truncated files are fine.

::

    {
        "best_metric": null,
        "global_step": 500,
        "log_history": [
            {"epoch": 0.1, "grad_norm": NaN, "learning_rate": 5e-05, "loss": 0.0, "step": 10},
            {"eval_loss": NaN, "epoch": 1.0, "step": 100},
        ],
        "max_steps": 500,
    }

Parsed as a stream: each object in a list is one record, so memory does not grow with the file.
"""

from __future__ import annotations

import json
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import RunSeries
from stayfinite.readers.logs.records import Records, as_number

_LONGEST_RECORD = 1 << 20
_LIST = lazy_regex(r"\[\s*(?=\{)")
_NUMBERS = lazy_regex(
    r"\"([^\"\n]{1,80})\"\s*:\s*\[\s*([-+\d.][^\[\]{}\"]{0,1000000}|(?:NaN|-?Infinity)[^\[\]{}\"]{0,1000000})\]"
)
_SINGLE = lazy_regex(
    r"\"(max_steps|global_step|num_train_epochs|train_batch_size|num_input_tokens_seen)\"\s*:\s*(\d+(?:\.\d+)?)"
)
_BETWEEN = lazy_regex(r"[\s,]*")


class JsonDocument:
    """Reads JSON text into one series."""

    def __init__(self, source: str) -> None:
        self._records = Records(source, "trainer state" if source.endswith("trainer_state.json") else "json")
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._lines = 0
        self._in_list = False
        self._histories: dict[str, list[float]] = {}

    def feed(self, text: str) -> None:
        self._text += text
        self._advance()

    def close(self) -> None:
        """Read what is left; the document may be incomplete."""
        self._advance()
        self._outside(self._text)
        self._consume(len(self._text))
        if not self._records.series.points_seen and self._histories:
            self._by_lists()

    @property
    def series(self) -> list[RunSeries]:
        found = self._records.close()
        found[0].lines = self._lines + bool(self._text.strip())
        return found

    def _advance(self) -> None:
        while True:
            if self._in_list:
                if not self._element():
                    return
                continue
            match = _LIST.search(self._text)
            if match is None:
                if len(self._text) > _LONGEST_RECORD:
                    keep = len(self._text) - _LONGEST_RECORD // 2
                    self._outside(self._text[:keep])
                    self._consume(keep)
                return
            self._outside(self._text[: match.start()])
            self._consume(match.end())
            self._in_list = True

    def _element(self) -> bool:
        """Read one list element. Return False if more text is needed."""
        between = _BETWEEN.match(self._text)
        place = between.end() if between else 0
        if place >= len(self._text):
            return False
        if self._text[place] != "{":
            self._in_list = False
            return True
        try:
            record, end = self._decoder.raw_decode(self._text, place)
        except (ValueError, RecursionError):
            if len(self._text) - place < _LONGEST_RECORD:
                return False
            self._consume(place + 1)  # not a record, or one that is too long
            self._in_list = False
            return True
        self._consume(place)
        self._take(record)
        self._consume(end - place)
        return True

    def _take(self, record: Any) -> None:
        if isinstance(record, dict):
            self._records.add(record, self._lines + 1)

    def _consume(self, count: int) -> None:
        self._lines += self._text.count("\n", 0, count)
        self._text = self._text[count:]

    def _outside(self, text: str) -> None:
        for match in _SINGLE.finditer(text):
            if match[1] == "max_steps":
                self._records.series.total_steps = float(match[2]) or None
        for match in _NUMBERS.finditer(text):
            values = [as_number(part.strip()) for part in match[2].split(",")]
            self._histories.setdefault(match[1], [value for value in values if value is not None])

    def _by_lists(self) -> None:
        """`{"loss": [..], "val_loss": [..]}`: one record per list position."""
        longest = max(map(len, self._histories.values()))
        for place in range(longest):
            record = {name: values[place] for name, values in self._histories.items() if place < len(values)}
            self._records.add({"step": float(place), **record}, place + 1)
