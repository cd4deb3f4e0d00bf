"""A GAN has two optimizers: the first step of each is examined, and losses that rise by design are no fault."""

from plain_programs import causes, watch
from stayfinite.doctor.session import plain
from stayfinite.doctor.watching import looking

GAN = """
import torch
import torch.nn as nn
torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
g_opt = torch.optim.Adam(G.parameters(), lr=1e-3)
d_opt = torch.optim.Adam(D.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
for step in range(20):
    real, fake = torch.randn(32, 2) + 2, G(torch.randn(32, 4))
    d_loss = bce(D(real), torch.ones(32, 1)) + bce(D(fake.detach()), torch.zeros(32, 1))
    d_opt.zero_grad()
    d_loss.backward()
    d_opt.step()
    g_loss = bce(D(fake), torch.ones(32, 1))
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
"""


def test_the_first_step_of_each_optimizer_is_examined(tmp_path):
    seen, _ = watch(tmp_path, GAN)
    assert causes(seen) == []
    assert plain(seen)["not_examined"] == ""


def test_weights_that_are_too_large_to_keep_are_said_to_be_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(looking, "LARGE", 1)
    monkeypatch.setattr(looking, "SMALL_MODEL", 1)
    seen, _ = watch(tmp_path, GAN)
    assert plain(seen)["not_examined"] == "the weights before the first step are too large to keep a copy of"


def test_steps_that_do_not_repeat_are_not_examined_and_it_is_said(tmp_path):
    chance = "loss = 1e-5 * int.from_bytes(__import__('os').urandom(2)) + bce("
    seen, _ = watch(tmp_path, GAN.replace("loss = bce(", chance))
    assert causes(seen) == []
    assert plain(seen)["not_examined"] == (
        "re-running the first step gave a different loss. "
        "Seed its random numbers, and keep the step free of side effects"
    )
