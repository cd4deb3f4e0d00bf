"""The text log formats, one per file, in the order they are tried."""

from __future__ import annotations

from collections.abc import Callable

from stayfinite.readers.logs.formats.bare_rows import BareRows
from stayfinite.readers.logs.formats.boxed_rows import BoxedRows
from stayfinite.readers.logs.formats.deepspeed import DeepSpeed
from stayfinite.readers.logs.formats.detectron import Detectron
from stayfinite.readers.logs.formats.dicts import Dicts
from stayfinite.readers.logs.formats.espnet import EspNet
from stayfinite.readers.logs.formats.evaluations import Evaluations
from stayfinite.readers.logs.formats.fairseq import Fairseq
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.formats.generic import Generic
from stayfinite.readers.logs.formats.guard_lines import GuardLines
from stayfinite.readers.logs.formats.icefall import Icefall
from stayfinite.readers.logs.formats.json_fragments import JsonFragments
from stayfinite.readers.logs.formats.keras import Keras
from stayfinite.readers.logs.formats.loss_scalers import LossScalers
from stayfinite.readers.logs.formats.megatron import Megatron
from stayfinite.readers.logs.formats.nanogpt import NanoGpt
from stayfinite.readers.logs.formats.openmmlab import OpenMmlab
from stayfinite.readers.logs.formats.opennmt import OpenNmt
from stayfinite.readers.logs.formats.other_metrics import OtherMetrics
from stayfinite.readers.logs.formats.overflow_frames import OverflowFrames
from stayfinite.readers.logs.formats.parameters import Parameters
from stayfinite.readers.logs.formats.progress_bars import ProgressBars
from stayfinite.readers.logs.formats.rates import Rates
from stayfinite.readers.logs.formats.tables import Tables
from stayfinite.readers.logs.formats.torchtitan import TorchTitan
from stayfinite.readers.logs.formats.train_output import TrainOutput
from stayfinite.readers.logs.formats.values_first import ValuesFirst

FORMATS: tuple[Callable[[], Format], ...] = (
    OverflowFrames,
    Evaluations,
    GuardLines,
    Dicts,
    JsonFragments,
    Megatron,
    Fairseq,
    DeepSpeed,
    LossScalers,
    NanoGpt,
    OpenMmlab,
    TorchTitan,
    Detectron,
    OpenNmt,
    Icefall,
    EspNet,
    Keras,
    Tables,
    TrainOutput,
    Parameters,
    ProgressBars,
    BoxedRows,
    ValuesFirst,
    Rates,
    BareRows,
    Generic,
    OtherMetrics,
)

__all__ = ["FORMATS", "Format"]
