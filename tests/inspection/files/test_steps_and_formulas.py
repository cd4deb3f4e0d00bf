"""Steps every few batches, scalers, and formulas: each fault beside the healthy script that only looks like it."""

from pathlib import Path

import pytest

from stayfinite.inspection.files.inspecting import inspect_files

HEAD = """
import math
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from rows import Rows

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 32)
        self.b = nn.Linear(32, 4)
        self.variance = nn.Linear(32, 4)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4), 2)
    def forward(self, x, attention_mask=None):
        return self.b(torch.relu(self.a(x)))
{functions}
net = Net()
loader = DataLoader(Rows(), 32, shuffle=True)
"""
LOOP = """
opt = torch.optim.{optimizer}
{before}
for epoch in range(9):
    for i, (x, y) in enumerate(loader):
        {clear}
        loss = {loss}
        {backward}
        {step}
"""


def script(
    functions: str = "", optimizer: str = "SGD(net.parameters(), lr=0.1)", before: str = "pass",
    clear: str = "opt.zero_grad()", loss: str = "F.cross_entropy(net(x), y)", backward: str = "loss.backward()",
    step: str = "opt.step()",
) -> str:  # fmt: skip
    more = {"optimizer": optimizer, "before": before, "clear": clear, "loss": loss, "backward": backward, "step": step}
    return HEAD.format(functions=functions) + LOOP.format(**more)


def every(test: str, first: str = "opt.step()") -> str:
    return f"if {test}:\n            {first}\n            opt.zero_grad()"


AFTER = "opt.step()\n        nn.utils.clip_grad_norm_(net.parameters(), 1.0)"
BEFORE = "nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n        opt.step()"
SCALER = "scaler = torch.amp.GradScaler({})"
SCALED = "scaler.step(opt)\n        scaler.update()"
ACCELERATOR = "from accelerate import Accelerator\nboss = Accelerator(mixed_precision={!r})\nnet = boss.prepare(Net())"
KL = "F.kl_div({}, F.softmax(y, dim=1), reduction='batchmean')"
VAE = """
def divergence(mean, spread):
    return {}0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
def total(net, x):
    hidden = net.a(x)
    mean, spread = net.b(hidden), net.variance(hidden)
    return F.mse_loss(mean, x) + 0.3 * divergence(mean, spread)
"""
POLICY = """
def total(net, x):
    actions = torch.distributions.Categorical(logits=net(x))
    chosen = actions.sample()
    return -(actions.log_prob(chosen) * gains(x)).mean() {} 0.01 * actions.entropy().mean()
"""
ATTENTION = """
def total(net, x):
    q, k, v = net.a(x), net.a(x), net.a(x)
    weights = F.softmax((q @ k.transpose(-2, -1)) {} math.sqrt(32), dim=-1)
    return (weights @ v).pow(2).mean()
"""
ENCODER = """
from transformers import AutoTokenizer
def total(net, batch):
    attention_mask = batch['attention_mask']
    return net.encoder(net.a(batch['x']), src_key_padding_mask={}).pow(2).mean()
"""
CONTRAST = """
def total(net, x, y):
    one, other = F.normalize(net(x), dim=1), F.normalize(net(y), dim=1)
    grown = torch.exp(one @ other.t() / {})
    return -(grown.diag() / grown.sum(1)).log().mean()
"""
PAIRS = """
def total(net, x):
    z = net(x)
    squares = (z * z).sum(1)
    distances = squares[:, None] + squares[None, :] - 2 * z @ z.t()
    return torch.sqrt({}).max(1).values.mean()
"""
PAINT = "paint = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 3, 3))"
BOTH = "SGD([*net.parameters(), *head.parameters()], lr=0.1)"
PRICES = """
import pandas as pd
from torch.utils.data import TensorDataset
table = pd.read_csv('houses.csv')
prices = torch.tensor(table['price'].values)
houses = DataLoader(TensorDataset(torch.tensor(rooms(table)), prices), batch_size=64)
head = nn.Linear(4, 1)
"""

FAULTS = {
    "sums thrown away": (
        "cleared-before-step",
        script(backward="(loss / 4).backward()", step="if (i + 1) % 4 == 0:\n            opt.step()"),
        script(clear="pass", backward="(loss / 4).backward()", step=every("(i + 1) % 4 == 0")),
    ),
    "the rarer step of two optimizers": (
        "cleared-before-step",
        script(step="if not (i + 1) % 4:\n            opt.step()"),
        script(before="slow = torch.optim.SGD(net.b.parameters(), lr=0.1)", clear="opt.zero_grad(); slow.zero_grad()",
               step="opt.step()\n        if i % 4 == 0:\n            slow.step()"),
    ),
    "undivided sums": (
        "accumulation-unscaled",
        script(clear="pass", step=every("i % 8 == 0")),
        script(clear="pass", step=every("i % 8 == 0"), backward="(loss / 8).backward()"),
    ),
    "sums under Adam, and at a rate made for them": (
        "accumulation-unscaled",
        script(clear="pass", step=every("not i % 16")),
        script(clear="pass", step=every("not i % 16"), optimizer="SGD(net.parameters(), lr=0.1 / 16)"),
    ),
    "sums that are clipped": (
        "accumulation-unscaled",
        script(before="n = 8", clear="pass", step=every("(i + 1) % n == 0")),
        script(before="n = 8", clear="pass", step=every("(i + 1) % n == 0", "nn.utils.clip_grad_norm_(net.parameters(),"
               " 1.0); opt.step()")),
    ),
    "a remainder that no number leaves": (
        "step-missing",
        script(before="n = 8", clear="pass", backward="(loss / n).backward()", step=every("(i + 1) % n == n")),
        script(before="n = 8", clear="pass", backward="(loss / n).backward()", step=every("(i + 1) % n == n - 1")),
    ),
    "a scaler that scales nothing": (
        "scaler-missing",
        script(before=SCALER.format("'cuda'"), step=SCALED),
        script(before=SCALER.format("'cuda'"), step=SCALED, backward="scaler.scale(loss).backward()"),
    ),
    "a scaler that is switched off": (
        "clip-before-unscale",
        script(before=SCALER.format("'cuda'"), backward="scaler.scale(loss).backward()\n        "
               + BEFORE.partition("\n")[0], step=SCALED),
        script(before="half = False\n" + SCALER.format("'cuda', enabled=half"), step=SCALED,
               backward="scaler.scale(loss).backward()\n        " + BEFORE.partition("\n")[0]),
    ),
    "accelerate's backward bypassed": (
        "scaler-missing",
        script(functions=ACCELERATOR.format("fp16")),
        script(functions=ACCELERATOR.format("fp16"), backward="boss.backward(loss)"),
    ),
    "clipped after the step": ("no-clipping", script(step=AFTER), script(step=BEFORE)),
    "probabilities in kl_div": (
        "probability-loss-on-logits",
        script(loss=KL.format("F.softmax(net(x), dim=1)")),
        script(loss=KL.format("F.log_softmax(net(x), dim=1)")),
    ),
    "scores in CTC": (
        "probability-loss-on-logits",
        script(before="ctc = nn.CTCLoss()", loss="ctc(net(x), y, x.lengths, y.lengths)"),
        script(before="ctc = nn.CTCLoss()", loss="ctc(net(x).log_softmax(-1), y, x.lengths, y.lengths)"),
    ),
    "a softmax over the batch": (
        "softmax-axis",
        script(loss="F.nll_loss(F.log_softmax(net(x), dim=0), y)"),
        script(loss="F.nll_loss(F.log_softmax(net(x), dim=1), y)"),
    ),
    "a divergence that grows": (
        "flipped-sign",
        script(functions=VAE.format(""), loss="total(net, x)"),
        script(functions=VAE.format("-"), loss="total(net, x)"),
    ),
    "an entropy that shrinks": (
        "flipped-sign",
        script(functions=POLICY.format("+"), loss="total(net, x)"),
        script(functions=POLICY.format("-"), loss="total(net, x)"),
    ),
    "an attack on the input": (
        "flipped-sign",
        script(loss="-F.cross_entropy(net(x), y)"),
        script(clear="adv = -F.cross_entropy(net(x), y)\n        g, = torch.autograd.grad(adv, x); opt.zero_grad()"),
    ),
    "attention multiplied": (
        "attention-unscaled",
        script(functions=ATTENTION.format("*"), loss="total(net, x)"),
        script(functions=ATTENTION.format("/"), loss="total(net, x)"),
    ),
    "a mask of what to keep": (
        "attention-fully-masked-row",
        script(functions=ENCODER.format("attention_mask.bool()"), loss="total(net, x)"),
        script(functions=ENCODER.format("~attention_mask.bool()"), loss="total(net, x)"),
    ),
    "a temperature that overflows": (
        "naive-exp",
        script(functions=CONTRAST.format("0.005"), loss="total(net, x, y)"),
        script(functions=CONTRAST.format("0.07"), loss="total(net, x, y)"),
    ),
    "a sum over all pixels": (
        "wrong-reduction",
        script(PAINT, "SGD(paint.parameters(), lr=0.05)", loss="F.mse_loss(paint(x), y, reduction='sum')"),
        script(PAINT, "SGD(paint.parameters(), lr=1e-6)", loss="F.mse_loss(paint(x), y, reduction='sum')"),
    ),
    "roots of a diagonal": (
        "loss-formula-singularity",
        script(functions=PAIRS.format("distances.clamp(min=0.0)"), loss="total(net, x)"),
        script(functions=PAIRS.format("distances.clamp(min=1e-12)"), loss="total(net, x)"),
    ),
    "a column against a row": (
        "loss-broadcast",
        script(PRICES, BOTH, "loader = houses", loss="F.mse_loss(head(net(x)), y)"),
        script(PRICES, BOTH, "loader = houses", loss="F.mse_loss(head(net(x)).squeeze(1), y)"),
    ),
}  # fmt: skip


def causes(text: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(here)
    (here / "train.py").write_text(text)
    return [each.cause for each in inspect_files(["train.py"]).findings]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_what_looks_like_it_is_left_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cause, sick, healthy = FAULTS[name]
    assert causes(sick, tmp_path, monkeypatch) == [cause]
    assert causes(healthy, tmp_path, monkeypatch) == []
