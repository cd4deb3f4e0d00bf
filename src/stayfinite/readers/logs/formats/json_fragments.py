"""Lines pasted from a JSON file, one key per line.

::

      "eval_logits/rejected": NaN,
      "loss": 0.0,
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.names import column_of, is_evaluation, is_loss_part, plain
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import Reading

_LINE = re.compile(rf"\s*\"([^\"]{{1,80}})\"\s*:\s*\"?({NUMBER})\"?\s*,?\s*$")
_TELLING = re.compile(r"reward|logits|logps|accuracy|perplexity|bleu|entropy|\bkl\b")


class JsonFragments(Format):
    """Losses, gradient norms and metrics, but not settings that look similar."""

    marks = ('":',)

    def read(self, line: str, start: int) -> Reading | None:
        found = _LINE.match(line, start)
        if found is None:
            return None
        name = plain(found[1])
        column = column_of(name)
        if column in {"loss", "grad_norm"}:
            return Reading("json", fields=[(column, *found.span(2))])
        if is_loss_part(name) or _TELLING.search(name) or (is_evaluation(name) and "loss" in name):
            return Reading("json", fields=[(name, *found.span(2))], is_point=False)
        return None
