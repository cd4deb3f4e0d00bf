"""Something slow says how far it has come; something quick says nothing."""

from stayfinite.recipes.running.logbook import Progress


def told(seconds_each: float) -> list[str]:
    now, said = [0.0], []
    progress = Progress(said.append, "questions asked", clock=lambda: now[0])
    for done in (32, 64, 96, 128):
        now[0] += seconds_each
        progress(done, 128)
    return said


def test_a_slow_evaluation_says_how_long_it_takes():
    assert told(30.0) == [
        "  32 of 128 questions asked, 2 min left",
        "  64 of 128 questions asked, 60 s left",
        "  96 of 128 questions asked, 30 s left",
    ]


def test_a_quick_one_says_nothing():
    assert told(1.0) == []
