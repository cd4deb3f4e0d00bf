"""Numbers that no author of a rule thought of do not end a diagnosis in a traceback."""

from __future__ import annotations

import random
import re

import pytest
from benchmarks.failures.logs.reading import read

from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.reading import read_text

ODD = ("inf", "nan", "-inf", "1e300", "-1e300", "1e-300", "0", "99999999999999999999999")


def _made_odd(log: str, draw: random.Random) -> str:
    """The log with half of its numbers replaced."""
    return re.sub(r"\d+\.\d+(?:e[-+]?\d+)?", lambda found: draw.choice(ODD) if draw.random() < 0.5 else found[0], log)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_log_with_half_of_its_numbers_made_odd_is_judged(seed: int) -> None:
    failed = []
    for case in read("known"):
        try:
            judge_reading(read_text(_made_odd(case.log, random.Random(f"{seed} {case.name}"))))
        except Exception as error:  # all of them are told together
            failed.append(f"{case.name}: {error!r}")
    assert not failed
