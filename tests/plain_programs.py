"""Small plain programs, none of which has heard of stayfinite, and a way to watch one."""

import contextlib
import io
import runpy
import sys

from stayfinite.doctor.session import Session

HEALTHY = """
import torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
X = torch.randn(256, 8)
Y = (X[:, 0] > 0).long()
loader = DataLoader(TensorDataset(X[:192], Y[:192]), batch_size=16, shuffle=True)
held_out = DataLoader(TensorDataset(X[192:], Y[192:]), batch_size=32)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(3):
    model.train()
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in held_out:
            right += (model(x).argmax(1) == y).sum().item()
    print(f"epoch {epoch} loss {total / len(loader):.4f} acc {right / 64:.3f}")
"""

ROOT_OF_ZERO = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, t = torch.randn(64, 4), torch.randn(64, 3)
for step in range(20):
    if step >= 7:
        x[3], t[3] = 0, net.bias.detach()
    p = net(x)
    d = torch.sqrt(((p - t) ** 2).sum(1))
    loss = d.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
"""


def changed(text: str, *edits: tuple[str, str]) -> str:
    """The text with parts replaced, each of which must be there."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


class _Heard(io.StringIO):
    def __init__(self, session):
        super().__init__()
        self._session = session

    def write(self, text):
        self._session.printed(text)
        return len(text)


def watch(tmp_path, text, *, guard=False, examine=True):
    """Run a program under the doctor; returns what was seen and the program's names at its end."""
    script = tmp_path / "train.py"
    script.write_text(text)
    session = Session(guard=guard)
    with session.watching(), contextlib.redirect_stdout(_Heard(session)):
        names = runpy.run_path(str(script), run_name="__main__")
    return session.conclude(examine=examine), names


def run_alone(tmp_path, text):
    """Run a program without the doctor; returns its names at its end."""
    script = tmp_path / "alone.py"
    script.write_text(text)
    with contextlib.redirect_stdout(io.StringIO()):
        return runpy.run_path(str(script), run_name="__main__")


def causes(seen):
    """The causes that were told aloud."""
    return [each.finding.cause for each in seen.findings if each.loud]


def patched_now():
    """What torch has at the places where the doctor stands."""
    import torch
    from torch.nn import functional as F

    return (
        torch.Tensor.backward, torch.autograd.backward, torch.optim.Optimizer.__init__, torch.optim.Optimizer.zero_grad,
        F.cross_entropy, F.mse_loss, torch.Tensor.__dict__.get("__eq__"), torch.utils.data.DataLoader.__iter__,
        dict(torch.nn.modules.module._global_forward_pre_hooks), sys.stdout,
    )  # fmt: skip
