"""Thousands of simulated ranks run the guard's own protocols; each protocol that is broken on purpose is found out."""

from __future__ import annotations

import pytest
from benchmarks.simulated.attempt import Rules
from benchmarks.simulated.campaign import add_up, outcomes
from benchmarks.simulated.schedule import play

from stayfinite.core.keeping import Keeping
from stayfinite.core.sharing import Turn

QUICK = 60


def test_no_promise_is_broken_in_a_few_schedules_of_4096_ranks():
    ends, counts, broken = add_up(outcomes(QUICK, jobs=1))
    assert not broken
    assert set(ends) <= {"done", "stopped", "gave-up"}
    assert counts["agreements"] < 2 * counts["steps"], "a few words a step, however many ranks there are"
    assert min(counts[name] for name in ("restarts", "checkpoints", "action veto", "action rollback")) > 0


@pytest.mark.slow
def test_no_promise_is_broken_in_ten_thousand_schedules_of_4096_ranks():
    ends, counts, broken = add_up(outcomes(10_000))
    assert not broken
    assert min(ends["done"], ends["stopped"], counts["hangs named"], counts["waits in vain"]) > 0


def test_a_schedule_is_the_same_each_time():
    assert play(7) == play(7)


class AsksAlone(Keeping):
    """A rank that could not take a snapshot asks the others; one that could goes on."""

    def snapshot_if_due(self, step, take):
        if self.ring is None or not self.cadence.due(step) or self.ring.candidate_step is not None:
            return ""
        if (failed := take(step)) and (yield 1):
            self.ring = None
            return failed
        yield from self.cadence.took(step, self.ring.cost)
        return ""


class KeepsCandidate(Keeping):
    """Ranks that could copy keep the candidate of a checkpoint that another rank could not."""

    def save(self, copy, write):
        failed = copy()
        if (yield int(bool(failed))):
            return failed or "another"
        write()
        return ""


def believes_all(*, awaited: int, failed: bool, spent: bool) -> Turn:
    return Turn.WAIT if awaited and not spent else Turn.GIVE_UP if awaited else Turn.FINISH


def has_no_patience_left(*, awaited: int, failed: bool, spent: bool) -> Turn:
    return Turn.GIVE_UP if failed else Turn.WAIT if awaited and not spent else Turn.FINISH


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        (Rules(keeping=AsksAlone), "some ranks wait in a collective that others never come to"),
        (Rules(keeping=KeepsCandidate), "some ranks wait in a collective that others never come to"),
        (Rules(first_rank=believes_all), "a poisoned checkpoint"),
        (Rules(first_rank=has_no_patience_left), "a checkpoint of several steps, or not of all ranks"),
        (Rules(shared_record=False), "a machine did not hear of the stop"),
    ],
)
def test_a_protocol_that_is_broken_is_found_out(rules, found):
    assert any(play(seed, ranks=64, rules=rules).broken == found for seed in range(1500))
