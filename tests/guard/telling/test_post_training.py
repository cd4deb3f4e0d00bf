"""Signals of post-training are judged while the run goes on: told once, with a fix, and never a reason to refuse."""

import io
import json

import pytest
import torch
from rich.console import Console
from torch import nn

from stayfinite import Guard

PLANTED = {
    "kl-runaway": lambda step: {"kl": 0.01 * 1.3**step, "reward": 0.5 - 0.01 * step},
    "entropy-collapse": lambda step: {"entropy": 2 * 0.7**step, "reward": 0.3},
    "grpo-zero-advantage": lambda _: {"equal_groups": 1.0, "reward": 0.0},
    "sampler-mismatch": lambda _: {"mismatch": 0.4, "mismatch_max": 6.0},
    "ratio-explosion": lambda step: {"ratio_mean": 1.0 + 0.2 * step, "lag": 6.0},
    "dpo-both-fall": lambda step: {
        "chosen_logp": -40.0 - 4 * step,
        "rejected_logp": -40.0 - 8 * step,
        "margin": 4.0 * step,
    },
}
HEALTHY = {
    "grpo": lambda step: {"kl": 0.002 * step, "entropy": 2 - 0.01 * step, "reward": 0.01 * step, "equal_groups": 0.3},
    "dpo": lambda step: {"chosen_logp": -40.0 - 0.1 * step, "rejected_logp": -40.0 - step, "margin": 0.1 * step},
}


def run(signals, folder, steps=50):
    said = io.StringIO()
    model = nn.Linear(4, 1)
    guard = Guard(
        model, torch.optim.SGD(model.parameters(), 0.01), run_dir=folder, console=Console(file=said, width=200)
    )
    for step in range(steps):
        guard.step(model(torch.ones(4)).square().mean(), signals=signals(step))
    guard.close()
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    refused = [decision.step for decision in guard.decisions if decision.refused]
    return [event for event in events if event["event"] == "sign"], refused, said.getvalue()


@pytest.mark.parametrize("cause", PLANTED)
def test_a_planted_fault_is_told_by_name_with_its_fix_and_refuses_nothing(tmp_path, cause):
    signs, refused, said = run(PLANTED[cause], tmp_path)
    assert cause in {sign["cause"] for sign in signs}
    first = next(sign for sign in signs if sign["cause"] == cause)
    assert first["fix"]
    assert f"step {first['step']}: {cause}: {first['reason']}. Training continues." in said
    assert f"{cause} from step {first['step']}" in said.splitlines()[-2]
    assert refused == []


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_healthy_run_hears_of_nothing(tmp_path, kind):
    signs, refused, said = run(HEALTHY[kind], tmp_path)
    assert signs == []
    assert refused == []
    assert "signals show" not in said
