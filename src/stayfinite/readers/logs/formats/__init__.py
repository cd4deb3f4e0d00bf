"""The text log formats, in the order they are tried."""

from __future__ import annotations

from collections.abc import Callable

from stayfinite.readers.logs.formats.answers import (
    AnswersAlike,
    ByClass,
    Detections,
    ParameterGradients,
    Reports,
    ShownAnswers,
)
from stayfinite.readers.logs.formats.detection import DarknetRegions, Detectron, OpenMmlab, ValuesFirst
from stayfinite.readers.logs.formats.dicts import BoxedRows, Dicts, JsonFragments
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.formats.generic import Generic
from stayfinite.readers.logs.formats.guard_lines import GuardLines
from stayfinite.readers.logs.formats.hugging_face import OverflowFrames, Parameters, TrainOutput
from stayfinite.readers.logs.formats.language_models import DeepSpeed, LitGpt, Megatron, NanoGpt, TorchTitan
from stayfinite.readers.logs.formats.loss_scalers import LossScalers
from stayfinite.readers.logs.formats.other_metrics import Evaluations, OtherMetrics, Rates, Rounds
from stayfinite.readers.logs.formats.progress_bars import Keras, ProgressBars
from stayfinite.readers.logs.formats.speech_and_translation import EspNet, Fairseq, Icefall, OpenNmt
from stayfinite.readers.logs.formats.tables import BareRows, ClassTables, Tables

FORMATS: tuple[Callable[[], Format], ...] = (
    OverflowFrames, Evaluations, Reports, AnswersAlike, GuardLines, Rounds, Dicts, JsonFragments, Megatron, Fairseq,
    DeepSpeed, LossScalers, NanoGpt, LitGpt, OpenMmlab, TorchTitan, Detectron, OpenNmt, Icefall, EspNet, Keras,
    ClassTables, Tables, TrainOutput, Parameters, ProgressBars, BoxedRows, DarknetRegions, ValuesFirst, Rates,
    ParameterGradients, Detections, ByClass, ShownAnswers, BareRows, Generic, OtherMetrics,
)  # fmt: skip

__all__ = ["FORMATS", "Format"]
