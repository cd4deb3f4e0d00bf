"""What somebody knows of a run and no file says.

A setting (`precision=fp16 gpu=V100`), what they see (`symptom=nan`), or how an experiment went (`bf16=fine`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stayfinite.core.settings import Setting, Settings
from stayfinite.errors import UsageError
from stayfinite.readers.configs.scalars import scalar
from stayfinite.rules.cards import CARDS, card_named
from stayfinite.rules.experiments import BY_KEY
from stayfinite.rules.known import is_on
from stayfinite.rules.precision_settings import SWITCHES
from stayfinite.rules.reported_experiments import ReportedExperiment
from stayfinite.rules.signs.reported_symptoms import Kind, ReportedSymptom, reported_symptoms

SOURCE = "--tell"
NAMES = ("symptom", "precision", "gpu", "model", "learning_rate", "optimizer", "max_grad_norm", "attn_implementation")
"""Names that are told most; any other setting is welcome."""

FINE = frozenset({"fine", "ok", "works", "finite", "trains", "good"})
BAD = frozenset({"bad", "same", "nan", "inf", "fails", "breaks", "worse"})

SYMPTOMS: Mapping[str, Kind] = {
    "nan": "not finite", "still": "still", "explodes": "explodes", "zero": "zero loss", "gradient": "zero gradient",
    "same": "same answers", "score": "low score", "loading": "worse after loading",
}  # fmt: skip
"""Short words for what somebody sees; a sentence is understood as one in a log is."""


SETTINGS_TOO = frozenset(
    {"optimizer", "attention", "data", "device", "version", "pretrained", "mode", "compile", "fp8", "mask",
     "checkpointing", "zero", "warmup"}
)  # fmt: skip
"""Names of experiments that are also settings with words for values."""

_PRECISION = re.compile(
    r"(?:torch\.)?(?:(?:fp|float|f)(?:16|32|64|8\w*)|(?:bf|bfloat)16|tf32|half|float|double)|"
    r"(?:16|32|64|bf16|fp16)(?:-(?:mixed|true))?|no|none|O[0-3]",
    re.IGNORECASE,
)
_ATTENTION = re.compile(
    r"eager|math|sdpa|flex_attention|(?:flash|paged|xformers|mem)[\w|-]*|true|false|.+/.+", re.IGNORECASE
)

_SHORT_CARD = re.compile(r"[A-Z]{1,2}\d{1,3}[A-Z]?", re.IGNORECASE)
ONE_LETTER = 0.85
"""Likeness of V10 and V100."""


@dataclass(frozen=True, slots=True)
class Told:
    """Facts by word of mouth."""

    settings: Settings = field(default_factory=Settings)
    tried: Sequence[ReportedExperiment] = ()
    symptoms: Sequence[ReportedSymptom] = ()


def understand_told(pairs: Sequence[str]) -> Told:
    """Read `name=value` pairs: a setting, a symptom, the outcome of an experiment. Raises UsageError for others."""
    settings, tried, symptoms = [], [], []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name or not value:
            raise UsageError(
                f"--tell {pair!r} is not name=value",
                fix="for example --tell precision=fp16 gpu=V100; or the result of an experiment: --tell bf16=fine",
            )
        experiment, outcome = BY_KEY.get(name), value.lower()
        if experiment is not None and outcome in FINE | BAD:
            good = outcome in FINE
            said = f"{experiment.do}: {experiment.fine if good else experiment.bad}"
            tried.append(ReportedExperiment(experiment.subject, good, SOURCE, said))
        elif name == "symptom":
            symptoms += _symptoms(value)
        else:
            _refuse_slip(name, outcome)
            _refuse_value(name, value)
            settings.append(Setting(name, scalar(value), SOURCE, kind="command"))
    return Told(Settings(settings), tried, symptoms)


def _refuse_slip(name: str, value: str) -> None:
    """Raise UsageError for a name that is one letter off, and for an experiment that nobody knows."""
    close = difflib.get_close_matches(name, [*NAMES, *BY_KEY], n=1, cutoff=0.9)
    if close and close[0] != name:
        raise UsageError(f"--tell {name} is unknown", fix=f"did you mean {close[0]}?")
    if value in ("fine", "bad"):
        raise UsageError(f"--tell {name}={value}: no such experiment", fix=f"one of {', '.join(BY_KEY)}")


def _refuse_value(name: str, value: str) -> None:
    """Raise UsageError for a value that nobody knows, of a name whose values are known."""
    read = scalar(value)
    number = isinstance(read, int | float) and not isinstance(read, bool)
    expected = ""
    if name in ("precision", "mixed_precision"):
        expected = "" if _PRECISION.fullmatch(value) else "fp16, bf16 or fp32"
    elif name == "attn_implementation":
        expected = "" if _ATTENTION.fullmatch(value) else "eager, sdpa or flash_attention_2"
    elif name in ("learning_rate", "max_grad_norm"):
        expected = "" if number or (read is None and name == "max_grad_norm") else "a number"
    elif name in SWITCHES or name in ("fp32", "tf32"):
        outcome = " (of an experiment: fine or bad)" if name in BY_KEY else ""
        expected = "" if is_on(read) is not None or read == "auto" else f"true or false{outcome}"
    elif name in BY_KEY and name not in SETTINGS_TOO:
        expected = "" if number or not isinstance(read, str) else "fine or bad"
    elif name == "gpu":
        expected = _card_meant(value)
    if expected:
        raise UsageError(f"--tell {name}={value}: unknown value", fix=f"give {expected}")


def _card_meant(value: str) -> str:
    """The card that a short name misses by a letter; empty for a known card and for any other name."""
    if card_named(value) is not None or _SHORT_CARD.fullmatch(value) is None:
        return ""
    names = [each.name for each in CARDS]
    return next(iter(difflib.get_close_matches(value.upper(), names, n=1, cutoff=ONE_LETTER)), "")


def _symptoms(value: str) -> list[ReportedSymptom]:
    kind = SYMPTOMS.get(value.lower())
    if kind is not None:
        return [ReportedSymptom(kind, SOURCE, f"symptom={value}")]
    found = reported_symptoms([(SOURCE, value)])
    if not found:
        raise UsageError(f"--tell symptom={value!r} is not a known symptom", fix=f"one of {', '.join(SYMPTOMS)}")
    return found
