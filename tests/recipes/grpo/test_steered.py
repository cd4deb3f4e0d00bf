"""The ladder of `train grpo`: acts on a sign between two samplings, and holds still where it is switched off."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from stayfinite import Guard, Policy
from stayfinite.recipes.grpo import Grpo
from stayfinite.recipes.policy.groups import Steered


def run_away(place: Path, config: Grpo) -> tuple[Steered, list[str]]:
    """A guarded loop whose KL doubles every other step from step 10 on, and whose reward falls."""
    torch.manual_seed(0)
    model, said = nn.Linear(4, 1), []
    guard = Guard(model, torch.optim.SGD(model.parameters(), lr=1e-3), policy=Policy(autopsy_seconds=0), run_dir=place)
    steered = Steered(guard, config, said.append)
    for step in range(50):
        steered.follow()
        gone = max(0, step - 10)
        found = {"kl": 0.01 * 1.4**gone, "reward": 0.5 + 0.01 * (step % 3) - 0.01 * gone}
        guard.step(model(torch.ones(2, 4)).square().mean() + 1, signals=found)
    guard.close()
    return steered, said


def test_a_policy_that_runs_away_is_acted_on_one_rung_at_a_time(tmp_path: Path) -> None:
    steered, said = run_away(tmp_path, Grpo(kl=0.02, updates=1))
    assert said[:3] == [f"steering: raised the KL coefficient to {kl}" for kl in ("0.04", "0.08", "0.16")]
    assert said[3] == "steering: cut the learning rate"
    assert steered.kl == 0.16
    assert '"kl-raised"' in (tmp_path / "events.jsonl").read_text()


def test_nothing_is_done_where_it_is_switched_off(tmp_path: Path) -> None:
    steered, said = run_away(tmp_path, Grpo(kl=0.02, updates=1, steer=False))
    assert (steered.kl, said) == (0.02, [])
    assert "kl-runaway" in (tmp_path / "events.jsonl").read_text()
