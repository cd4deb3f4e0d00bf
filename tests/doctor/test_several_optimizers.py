"""A GAN has two optimizers: what is not examined is said."""

from plain_programs import causes, watch
from stayfinite.doctor.session import plain

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


def test_the_optimizers_that_were_not_examined_are_named(tmp_path):
    seen, _ = watch(tmp_path, GAN)
    assert causes(seen) == []
    assert plain(seen)["not_examined"] == "2 optimizers take steps (Adam at train.py:7, Adam at train.py:8)"
