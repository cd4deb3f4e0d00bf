"""Whole scripts: each mechanism in several spellings, and beside it the healthy programs that resemble it."""

import ast

import pytest

from stayfinite.readers.configs.judges import script_faults
from stayfinite.readers.configs.judges.fault import Fault

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
"""
MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.drop = {layer}
        self.b = nn.Linear(16, {width})
    def forward(self, x):
        return {returned}
model = Net()
opt = torch.optim.{optimizer}
"""
DATA = """
x = torch.randn(200, 8)
y = {labels}
{change}
loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
vx, vy = torch.randn(50, 8), torch.randint(0, 3, (50,))
val = DataLoader(TensorDataset(vx, vy), batch_size=20)
criterion = {criterion}
"""
LOOP = """
{before}
for epoch in range(3):
    {first}
    for xb, yb in loader:
        {inside}
        out = model(xb)
        loss = {loss}
        opt.zero_grad()
        loss.backward()
        opt.step()
        {after}
    {end}
"""
FORWARD = "self.b(self.drop(F.relu(self.a(x))))"


def program(
    before="", first="model.train()", inside="pass", after="pass", end="pass", loss="criterion(out, yb)", **more
):
    asked = {
        "layer": "nn.Dropout(0.2)",
        "width": 3,
        "returned": FORWARD,
        "optimizer": "Adam(model.parameters(), lr=1e-3)",
        "labels": "torch.randint(0, 3, (200,))",
        "change": "",
        "criterion": "nn.CrossEntropyLoss()",
    } | more
    text = HEAD + MODEL.format(**asked) + DATA.format(**asked)
    return text + LOOP.format(before=before, first=first, inside=inside, after=after, end=end, loss=loss)


SCORE = "\n    with torch.no_grad():\n        right = sum((model(xb).argmax(1) == yb).sum().item() for xb, yb in val)"
EVALUATE = (
    "def evaluate(net):\n    {}\n    with torch.no_grad():\n        return (net(vx).argmax(1) == vy).float().mean()\n"
)
TENSOR = "torch.randn(200, 1)"
COLUMN = {"width": 1, "criterion": "nn.MSELoss()", "layer": "nn.Identity()"}
STEP = "out = model(xb); loss = criterion(out, yb); opt.zero_grad(); loss.backward(); opt.step()"
TOKENS = """
import torch
import torch.nn as nn
import torch.nn.functional as F
data = torch.randint(0, 50, (5000,))
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 32)
        self.register_buffer("tril", torch.tril(torch.ones(16, 16)))
    def forward(self, x):
        w = self.q(x) @ self.k(x).transpose(-2, -1) / 32 ** 0.5
        {mask}
        return x + F.softmax(w, dim=-1) @ self.v(x)
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.block, self.head = nn.Embedding(50, 32), Block(), nn.Linear(32, 50)
    def forward(self, x):
        return self.head(self.block(self.tok(x)))
model = GPT()
opt = torch.optim.AdamW(model.parameters())
for step in range(100):
    at = torch.randint(0, 4000, (8,))
    x = torch.stack([data[i:i + 16] for i in at])
    y = torch.stack([{target} for i in at])
    logits = model(x)
    loss = {loss}
    opt.zero_grad(); loss.backward(); opt.step()
"""
MASK = "w = w.masked_fill(self.tril == 0, float('-inf'))"
ALL = "F.cross_entropy(logits.view(-1, 50), y.view(-1))"
CUT = "F.cross_entropy(logits[:, :-1].reshape(-1, 50), y[:, 1:].reshape(-1))"
LSTM = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(3, 8{first}), nn.Linear(8, 2)
    def forward(self, x):
        out, _ = self.lstm({given})
        return self.head({last})
model = Net()
opt = torch.optim.Adam(model.parameters())
for x, y in DataLoader(TensorDataset(torch.randn(99, 5, 3), torch.randint(0, 2, (99,))), batch_size=9, shuffle=True):
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad(); loss.backward(); opt.step()
"""
)

PLANTED = {
    "eval in a function, train never": (
        "wrong-mode",
        program(EVALUATE.format("net.eval()"), "pass", end="evaluate(model)"),
    ),
    "train before the loop, eval inside": ("wrong-mode", program("model.train()", "pass", end="model.eval()")),
    "eval before the loop": ("wrong-mode", program("model.eval()", "pass")),
    "eval now and then, no way back": ("wrong-mode", program("i = 0", "pass", after="if i % 9 == 0: model.eval()")),
    "no eval anywhere": ("wrong-mode", program(end=SCORE[1:].lstrip())),
    "no eval in a function": ("wrong-mode", program(EVALUATE.format("pass"), end="evaluate(model)")),
    "a sum of all epochs": (
        "metric-not-reset",
        program("total = 0.0", after="total += loss.item()", end="print(total / len(loader))"),
    ),
    "a sum of all epochs by a count": (
        "metric-not-reset",
        program("total = 0", "n = 0", after="total += loss.item(); n += 1", end="print(f'{total / n:.3f}')"),
    ),
    "rows by batches": (
        "metric-impossible",
        program(first="ok = 0", after="ok += (out.argmax(1) == yb).sum().item()", end="print(100 * ok / len(loader))"),
    ),
    "rows by a count of batches": (
        "metric-impossible",
        program(first="ok = n = 0", after="ok += (out.argmax(1) == yb).sum().item(); n += 1", end="print(ok / n)"),
    ),
    "accuracy of a table": (
        "metric-impossible",
        program(
            width=1,
            criterion="nn.BCEWithLogitsLoss()",
            labels="torch.ones(200)",
            loss="criterion(out.squeeze(1), yb)",
            after="acc = ((out > 0).float() == yb).float().mean()",
        ),
    ),
    "softmax in forward": ("softmax-before-cross-entropy", program(returned=f"torch.softmax({FORWARD}, dim=1)")),
    "softmax and F.cross_entropy": (
        "softmax-before-cross-entropy",
        program(returned=f"{FORWARD}.softmax(-1)", loss="F.cross_entropy(out, yb)"),
    ),
    "nll of logits": ("probability-loss-on-logits", program(criterion="nn.NLLLoss()")),
    "nll of probabilities": ("probability-loss-on-logits", program(loss="F.nll_loss(F.softmax(out, 1), yb)")),
    "bce of logits": ("probability-loss-on-logits", program(width=1, loss="F.binary_cross_entropy(out, yb)")),
    "softmax over rows": ("softmax-axis", program(loss="F.nll_loss(F.log_softmax(out, dim=0), yb)")),
    "a layer over rows": ("softmax-axis", program(returned=f"nn.LogSoftmax(0)({FORWARD})", criterion="nn.NLLLoss()")),
    "a column against a row": ("loss-broadcast", program(labels="torch.randn(200)", **COLUMN)),
    "a row against a column": (
        "loss-broadcast",
        program(labels=TENSOR, loss="F.l1_loss(out.squeeze(-1), yb)", **COLUMN),
    ),
    "a square of a table": ("loss-broadcast", program(labels="x[:, 0] * 2", loss="((out - yb) ** 2).mean()", **COLUMN)),
    "rows picked from several tensors": (
        "loss-broadcast",
        program(labels="torch.randn(200)", inside="out, yb = [each[:20] for each in (model(x), y)]", **COLUMN),
    ),
    "minus the loss": ("flipped-sign", program(loss="-criterion(out, yb)")),
    "minus a share of the loss": ("flipped-sign", program(loss="criterion(out, yb) * -0.5")),
    "maximize": ("flipped-sign", program(optimizer="SGD(model.parameters(), lr=0.1, maximize=True)")),
    "two permutations": ("labels-shuffled", program(change="x = x[torch.randperm(200)]\ny = y[torch.randperm(200)]")),
    "two permutations by name": (
        "labels-shuffled",
        program(change="p = torch.randperm(200)\nq = torch.randperm(200)\nx, y = x[p], y[q]"),
    ),
    "two shuffled loaders": (
        "labels-shuffled",
        program(change="one, two = DataLoader(x, 20, shuffle=True), DataLoader(y, 20, shuffle=True)").replace(
            "in loader", "in zip(one, two)"
        ),
    ),
    "labels alone permuted": (
        "labels-shuffled",
        program(labels="(x.sum(1) > 0).long()", change="y = y[torch.randperm(200)]"),
    ),
    "labels alone shuffled in place": (
        "labels-shuffled",
        "import numpy as np\n"
        + program(labels="np.arange(200) % 3", change="x = x + y[:, None]\nnp.random.shuffle(y)"),
    ),
    "labels permuted again, then picked": (
        "labels-shuffled",
        program(
            labels="(x.sum(1) > 0).long()",
            change="y = y[torch.randperm(200)]",
            inside="at = torch.randperm(200)[:20]; xb, yb = x[at], y[at]",
        ),
    ),
    "validation unscaled": (
        "splits-scaled-differently",
        program(
            change="vx, x = x[150:], x[:150]\nx = (x - x.mean(0)) / x.std(0)", end="with torch.no_grad(): model(vx)"
        ).replace("vx, vy = torch.randn(50, 8), torch.randint(0, 3, (50,))", "vy = y[150:]"),
    ),
    "validation times 255": (
        "splits-scaled-differently",
        program(
            change="def make(n):\n    return torch.rand(n, 8)\nx = make(200)",
            before="vx = make(50) * 255",
            end="with torch.no_grad(): model(vx)",
        ),
    ),
    "sorted classes": (
        "unshuffled",
        program(labels="torch.arange(4).repeat_interleave(50)").replace("shuffle=True", "shuffle=False"),
    ),
    "zeros then ones": (
        "unshuffled",
        program(labels="torch.cat([torch.zeros(100), torch.ones(100)]).long()").replace(", shuffle=True", ""),
    ),
    "the first batch again": (
        "duplicate-rows",
        program(inside="xb, yb = next(iter(loader))").replace("shuffle=True", "shuffle=False"),
    ),
    "one slice": (
        "duplicate-rows",
        program(inside="xb, yb = x[:20], y[:20]").replace("for xb, yb in loader", "for i in range(0, 200, 20)"),
    ),
    "targets not shifted": ("causal-leak", TOKENS.format(mask=MASK, target="data[i:i + 16]", loss=ALL)),
    "no mask": ("causal-leak", TOKENS.format(mask="", target="data[i + 1:i + 17]", loss=ALL)),
    "zeros everywhere": ("bad-init", program("for p in model.parameters():\n    nn.init.zeros_(p)")),
    "zeros by data": ("bad-init", program("for name, p in model.named_parameters():\n    p.data.fill_(0.0)")),
    "enormous": ("bad-init", program("nn.init.normal_(model.b.weight, 0.0, 50.0)")),
    "a constant column": ("constant-feature", program(change="x[:, 2] = 1.0\nx = (x - x.mean(0)) / x.std(0)")),
    "a row of NaN": ("bad-data-row", program(change="x[7, 2] = float('nan')")),
    "an infinite value": ("bad-data-row", program(change="x[7, 2] = torch.inf")),
    "infinity in rows by a permutation": (
        "bad-data-row",
        program(change="x[7, 2] = float('inf')", inside="at = torch.randperm(200)[:20]; xb, yb = x[at], y[at]"),
    ),
    "where": ("where-nan-branch", program(loss="torch.where(out > 0, torch.log(out), 0 * out).mean()")),
    "the root of 0": ("loss-formula-singularity", program(loss="((out - out.clone()) ** 2).sum(1).sqrt().mean()")),
    "log of relu": ("loss-formula-singularity", program(loss="torch.log(F.relu(out)).mean()")),
    "time first": ("samples-leak", LSTM.format(first="", given="x", last="out[:, -1]")),
}
LAUNCH = "def main():\n" + "\n".join(f"    {line}" for line in program("model.eval()", "pass").split("\n"))
HEALTHY = {
    "train again": program(EVALUATE.format("net.eval()"), end="evaluate(model)"),
    "train after each evaluation": program("model.train()", "pass", end="model.eval(); model.train()"),
    "eval and stop": program(first="pass", after="if loss < 0.1:\n            model.eval()\n            break").replace(
        "for epoch in range(3)", "if True"
    ),
    "nothing that drops": program("model.eval()", "pass", layer="nn.ReLU()"),
    "a dropout of 0": program("model.eval()", "pass", layer="nn.Dropout(0.0)"),
    "a teacher": program("teacher = Net()\nteacher.eval()", inside="soft = teacher(xb)"),
    "frozen statistics": program(layer="nn.BatchNorm1d(16)", inside="model.drop.eval()"),
    "samples of a generator": program(layer="nn.BatchNorm1d(16)", end="with torch.no_grad(): print(model(vx))"),
    "a phase": program(
        end="for phase in ['train', 'val']:\n        if phase == 'train': model.train()\n        else: model.eval()\n"
        "        out = model(vx)\n        if phase == 'train': criterion(out, vy).backward()"
    ),
    "a pretrained body": program("model.load_state_dict(torch.load('a.pt'))\nmodel.eval()", "pass"),
    "another file": program("from engine import switch\nmodel.eval()", "switch(model)"),
    "a reset sum": program(first="total = 0.0", after="total += loss.item()", end="print(total / len(loader))"),
    "a mean of all epochs": program("total = n = 0", after="total += loss.item(); n += 1", end="print(total / n)"),
    "a mean by the epoch": program(
        "total = 0", after="total += loss.item()", end="print(total / len(loader) / (epoch + 1))"
    ),
    "reset now and then": program(
        "i = total = 0", after="total += loss.item()\n        if i % 9 == 8:\n            print(total / 9); total = 0"
    ),
    "rows by rows": program(
        first="ok = n = 0", after="ok += (out.argmax(1) == yb).sum().item(); n += len(yb)", end="ok / n"
    ),
    "rows by the data": program(
        first="ok = 0", after="ok += (out.argmax(1) == yb).sum().item()", end="print(ok / len(loader.dataset))"
    ),
    "shares by batches": program(
        first="s = 0", after="s += (out.argmax(1) == yb).float().mean()", end="s / len(loader)"
    ),
    "softmax for a metric": program(after="p = F.softmax(out, dim=1)"),
    "log-softmax and nll": program(returned=f"F.log_softmax({FORWARD}, dim=1)", criterion="nn.NLLLoss()"),
    "one row at a time": program(loss="F.nll_loss(F.log_softmax(model(x[0]), dim=0), y[0])"),
    "columns": program(labels=TENSOR, **COLUMN),
    "rows": program(labels="torch.randn(200)", loss="criterion(out.squeeze(1), yb)", **COLUMN),
    "a table on purpose": program(
        labels="torch.randn(200)", loss="((yb.unsqueeze(1) - yb) ** 2).mean() + out.mean()", **COLUMN
    ),
    "minus a likelihood": program(loss="-torch.distributions.Categorical(logits=out).log_prob(yb).mean()"),
    "two players": program("other = torch.optim.SGD(Net().parameters(), lr=0.1)", loss="-criterion(out, yb)"),
    "one permutation": program(change="p = torch.randperm(200)\nx, y = x[p], y[p]"),
    "random labels": program(change="y = y[torch.randperm(200)]"),
    "mixed rows": program(
        inside="p = torch.randperm(20)\n        xb = 0.5 * xb + 0.5 * xb[p]",
        loss="0.5 * criterion(out, yb) + 0.5 * criterion(out, yb[p])",
    ),
    "both scaled": program(
        change="m, s = x.mean(0), x.std(0)\nx = (x - m) / s",
        before="vx = (vx - m) / s",
        end="with torch.no_grad(): model(vx)",
    ),
    "noise in training": program(inside="xb = xb + 0.1 * torch.randn_like(xb)", end="with torch.no_grad(): model(vx)"),
    "sorted and shuffled": program(labels="torch.arange(4).repeat_interleave(50)"),
    "all rows at once": program(labels="torch.arange(4).repeat_interleave(50)").replace(
        "batch_size=20, shuffle=True", "batch_size=len(x)"
    ),
    "a random batch": program(inside="xb, yb = next(iter(loader))"),
    "one batch on purpose": program("xb, yb = next(iter(loader))").replace("for xb, yb in loader", "for i in range(9)"),
    "shifted and masked": TOKENS.format(mask=MASK, target="data[i + 1:i + 17]", loss=ALL),
    "shifted at the loss": TOKENS.format(mask=MASK, target="data[i:i + 16]", loss=CUT),
    "the same tokens without a mask": TOKENS.format(mask="", target="data[i:i + 16]", loss=ALL).replace(
        "tril(", "ones_like("
    ),
    "zero biases": program(
        "for name, p in model.named_parameters():\n    if 'bias' in name:\n        nn.init.zeros_(p)"
    ),
    "a zero head": program("nn.init.zeros_(model.b.weight)"),
    "cleared gradients": program("for p in model.parameters():\n    p.grad = torch.zeros_like(p)\n    p.grad.zero_()"),
    "small": program("nn.init.normal_(model.b.weight, 0.0, 0.02)"),
    "a constant column with a bound": program(change="x[:, 2] = 1.0\nx = (x - x.mean(0)) / (x.std(0) + 1e-6)"),
    "gaps that are filled": program(change="x[7, 2] = float('nan')\nx = torch.nan_to_num(x)"),
    "minus infinity": program(inside="m = torch.rand(20, 3)\n        m[0, 0] = -torch.inf"),
    "where without a gradient": program(
        inside="w = torch.where(xb > 0, torch.log(xb), 0 * xb).sum()", loss="criterion(out, yb) + w"
    ),
    "a root with a bound": program(loss="((out - out.clone()) ** 2).sum(1).add(1e-9).sqrt().mean()"),
    "batch first": LSTM.format(first=", batch_first=True", given="x", last="out[:, -1]"),
    "time first on purpose": LSTM.format(first="", given="x.transpose(0, 1)", last="out[-1]"),
}


def faults_of_script(tree: ast.Module) -> list[Fault]:
    """The faults that only a whole script shows; none of a script that others complete."""
    return script_faults(tree, ast.unparse(tree))[1]


@pytest.mark.parametrize(("cause", "code"), PLANTED.values(), ids=PLANTED)
def test_a_planted_fault_is_named(cause, code):
    assert {each.cause for each in faults_of_script(ast.parse(code))} == {cause}


@pytest.mark.parametrize("code", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_program_is_left_alone(code):
    assert [f"{each.cause}: {each.text}" for each in faults_of_script(ast.parse(code))] == []


def test_a_program_that_is_not_whole_is_not_judged():
    sick = program("model.eval()", "pass")
    assert faults_of_script(ast.parse(sick))
    for more in ("from helpers import *", "import engine\nengine.start(model)", "exec(open('more.py').read())"):
        assert faults_of_script(ast.parse(f"{more}\n{sick}")) == []


def test_an_import_that_never_gets_the_model_leaves_a_program_whole():
    sick = program("model.eval()", "pass")
    assert faults_of_script(ast.parse(f"from helpers import load_rows\nrows = load_rows('a.csv')\n{sick}"))


def test_functions_that_a_program_starts_are_followed():
    assert faults_of_script(ast.parse(LAUNCH + "\nif __name__ == '__main__':\n    main()"))


LISTED = """
def stack(last):
    layers = [nn.Flatten()]
    for one, two in [(8, 16), (16, 16), (16, 16), (16, 16), (16, 8)]:
        layers += [nn.Linear(one, two), nn.GELU()]
    layers += [nn.Linear(8, 3), ENDS[last]]
    return nn.Sequential(*layers)
ENDS = {{"shares": nn.Softmax(dim=-1), "scores": nn.Identity()}}
model = stack("{last}")
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("last", "criterion", "found"),
    [
        ("shares", "nn.CrossEntropyLoss()", ["softmax-before-cross-entropy"]),
        ("scores", "nn.CrossEntropyLoss()", []),
        ("scores", "nn.NLLLoss()", ["probability-loss-on-logits"]),
    ],
)
def test_what_a_growing_list_of_layers_ends_with_is_known(last: str, criterion: str, found: list[str]) -> None:
    data = DATA.format(labels="torch.randint(0, 3, (200,))", change="", criterion=criterion)
    first, inside = "model.train()", "pass"
    loop = LOOP.format(before="", first=first, inside=inside, after="pass", end="pass", loss="criterion(out, yb)")
    text = HEAD + LISTED.format(last=last) + data + loop
    assert [each.cause for each in script_faults(ast.parse(text), text)[1]] == found


JUDGE = """
def halve(i, o):
    return [nn.Conv2d(i, o, 4, 2, 1), nn.LeakyReLU(0.2)]
critic = nn.Sequential(*halve(3, 8), *halve(8, 16), nn.Conv2d(16, 1, 4), {ends}nn.Flatten(0))
opt = torch.optim.Adam(critic.parameters())
criterion = nn.BCELoss()
for real in DataLoader(images, 8):
    opt.zero_grad()
    criterion(critic(real), torch.ones(8)).backward()
    opt.step()
"""


def test_a_flattened_score_is_still_no_probability() -> None:
    for ends, found in (("", ["probability-loss-on-logits"]), ("nn.Sigmoid(), ", [])):
        text = HEAD + JUDGE.format(ends=ends)
        assert [each.cause for each in script_faults(ast.parse(text), text)[1]] == found


TABLE = """
import pandas as pd
table = pd.read_csv("prices.csv").dropna()
y = torch.tensor(table{column}.to_numpy() / 100)
x = torch.randn(500, 8)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(model.parameters())
for xb, yb in DataLoader(TensorDataset(x, y), batch_size=20):
    opt.zero_grad()
    F.mse_loss(model(xb), yb).backward()
    opt.step()
"""


def test_a_column_of_a_table_has_one_dimension() -> None:
    for column, found in (("['close']", ["loss-broadcast"]), ("[['close']]", []), ("[columns]", [])):
        text = HEAD + TABLE.format(column=column)
        assert [each.cause for each in script_faults(ast.parse(text), text)[1]] == found
