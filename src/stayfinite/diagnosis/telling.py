"""What somebody knows of a run and no file says: `precision=fp16 gpu=V100`, or how an experiment went: `bf16=fine`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stayfinite.core.settings import Setting, Settings
from stayfinite.errors import UsageError
from stayfinite.readers.configs.scalars import scalar
from stayfinite.rules.experiments import BY_KEY
from stayfinite.rules.reported_experiments import ReportedExperiment

SOURCE = "--tell"

FINE = frozenset({"fine", "ok", "works", "finite", "trains", "good"})
BAD = frozenset({"bad", "same", "nan", "inf", "fails", "breaks", "worse"})


@dataclass(frozen=True, slots=True)
class Told:
    """Facts by word of mouth."""

    settings: Settings = field(default_factory=Settings)
    tried: Sequence[ReportedExperiment] = ()


def understand_told(pairs: Sequence[str]) -> Told:
    """Read `name=value` pairs: a setting, or the outcome of an experiment. Raises UsageError for anything else."""
    settings, tried = [], []
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
        else:
            settings.append(Setting(name, scalar(value), SOURCE, kind="command"))
    return Told(Settings(settings), tried)
