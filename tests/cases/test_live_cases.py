"""The labelled logs as they grow: nobody healthy is alarmed at any moment, and the sick are not overlooked."""

import pytest

from cases.reading import read_cases
from stayfinite.diagnosis.live_log import LiveLog

SETS = ("first", "second", "third", "fourth", "fifth")
PIECES = 3
SEEN = 0.8
"""Share of the sick runs that must not be called healthy; some say nothing in their log that could be seen."""


def words_for(case, folder):
    """The words for a log after each piece of it."""
    folder.mkdir()
    path, content = folder / "train.log", case.log.encode()
    live = LiveLog(path, case.name)
    for place in range(PIECES):
        with path.open("ab") as file:
            file.write(content[place * len(content) // PIECES : (place + 1) * len(content) // PIECES])
        live.look(at_once=True)
        yield live.status().health.word


@pytest.mark.parametrize("which", SETS)
def test_a_healthy_run_is_never_an_alarm_while_its_log_grows(which, tmp_path):
    healthy = [case for case in read_cases(which) if case.cause == "healthy" and case.log]
    alarmed = [case.name for case in healthy if any(word.alarms for word in words_for(case, tmp_path / case.name))]
    assert healthy
    assert alarmed == []


def test_a_sick_run_is_an_alarm_by_the_end_of_its_log(tmp_path):
    sick = [case for case in read_cases("fifth") if not case.harmless and case.log]
    seen = [case.name for case in sick if list(words_for(case, tmp_path / case.name))[-1].alarms]
    assert len(seen) >= SEEN * len(sick), sorted({case.name for case in sick} - set(seen))
