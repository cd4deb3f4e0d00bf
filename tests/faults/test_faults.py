"""Every kind of fault ends in the right outcome; ``kinds.py`` says which, ``benchmarks/chaos.py`` meets many more."""

from __future__ import annotations

from collections import Counter

import pytest

from faults.campaign import FaultFree, campaign, draw, meet
from faults.kinds import KINDS, ON_TWO
from quick_ones import quick_ones

SEED = 11
QUICK = ("NaN batch", "NaN gradient", "broken loader", "kill -9", "truncated checkpoint", "NaN on one of 2 ranks")


@pytest.fixture(scope="session")
def fault_free(tmp_path_factory):
    return FaultFree(tmp_path_factory.mktemp("fault-free"))


# A fresh process loads torch once, for the server that all trainings are forked from.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", quick_ones(KINDS, *QUICK))
def test_a_fault_ends_in_the_right_outcome(kind, tmp_path, fault_free):
    outcome = meet(kind, 0, SEED, tmp_path, fault_free)
    assert not outcome.complaints, outcome.story
    assert (outcome.deadlocks, outcome.poisoned) == (0, 0), outcome.story


def test_a_campaign_is_drawn_from_its_seed_and_holds_every_kind():
    assert draw(200, seed=3) == draw(200, seed=3) != draw(200, seed=4)
    counts = Counter(draw(200, seed=3))
    assert set(counts) == set(KINDS)
    assert sum(counts[kind] for kind in ON_TWO) == 10


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixty_random_faults_all_end_in_the_right_outcome(tmp_path):
    outcomes = list(campaign(60, 5, tmp_path, ranks_share=0.1))
    wrong = [(each.story, each.complaints, each.deadlocks, each.poisoned) for each in outcomes if not each.right]
    assert wrong == []
    assert len(outcomes) == 60
