"""A crash is worth a restart, a stop is not, and everything comes to an end."""

from __future__ import annotations

import pytest

from stayfinite.core.supervising import LONGEST_PAUSE, Ending, Move, Supervision, after, after_pause

FRESH = Supervision(most=5, first_pause=10.0)


@pytest.mark.parametrize(
    ("ending", "move", "code"),
    [
        (Ending(code=0), Move.DONE, 0),
        (Ending(code=0, stopped=87), Move.DONE, 0),
        (Ending(code=87), Move.STOPPED, 87),
        (Ending(code=1, stopped=88), Move.STOPPED, 88),
        (Ending(code=1, stopped=86, told=15), Move.STOPPED, 86),
        (Ending(code=-15, told=15), Move.TOLD, 143),
        (Ending(code=1), Move.RESTART, 0),
        (Ending(code=-9), Move.RESTART, 0),
    ],
)
def test_the_record_decides_before_the_exit_code(ending, move, code):
    following, _ = after(ending, FRESH)
    assert (following.move, following.code) == (move, code)


def test_restarts_are_counted_and_the_last_code_is_passed_on():
    state, moves = FRESH, []
    for _ in range(6):
        following, state = after(Ending(code=-9), state)
        moves.append(following.move)
    assert moves == [Move.RESTART] * 5 + [Move.GIVE_UP]
    assert following.code == 137


def test_attempts_that_gain_no_ground_wait_longer_and_those_that_do_start_soon():
    state, pauses = Supervision(most=20, first_pause=10.0), []
    for began in (0, 0, 0, 100, None, 200, *[200] * 8):
        following, state = after(Ending(code=1, began=began), state)
        pauses.append(following.pause)
    assert pauses[:6] == [10, 20, 40, 10, 20, 10]
    assert pauses[-1] == LONGEST_PAUSE


def test_the_first_pause_is_the_one_asked_for_even_before_a_step():
    state, pauses = Supervision(most=5, first_pause=10.0), []
    for _ in range(4):
        following, state = after(Ending(code=1, seconds=60.0), state)
        pauses.append(following.pause)
    assert pauses == [10, 20, 40, 80]


@pytest.mark.parametrize(
    ("ending", "gives_up"),
    [
        (Ending(code=1, seconds=0.1), True),
        (Ending(code=1, seconds=5.0), False),
        (Ending(code=-9, seconds=0.1), False),  # killed from outside
        (Ending(code=1, seconds=0.1, began=0), False),
        (Ending(code=1), False),
    ],
)
def test_a_command_that_fails_at_once_twice_in_a_row_is_not_tried_again(ending, gives_up):
    first, state = after(ending, FRESH)
    second, _ = after(ending, state)
    assert first.move is Move.RESTART
    assert (second.move is Move.GIVE_UP, second.early) == (gives_up, gives_up)


def test_a_longer_attempt_between_two_quick_failures_keeps_the_restarts():
    state = FRESH
    for seconds in (0.1, 30.0, 0.1):
        following, state = after(Ending(code=1, seconds=seconds), state)
        assert following.move is Move.RESTART


def test_a_stop_that_is_heard_of_during_the_pause_counts():
    assert after_pause(87, None).move is Move.STOPPED
    assert after_pause(None, 2).code == 130
    assert after_pause(None, None).move is Move.RESTART
