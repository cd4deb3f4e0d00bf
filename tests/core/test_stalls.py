"""The rank that keeps the others waiting is named; a long evaluation, a checkpoint or a first step is no stall."""

from __future__ import annotations

import pytest

from stayfinite.core.stalls import Beat, Kind, Phase, find_stall, limit_of

LIMIT, TIMEOUT = 60.0, 600.0


def beat(rank: int, phase: Phase, *, still: float = 100.0, quiet: float = 100.0, step: int = 7, **more) -> Beat:
    return Beat(rank=rank, step=step, phase=phase, quiet=quiet, still=still, **more)


def found(*beats: Beat, world: int | None = None):
    stall = find_stall(beats, world or len(beats), limit=LIMIT, timeout=TIMEOUT)
    return None if stall is None else (stall.kind, stall.ranks)


WAITING = [beat(rank, Phase.MEETING, waits=True) for rank in (0, 1)]
IN_BACKWARD = [beat(rank, Phase.BACKWARD, waits=True) for rank in (0, 1)]
AT_A_BARRIER = [beat(rank, Phase.OUTSIDE, waits=True) for rank in (0, 1)]


@pytest.mark.parametrize("others", [WAITING, IN_BACKWARD, AT_A_BARRIER])
def test_a_rank_that_stands_still_behind_the_others_is_named(others):
    assert found(*others, beat(2, Phase.OUTSIDE)) == (Kind.HUNG, (2,))


@pytest.mark.parametrize("others", [WAITING, IN_BACKWARD, AT_A_BARRIER])
def test_a_rank_that_works_behind_the_others_is_named_only_when_time_runs_out(others):
    assert found(*others, beat(2, Phase.OUTSIDE, still=1.0)) is None
    late = [beat(each.rank, each.phase, quiet=450.0, waits=True) for each in others]
    assert found(*late, beat(2, Phase.OUTSIDE, still=1.0, quiet=450.0)) == (Kind.LATE, (2,))


def test_a_rank_that_does_not_answer_is_named_where_somebody_waits_for_it():
    assert found(*WAITING, world=4) == (Kind.SILENT, (2, 3))
    early = [beat(rank, Phase.MEETING, quiet=70.0, waits=True) for rank in (0, 1)]
    assert found(*early, world=4) is None, "their limits may be longer"
    assert found(beat(0, Phase.OUTSIDE), world=2) is None, "it works on after the others are done"


def test_ranks_that_run_ahead_on_an_accelerator_wait_for_the_one_of_an_earlier_step():
    ahead = [beat(rank, Phase.AFTER, step=9, waits=False) for rank in (0, 1)]
    assert found(*ahead, beat(2, Phase.OUTSIDE, step=7)) is None, "nobody is known to wait"
    ahead = [beat(rank, Phase.BACKWARD, step=9) for rank in (0, 1)]
    assert found(*ahead, beat(2, Phase.OUTSIDE, step=7)) == (Kind.HUNG, (2,))


@pytest.mark.parametrize("still", [0.5, 100.0])
def test_ranks_that_are_all_at_the_same_point_wait_for_nobody(still):
    assert found(*(beat(rank, Phase.OUTSIDE, still=still) for rank in range(3))) is None


def test_a_collective_that_hangs_by_itself_is_told_before_it_times_out():
    where = [beat(rank, Phase.MEETING, quiet=450, still=450, waits=True, where="a") for rank in range(3)]
    assert found(*where) == (Kind.TOGETHER, ())
    odd = beat(3, Phase.MEETING, quiet=450, still=450, waits=True, where="b")
    assert found(*where, odd) == (Kind.TOGETHER, (3,))


def test_the_limit_comes_from_the_run_itself_and_stays_within_the_time_out():
    assert limit_of([], 0.0, floor=120, timeout=600) == 300, "a first step may take long"
    assert limit_of([0.5] * 8, 0.0, floor=120, timeout=1800) == 120
    assert limit_of([30.0] * 8, 0.0, floor=120, timeout=1800) == 300
    assert limit_of([0.5] * 8, 200.0, floor=120, timeout=1800) == 400, "an evaluation took 200 s"
    assert limit_of([30.0] * 8, 900.0, floor=120, timeout=600) == 300
