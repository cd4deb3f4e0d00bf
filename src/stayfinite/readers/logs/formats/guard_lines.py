"""What the guard says on the terminal of a step that it refused, beside what the loop itself logs.

::

    stayfinite: step 41 refused, loss-not-finite: loss is nan; all 4 gradients are NaN or infinite
    stayfinite: rank 1: step 57 refused, rolled back (from step 57, to step 1), vetoes-in-a-row: ...

Such a step never touched the weights: it is no measurement of the run, and its words are no message of a failure.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.reading import Reading

_REFUSED = re.compile(r"\bstayfinite: (?:rank \d+: )?step (\d+) refused, ")


class GuardLines(Format):
    """One line about one step that was refused."""

    marks = ("stayfinite: ",)

    def read(self, line: str, start: int) -> Reading | None:
        """See ``Format.read``."""
        refused = _REFUSED.search(line, start)
        if refused is None:
            return None
        return Reading("", fields=[("step", *refused.span(1))], is_point=False, has_shape=False)
