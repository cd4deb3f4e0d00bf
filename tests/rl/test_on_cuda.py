"""On a GPU: signals, sound groups and the step that takes them along wait for nothing."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn

from on_a_gpu import MARKS, no_host_wait
from stayfinite import Guard, rl

pytestmark = MARKS


def test_signals_and_steps_wait_for_nothing(tmp_path: Path) -> None:
    model = nn.Linear(64, 100).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    guard = Guard(model, optimizer, max_norm=1.0, run_dir=tmp_path)
    drawn = torch.Generator("cuda").manual_seed(0)
    told = []
    for step in range(40):
        states = torch.randn(16, 12, 64, generator=drawn, device="cuda")
        tokens = torch.randint(100, (16, 12), generator=drawn, device="cuda")
        mask = torch.rand(16, 12, generator=drawn, device="cuda") > 0.1
        rewards = torch.rand(16, generator=drawn, device="cuda")
        with no_host_wait() if step > 20 else nullcontext():
            own = model(states).log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
            found = rl.signals(
                own, own.detach(), own.detach(), rewards, mask, rewards={"right": rewards}, group_size=4,
                sampler_logprobs=own.detach(), tokens=tokens, limit=12,
            )  # fmt: skip
            keep = rl.sound_groups(rewards, 4, ratio=own.detach().exp(), mask=mask)
            guard.step(-(own * mask * keep[:, None]).mean(), signals=found)
        told.append(found)
    guard.close()
    assert [each.signals.named["reward"] for each in guard.decisions] == pytest.approx(
        [float(each["reward"]) for each in told]
    )


def test_a_mismatch_is_explained_where_the_model_is() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 32), nn.Dropout(0.3), nn.Linear(32, 50)).cuda()
    tokens = torch.randint(50, (8, 20), device="cuda")
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[:, 0] = False
    model.eval()
    with torch.no_grad():
        own = model(tokens)[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    model.train()
    before = torch.cuda.get_rng_state()
    found = rl.explain_mismatch(model, tokens, torch.cat([own.new_zeros(8, 1), own], dim=1), mask)
    assert [each.name for each in found.causes] == ["eval mode"]
    assert torch.equal(before, torch.cuda.get_rng_state())
