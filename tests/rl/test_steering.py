"""Post-training gone wrong: rungs are taken one at a time, and only while a cause stands that they can cure."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from stayfinite import rl
from stayfinite.errors import UsageError
from stayfinite.rl import Rung


class Told:
    """A guard whose signs are set by hand."""

    def __init__(self, *, known_good: bool = True) -> None:
        self.standing_signs: set[str] = set()
        self.done: list[str] = []
        self.steered: dict[str, Any] = {}
        self._known_good = known_good

    def agree(self, number: int) -> int:
        return number

    def raised_kl(self, kl: float, why: str) -> None:
        self.done.append(f"kl {kl:g}: {why}")

    def cut_rate(self, why: str) -> None:
        self.done.append(f"cut: {why}")

    def roll_back(self, why: str) -> bool:
        if self._known_good:
            self.done.append(f"back: {why}")
        return self._known_good


def test_nothing_is_done_without_a_sign() -> None:
    steering = rl.Steering(Told(), kl=0.1)
    assert {steering.follow() for _ in range(200)} == {Rung.NOTHING}
    assert (steering.kl, steering.done) == (0.1, [])


@pytest.mark.parametrize("cause", ["sampler-mismatch", "grpo-zero-advantage", "length-hacking"])
def test_a_cause_that_no_rung_cures_changes_nothing(cause: str) -> None:
    guard = Told()
    guard.standing_signs = {cause}
    steering = rl.Steering(guard, kl=0.1)
    assert {steering.follow() for _ in range(200)} == {Rung.NOTHING}


def test_rungs_are_taken_in_order_and_each_is_given_time() -> None:
    guard = Told()
    guard.standing_signs = {"kl-runaway"}
    steering = rl.Steering(guard, kl=0.1, most=4.0, patience=10)
    taken = {step: rung for step in range(1, 100) if (rung := steering.follow())}
    assert taken == {1: Rung.KL, 12: Rung.KL, 23: Rung.RATE, 34: Rung.ROLL_BACK}
    assert steering.kl == pytest.approx(0.4)
    assert guard.done == ["kl 0.2: kl-runaway", "kl 0.4: kl-runaway", "cut: kl-runaway", "back: kl-runaway"]


def test_without_a_kl_term_the_rate_is_first_and_without_a_snapshot_it_is_the_last() -> None:
    guard = Told(known_good=False)
    guard.standing_signs = {"ratio-explosion"}
    steering = rl.Steering(guard, patience=5)
    assert [rung for _ in range(60) if (rung := steering.follow())] == [Rung.RATE]


def test_rungs_go_on_where_a_killed_run_had_left_them() -> None:
    guard = Told()
    guard.standing_signs = {"kl-runaway"}
    steering = rl.Steering(guard, kl=0.1, most=2.0, patience=3)
    for _ in range(5):
        steering.follow()
    assert steering.done == [Rung.KL, Rung.RATE]
    again = Told()
    resumed = rl.Steering(again, kl=0.1, most=2.0, patience=3)
    again.steered.update(json.loads(json.dumps(guard.steered)))
    again.standing_signs = {"kl-runaway"}
    assert (resumed.kl, resumed.done) == (0.2, [Rung.KL, Rung.RATE])
    assert [resumed.follow() for _ in range(4)] == [Rung.NOTHING] * 3 + [Rung.ROLL_BACK]


def test_after_a_long_calm_it_begins_again() -> None:
    guard = Told()
    steering = rl.Steering(guard, patience=5)
    guard.standing_signs = {"reward-falls"}
    assert steering.follow() is Rung.RATE
    guard.standing_signs = set()
    for _ in range(20):
        steering.follow()
    guard.standing_signs = {"reward-falls"}
    assert steering.follow() is Rung.RATE


def test_groups_that_teach_nothing_or_would_do_harm_are_left_out_whole() -> None:
    rewards = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, math.nan, 0.0, 1.0, 0.0, 1.0])
    ratio = torch.ones(10, 3)
    ratio[7, 1] = 1e6
    ratio[8, 2] = math.inf
    mask = torch.ones(10, 3, dtype=torch.bool)
    mask[8, 2] = False
    kept = rl.sound_groups(rewards, 2, ratio=ratio, mask=mask)
    assert kept.tolist() == [True, True, False, False, False, False, False, False, True, True]


def test_rewards_that_make_no_groups_are_refused() -> None:
    with pytest.raises(UsageError, match="do not make groups of 4"):
        rl.sound_groups(torch.zeros(10), 4)
    with pytest.raises(UsageError, match="out of range"):
        rl.Steering(Told(), kl=-1.0)
