"""Ctrl-C in the middle of an autopsy: the refusal is on record all the same."""

import json

import pytest
import torch
from torch import nn

from stayfinite import Guard
from stayfinite.guard.incidents import rerunning


def test_an_autopsy_that_is_interrupted_leaves_the_refusal_in_the_events(tmp_path, monkeypatch):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(rerunning, "perform", interrupted)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = Guard(model, optimizer, run_dir=tmp_path, forward=lambda batch: model(batch).mean())
    with pytest.raises(KeyboardInterrupt), guard:
        guard.step(guard.forward(torch.full((2, 4), float("nan"))))
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert "veto" in [event["event"] for event in events]
