"""What somebody knows of a run and no file says.

A setting (`precision=fp16 gpu=V100`), what they see (`symptom=nan`), or how an experiment went (`bf16=fine`).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stayfinite.core.settings import Setting, Settings
from stayfinite.errors import UsageError
from stayfinite.readers.configs.scalars import scalar
from stayfinite.rules.experiments import BY_KEY
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
            settings.append(Setting(name, scalar(value), SOURCE, kind="command"))
    return Told(Settings(settings), tried, symptoms)


def _refuse_slip(name: str, value: str) -> None:
    """Raise UsageError for a name that is one letter off, and for an experiment that nobody knows."""
    close = difflib.get_close_matches(name, [*NAMES, *BY_KEY], n=1, cutoff=0.9)
    if close and close[0] != name:
        raise UsageError(f"--tell {name} is unknown", fix=f"did you mean {close[0]}?")
    if value in ("fine", "bad"):
        raise UsageError(f"--tell {name}={value}: no such experiment", fix=f"one of {', '.join(BY_KEY)}")


def _symptoms(value: str) -> list[ReportedSymptom]:
    kind = SYMPTOMS.get(value.lower())
    if kind is not None:
        return [ReportedSymptom(kind, SOURCE, f"symptom={value}")]
    found = reported_symptoms([(SOURCE, value)])
    if not found:
        raise UsageError(f"--tell symptom={value!r} is not a known symptom", fix=f"one of {', '.join(SYMPTOMS)}")
    return found
