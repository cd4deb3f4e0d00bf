"""Candidate edits by cause, likeliest first. Each is tried."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.doctor.patching.data_remedies import DATA_REMEDIES
from stayfinite.doctor.patching.formula_remedies import FORMULA_REMEDIES
from stayfinite.doctor.patching.loop_remedies import LOOP_REMEDIES
from stayfinite.doctor.patching.loss_remedies import LOSS_REMEDIES
from stayfinite.doctor.patching.parameter_remedies import PARAMETER_REMEDIES
from stayfinite.doctor.patching.rate_remedies import RATE_REMEDIES
from stayfinite.doctor.patching.statements import Remedy
from stayfinite.doctor.patching.text import Text
from stayfinite.doctor.record import Program
from stayfinite.doctor.told import Told

REMEDIES: dict[str, Remedy] = {
    **LOOP_REMEDIES,
    **LOSS_REMEDIES,
    **FORMULA_REMEDIES,
    **RATE_REMEDIES,
    **PARAMETER_REMEDIES,
    **DATA_REMEDIES,
}


def texts_for(text: Text, top: Told, program: Program) -> Iterator[str]:
    """Candidate texts for a finding."""
    remedy = REMEDIES.get(top.finding.cause)
    if remedy is not None:
        yield from remedy(text, top, program)
