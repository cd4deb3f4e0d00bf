"""A run that is killed and resumed knows the signals from before: a sign comes at the step at which it would have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from stayfinite import Guard, Policy, rl
from stayfinite.errors import StateError

STEPS, KILLED = 60, 20


def signals(step: int) -> dict[str, float]:
    """The entropy collapses between steps 25 and 45; the reward stays."""
    fallen = min(1.0, max(0.0, (step - 25) / 20))
    return {"entropy": 1.2 * 0.005**fallen, "reward": 0.4 + 0.01 * (step % 3)}


def guarded(place: Path) -> Guard:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    return Guard(model, torch.optim.SGD(model.parameters(), lr=1e-3), policy=Policy(autopsy_seconds=0), run_dir=place)


def train(guard: Guard, first: int, last: int) -> None:
    weights = [each for group in guard._optimizer.param_groups for each in group["params"]]
    for step in range(first, last + 1):
        guard.step(torch.stack([each.square().sum() for each in weights]).sum() + 1, signals=signals(step))


def signs(place: Path) -> list[tuple[str, int]]:
    lines = [json.loads(line) for line in (place / "events.jsonl").read_text().splitlines()]
    return [(line["cause"], line["step"]) for line in lines if line["event"] == "sign"]


def test_a_resumed_run_tells_of_a_sign_at_the_same_step(tmp_path: Path) -> None:
    with guarded(tmp_path / "whole") as whole:
        train(whole, 1, STEPS)
    killed = guarded(tmp_path / "killed")
    train(killed, 1, KILLED)
    killed.checkpoint()
    killed.close()
    with guarded(tmp_path / "killed") as again:
        assert again.resume() == KILLED
        train(again, KILLED + 1, STEPS)
    assert [cause for cause, _ in signs(tmp_path / "whole")] == ["entropy-collapse"]
    assert signs(tmp_path / "killed") == signs(tmp_path / "whole")


def test_a_state_from_before_signals_were_kept_still_loads(tmp_path: Path) -> None:
    with guarded(tmp_path / "old") as old:
        train(old, 1, KILLED)
        state = old.state_dict()
    del state["post_training"]
    with guarded(tmp_path / "new") as new:
        new.load_state_dict(state)
        train(new, KILLED + 1, STEPS)
    # The beginning is then that of the resumed part, which is as high here.
    assert [cause for cause, _ in signs(tmp_path / "new")] == ["entropy-collapse"]


def test_what_was_done_about_signs_is_in_the_state(tmp_path: Path) -> None:
    with guarded(tmp_path / "one") as one:
        rl.Steering(one, kl=0.1).follow()
        one.steered["kl"] = 0.4
        state = json.loads(json.dumps(one.state_dict()))
    with guarded(tmp_path / "two") as two:
        steering = rl.Steering(two, kl=0.1)
        two.load_state_dict(state)
        assert steering.kl == 0.4


def test_a_broken_history_is_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    with guarded(tmp_path / "one") as one:
        train(one, 1, 5)
        state = one.state_dict()
    state["post_training"]["judge"]["courses"]["entropy"] = {"count": 3}
    with guarded(tmp_path / "two") as two:
        with pytest.raises(StateError, match="not a guard state"):
            two.load_state_dict(state)
        assert two.state_dict()["step"] == 0
