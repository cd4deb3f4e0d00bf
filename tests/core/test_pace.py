"""How fast a run goes."""

import pytest

from stayfinite.core.durations import in_words
from stayfinite.core.pace import Pace


def test_at_first_it_is_the_average_since_the_launch():
    pace = Pace()
    assert pace.rate is None
    pace.begin(1_000.0, 0)
    pace.note(1_100.0, 50)
    assert pace.rate == 0.5
    assert pace.remaining(50, 150) == 200.0
    assert pace.remaining(50, None) is None


def test_later_it_is_what_was_seen_in_the_last_minute():
    pace = Pace()
    pace.begin(0.0, 0)
    for second in range(0, 300, 2):
        pace.note(1_000.0 + second, 100 + second * 4)
    assert pace.rate == pytest.approx(4.0)


def test_a_resumed_run_that_has_gone_back_is_measured_anew():
    pace = Pace()
    pace.begin(0.0, 0)
    pace.note(100.0, 1_000)
    pace.note(110.0, 1_100)
    pace.begin(200.0, 1_000)
    pace.note(210.0, 1_020)
    assert pace.rate == 2.0
    pace.note(215.0, 400)
    assert pace.rate is None or pace.rate > 0


def test_a_run_past_its_end_is_not_late_by_a_negative_time():
    pace = Pace()
    pace.begin(0.0, 0)
    pace.note(10.0, 100)
    assert pace.remaining(100, 90) == 0.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.31, "0.3 s"), (59, "59 s"), (125, "2 min 5 s"), (1_500, "25 min"), (12_000, "3 h 20 min"),
     (200_000, "2 d 8 h"), (float("nan"), ""), (-1, "")],
)  # fmt: skip
def test_times_are_told_as_people_say_them(seconds, words):
    assert in_words(seconds) == words
