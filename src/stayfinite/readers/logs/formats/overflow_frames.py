"""Reports of transformers' DebugUnderflowOverflow: the last forward frames before the first inf or nan.

::

    Detected inf/nan during batch_number=0
    Last 21 forward frames:
    abs min  abs max  metadata
                      encoder.block.2.layer.1.DenseReluDense.wo Linear
    1.01e-06 6.44e+00 weight
    1.79e-06 4.65e+03 input[0]
    3.18e-04 6.27e+04 output

The largest value of each module becomes the metric `overflow/<module>`; every line is also kept as a message.
"""

from __future__ import annotations

import re

from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.numbers import NUMBER
from stayfinite.readers.logs.reading import Reading

_BEGIN = re.compile(r"\s*(?:Detected inf/nan during batch_number|abs min\s+abs max\s+metadata)")
_MODULE = re.compile(r"\s{8,}(\S+)\s+(\w+)\s*$")
_FRAME = re.compile(rf"\s*({NUMBER})\s+({NUMBER})\s+((?:in|out)put\S*|weight\S*|bias\S*)")
_MOST_MODULES = 500


class OverflowFrames(Format):
    """Open from its first line to the first that is neither module nor frame."""

    waits = True
    marks = ("abs min", "detected inf")

    def __init__(self) -> None:
        self._module = ""
        self._modules: set[str] = set()

    def read(self, line: str, start: int) -> Reading | None:
        if _BEGIN.match(line, start):
            self.is_open = True
            self._module = ""
            return None
        if not self.is_open:
            return None
        module = _MODULE.match(line, start)
        if module:
            self._module = module[1]
            return None
        frame = _FRAME.match(line, start)
        if frame is None:
            self.is_open = (
                line.lstrip().startswith(("Last ", "None", "not a tensor", "[", "*")) or "not a tensor" in line
            )
            return None
        self._modules.add(self._module)
        if not self._module or len(self._modules) > _MOST_MODULES:
            return None
        name = f"overflow/{self._module}"
        return Reading("", fields=[(name, *frame.span(2))], is_point=False, is_message=True, has_shape=False)
