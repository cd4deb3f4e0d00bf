"""Output of transformers and peft besides the log records."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import plain
from stayfinite.readers.logs.formats.format import Format, Head
from stayfinite.readers.logs.pairs import NUMBER
from stayfinite.readers.logs.reading import Reading, fields_of

_CELL = lazy_regex(rf"\s*((?:train|eval|predict|test|epoch|total)\w*)\s+=\s+({NUMBER})\s*$")


class TrainOutput(Format):
    """Final output of transformers: averages over the whole run.

    ::

        TrainOutput(global_step=1276, training_loss=nan, metrics={'train_runtime': 340.4428, 'epoch': 1.0})
          train_loss               =        0.0
          train_runtime            = 0:02:59.80
    """

    kind = "transformers"
    marks = ("trainoutput(", " = ")
    heads = (
        Head(
            rf"\bTrainOutput\(global_step=(?P<step>\d+),\s*training_loss=(?P<loss>{NUMBER})",
            pairs=False,
            is_summary=True,
        ),
    )

    def read(self, line: str, start: int) -> Reading | None:
        call = super().read(line, start)
        if call is not None:
            return call
        cell = _CELL.match(line, start)
        if cell is None:
            return None
        name = plain(cell[1])
        if name in {"train_loss", "training_loss"}:
            return Reading("transformers", fields=[("loss", *cell.span(2))], is_summary=True)
        return Reading("transformers", fields=[(name, *cell.span(2))], is_point=False)


_BEGIN = lazy_regex(r"\s*(?:Detected inf/nan during batch_number|abs min\s+abs max\s+metadata)")
_MODULE = lazy_regex(r"\s{8,}(\S+)\s+(\w+)\s*$")
_FRAME = lazy_regex(rf"\s*({NUMBER})\s+({NUMBER})\s+((?:in|out)put\S*|weight\S*|bias\S*)")
_MOST_MODULES = 500


class OverflowFrames(Format):
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


_COUNT = r"\d[\d,_]*)(?![\d.]|\s?[KMB]\b)"
_ALL = lazy_regex(
    rf"\b(?:all params|all parameters|num\. model params|total params)\s*[:=]\s*(?P<all_params>{_COUNT}", re.IGNORECASE
)


class Parameters(Format):
    """Counts of trainable parameters, as printed by peft, transformers, fairseq and others.

    ::

        trainable params: 0 || all params: 1,066,493,952 || trainable%: 0.0
        Number of trainable parameters = 4,194,304
        num. model params: 225086464 (num. trained: 225086464)

    Gives the metrics `trainable_params` and `all_params`; the line is also kept as a message.
    """

    marks = ("param", "num. trained")
    heads = (
        Head(
            rf"(?<!non-)\b(?:trainable param(?:eter)?s|num\. trained)\s*[:=]\s*(?P<trainable_params>{_COUNT}",
            re.IGNORECASE,
            pairs=False,
            is_point=False,
            is_message=True,
        ),
    )

    def read(self, line: str, start: int) -> Reading | None:
        reading = super().read(line, start)
        everything = _ALL.search(line, start) if reading is not None else None
        if reading is not None and everything:
            reading.fields += fields_of(everything)
        return reading
