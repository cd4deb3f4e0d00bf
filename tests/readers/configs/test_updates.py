"""Each fault of a script's updates in several forms, and beside it the healthy programs that only resemble it."""

import ast
import textwrap

import pytest

from stayfinite.readers.configs.judges import script_faults

HEAD = """
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        return self.head(torch.relu(self.body(x)))

loader = DataLoader(data, batch_size=8)
criterion = nn.CrossEntropyLoss()
"""
PLAIN = """
model = {model}
{before}
optimizer = torch.optim.{optimizer}
{middle}
for epoch in range({epochs}):
    {each_epoch}
    for i, (x, y) in enumerate(loader):
        {clear}
        {forward}
        {backward}
        {step}
        {after}
    {late}
"""


def plain(
    model: str = "Net()", before: str = "", optimizer: str = "SGD(model.parameters(), lr=0.1)", middle: str = "",
    epochs: str = "9", each_epoch: str = "pass", clear: str = "optimizer.zero_grad()",
    forward: str = "loss = criterion(model(x), y)", backward: str = "loss.backward()", step: str = "optimizer.step()",
    after: str = "", late: str = "pass",
) -> str:  # fmt: skip
    return HEAD + PLAIN.format(
        model=model, before=before, optimizer=optimizer, middle=middle, epochs=epochs, each_epoch=each_epoch,
        clear=clear, forward=forward, backward=backward, step=step, after=after, late=late,
    )  # fmt: skip


def causes(text: str) -> list[str]:
    return [each.cause for each in script_faults(ast.parse(text), text)[0]]


TRAINER = """
class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        {then}
    def train_step(self, x, y):
        {clear}
        loss = criterion(self.model(x), y)
        loss.backward()
        {step}
        return loss.item()
    def fit(self):
        for epoch in range(5):
            {first}
            losses = [self.train_step(x, y) for x, y in loader]
Trainer(Net()).fit()
"""


def trainer(then: str = "pass", clear: str = "self.optimizer.zero_grad()", step: str = "self.optimizer.step()",
            first: str = "pass") -> str:  # fmt: skip
    return HEAD + TRAINER.format(then=then, clear=clear, step=step, first=first)


GAN = """
G, D = Net(), Net()
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4)
opt_g = torch.optim.Adam({held}.parameters(), lr=2e-4)
for epoch in range(5):
    for x, y in loader:
        fake = G(x)
        opt_d.zero_grad()
        loss_d = criterion(D(x), y) + criterion(D(fake.detach()), y)
        loss_d.backward()
        opt_d.step()
        {clear}
        loss_g = criterion(D(fake), y)
        loss_g.backward()
        {step}
"""


def gan(held: str = "G", clear: str = "opt_g.zero_grad()", step: str = "opt_g.step()") -> str:
    return HEAD + GAN.format(held=held, clear=clear, step=step)


SCHEDULE = "scheduler = torch.optim.lr_scheduler."

BY_HAND = """
import torch
w = torch.zeros(3, requires_grad=True)
for i in range(9):
    loss = (w * x).sum()
    {backward}
    {update}
"""


def by_hand(update: str, backward: str = "loss.backward()") -> str:
    return BY_HAND.format(backward=backward, update=update)


LIGHTNING = """
import lightning as L
import torch
class M(L.LightningModule):
    def training_step(self, batch, i):
        return self.loss(batch)
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)
"""

PLANTED = [
    # backward or step is never called
    (plain(backward="loss.backward"), "step-missing"),
    (plain(backward="pass"), "step-missing"),
    (plain(step="optimizer.step"), "step-missing"),
    (plain(step="pass"), "step-missing"),
    (trainer(step="pass"), "step-missing"),
    (gan(step="pass"), "step-missing"),
    # zero_grad is never called, once, or in the first round alone
    (plain(clear="pass"), "no-zero-grad"),
    (plain(clear="optimizer.zero_grad"), "no-zero-grad"),
    (plain(clear="pass", middle="optimizer.zero_grad()"), "no-zero-grad"),
    (plain(clear="pass", each_epoch="optimizer.zero_grad()"), "no-zero-grad"),
    (plain(clear="if epoch == 0: optimizer.zero_grad()"), "no-zero-grad"),
    (trainer(clear="pass"), "no-zero-grad"),
    (trainer(clear="pass", first="self.optimizer.zero_grad()"), "no-zero-grad"),
    (by_hand("with torch.no_grad(): w -= 0.1 * w.grad"), "no-zero-grad"),
    (by_hand("w.data.sub_(0.1 * w.grad)"), "no-zero-grad"),
    # in the wrong order
    (plain(clear="pass", backward="loss.backward(); optimizer.zero_grad()"), "cleared-before-step"),
    (plain(clear="pass", backward="loss.backward(); model.zero_grad()"), "cleared-before-step"),
    (plain(clear="optimizer.step()", step="optimizer.zero_grad()"), "cleared-before-step"),
    (plain(step="optimizer.step(); optimizer.step()"), "double-step"),
    (trainer(step="self.optimizer.step(); self.optimizer.step()"), "double-step"),
    # accumulated
    (plain(clear="pass", before="accumulation = 4", step="if (i + 1) % accumulation == 0:\n            "
           "optimizer.step(); optimizer.zero_grad()"), "accumulation-unscaled"),
    # schedules
    (plain(middle=SCHEDULE + "StepLR(optimizer, step_size=3, gamma=0.1)", after="scheduler.step()"), "lr-schedule-bug"),
    (plain(middle=SCHEDULE + "ExponentialLR(optimizer, gamma=0.9)", after="scheduler.step()"), "lr-schedule-bug"),
    (plain(middle=SCHEDULE + "MultiStepLR(optimizer, milestones=[3, 6])", after="scheduler.step()"), "lr-schedule-bug"),
    (plain(before="epochs = 9", epochs="epochs", middle=SCHEDULE + "CosineAnnealingLR(optimizer, T_max=epochs)",
           after="scheduler.step()"), "lr-schedule-bug"),
    (plain(middle=SCHEDULE + "OneCycleLR(optimizer, 0.1, steps_per_epoch=len(loader), epochs=9)",
           late="scheduler.step()"), "lr-schedule-bug"),
    (plain(before="steps = 9 * len(loader)", middle=SCHEDULE + "CosineAnnealingLR(optimizer, steps)",
           late="scheduler.step()"), "lr-schedule-bug"),
    # rates
    (plain(optimizer="Adam(model.parameters(), lr=0.0)"), "lr-zero"),
    (plain(optimizer="Adam(model.parameters(), lr=1e-10)"), "lr-too-low"),
    # what the optimizer holds
    (plain(middle="model = Net()"), "params-not-in-optimizer"),
    (plain(middle="model = copy.deepcopy(model)"), "params-not-in-optimizer"),
    (trainer(then="self.model = copy.deepcopy(model)"), "params-not-in-optimizer"),
    (plain(optimizer="Adam(model.head.parameters(), lr=0.1)"), "params-not-in-optimizer"),
    (plain(before="encoder = nn.Linear(8, 8)", forward="loss = criterion(model(encoder(x)), y)"),
     "params-not-in-optimizer"),
    (gan(held="D"), "params-not-in-optimizer"),
    (plain(before="for p in model.parameters():\n    p.requires_grad = False"), "params-frozen"),
    (plain(before="model.requires_grad_(False)"), "params-frozen"),
    (HEAD.replace("self.body = nn.Linear(8, 8)", "self.layers = [nn.Linear(8, 8) for _ in range(3)]").replace(
        "torch.relu(self.body(x))", "self.layers[0](x)") + plain()[len(HEAD):], "unregistered-module"),
    (HEAD.replace("self.body = nn.Linear(8, 8)", "self.blocks = [Block() for _ in range(3)]").replace(
        "torch.relu(self.body(x))", "self.blocks[0](x)").replace("class Net", "class Block(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(8, 8)\n"
        "    def forward(self, x):\n        return self.fc(x)\nclass Net") +
     plain()[len(HEAD):], "unregistered-module"),
    # losses without a graph
    (plain(forward="loss = criterion(model(x).data, y).requires_grad_()"), "detached-loss"),
    (plain(forward="loss = torch.tensor(criterion(model(x), y).item(), requires_grad=True)"), "detached-loss"),
    (plain(forward="with torch.no_grad(): out = model(x)\n        loss = criterion(out, y).requires_grad_()"),
     "detached-loss"),
    (plain(forward="loss = (model(x).argmax(1).float() - y).abs().mean().requires_grad_()"), "detached-loss"),
    (plain(forward="loss = criterion(torch.from_numpy(model(x).detach().numpy()), y)"), "detached-loss"),
    (plain(before="encoder = nn.Linear(8, 8)", forward="loss = criterion(model(encoder(x).detach()), y)",
           optimizer="SGD(list(model.parameters()) + list(encoder.parameters()), lr=0.1)"), "detached-loss"),
    (plain().replace("torch.relu(self.body(x))", "self.body(x).detach()"), "detached-loss"),
    # reached in a roundabout way
    (plain(clear="for word in y:\n            if word: break\n        else: pass", step="optimizer.step()"),
     "no-zero-grad"),
    (plain(step="for word in y:\n            if word: break\n        else:\n            optimizer.step()\n"
           "            optimizer.step()"), "double-step"),
    (plain(before="layers = [nn.Linear(8, 8)]\nlayers += [nn.ReLU(), nn.Linear(8, 8)]\nmodel = nn.Sequential(*layers)",
           forward="loss = criterion(model(x), y).detach().requires_grad_()"), "detached-loss"),
    (plain(before="nn.init.xavier_uniform_(model.body.weight)\nmodel.body.bias.data.zero_()",
           optimizer="Adam(model.head.parameters(), lr=0.1)"), "params-not-in-optimizer"),
    (plain(before="for p in model.parameters():\n    p.data.uniform_(-0.1, 0.1)", clear="pass"), "no-zero-grad"),
    (plain(before="layers = [nn.Linear(8, 8) for _ in range(3)]", optimizer="SGD(layers[0].parameters(), lr=0.1)",
           forward="for layer in layers: x = layer(x)\n        loss = criterion(x, y)"), "params-not-in-optimizer"),
    (plain(middle="args.schedule = " + SCHEDULE[12:] + "StepLR(optimizer, step_size=3)",
           after="args.schedule.step()").replace("import copy", "import argparse\nargs = argparse.Namespace()"),
     "lr-schedule-bug"),
    (plain(forward="def ask():\n            global loss\n            loss = criterion(model(x), y).detach()\n"
           "        loss = 0\n        ask()\n        loss.requires_grad_()"), "detached-loss"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "cause"), PLANTED)
def test_a_fault_of_the_updates_is_named(text: str, cause: str) -> None:
    assert causes(text) == [cause]


HEALTHY = [
    plain(),
    trainer(),
    gan(),
    gan(clear="G.zero_grad()"),
    # cleared, stepped and learned elsewhere or in another way
    plain(clear="for p in model.parameters(): p.grad = None"),
    plain(clear="model.zero_grad(set_to_none=True)"),
    plain(clear="pass", step="optimizer.step(); optimizer.zero_grad()"),
    plain(before="from engine import train_one", clear="train_one(model, optimizer, x, y)", forward="pass",
          backward="pass", step="pass"),
    plain(optimizer="LBFGS(model.parameters(), lr=1)", clear="def closure():\n            optimizer.zero_grad()\n"
          "            loss = criterion(model(x), y)\n            loss.backward()\n            return loss",
          forward="pass", backward="pass", step="optimizer.step(closure)"),
    plain(before="scaler = torch.amp.GradScaler()", backward="scaler.scale(loss).backward()",
          step="scaler.step(optimizer); scaler.update()"),
    plain(clear="pass", each_epoch="optimizer.zero_grad()", step="pass", late="optimizer.step()"),
    plain(clear="if i % 4 == 0: optimizer.zero_grad()", step="if i % 4 == 3: optimizer.step()",
          forward="loss = criterion(model(x), y) / 4"),
    plain(clear="pass", before="accumulation = 4", forward="loss = criterion(model(x), y) / accumulation",
          step="if (i + 1) % accumulation == 0:\n            optimizer.step(); optimizer.zero_grad()"),
    by_hand("with torch.no_grad(): w -= 0.1 * w.grad; w.grad.zero_()"),
    by_hand("with torch.no_grad(): w -= 0.1 * g", "(g,) = torch.autograd.grad(loss, w)"),
    # two steps on purpose
    gan(step="opt_g.step(); opt_d.step()"),
    plain(step="optimizer.step() if i else optimizer.step()"),
    # schedules in the right unit
    plain(middle=SCHEDULE + "StepLR(optimizer, step_size=3, gamma=0.1)", late="scheduler.step()"),
    plain(middle=SCHEDULE + "StepLR(optimizer, step_size=1000, gamma=0.5)", after="scheduler.step()"),
    plain(middle=SCHEDULE + "ExponentialLR(optimizer, gamma=0.9999)", after="scheduler.step()"),
    plain(middle=SCHEDULE + "CosineAnnealingLR(optimizer, T_max=9 * len(loader))", after="scheduler.step()"),
    plain(middle=SCHEDULE + "OneCycleLR(optimizer, 0.1, steps_per_epoch=len(loader), epochs=9)",
          after="scheduler.step()"),
    plain(middle=SCHEDULE + "CosineAnnealingWarmRestarts(optimizer, 9)", after="scheduler.step(epoch + i / 10)"),
    plain(middle=SCHEDULE + "LambdaLR(optimizer, lambda step: min(1, step / 100))", after="scheduler.step()"),
    plain(optimizer="SGD(model.parameters(), lr=0.0)", middle=SCHEDULE + "OneCycleLR(optimizer, 0.1, total_steps=99)",
          after="scheduler.step()"),
    # what the optimizer holds, on purpose
    plain(middle="model = model.to('cuda')"),
    plain(middle="model = nn.DataParallel(model)"),
    plain(middle="ema = copy.deepcopy(model)",
          after="for e, p in zip(ema.parameters(), model.parameters()): e.data.lerp_(p, 0.1)"),
    plain(before="model.load_state_dict(torch.load('w.pt'))", optimizer="Adam(model.head.parameters(), lr=0.1)"),
    plain(before="for p in model.body.parameters(): p.requires_grad = False",
          optimizer="Adam(model.head.parameters(), lr=0.1)"),
    plain(before="for p in model.parameters(): p.requires_grad = False\nmodel.head = nn.Linear(8, 2)"),
    plain(before="for p in model.parameters(): p.requires_grad = False\nfor p in model.head.parameters(): "
          "p.requires_grad = True"),
    plain(before="model.requires_grad_(False)\nmodel.head.requires_grad_(True)"),
    plain(optimizer="Adam([{'params': model.body.parameters()}, {'params': model.head.parameters(), 'lr': 1.0}])"),
    plain(before="teacher = Net().eval()", forward="with torch.no_grad(): t = teacher(x)\n"
          "        loss = criterion(model(x), t)"),
    plain(before="target = Net()", forward="loss = criterion(model(x), target(x))"),
    plain(before="image = torch.zeros(3, requires_grad=True)", optimizer="Adam([image], lr=0.1)",
          forward="loss = criterion(model(image), y)"),
    plain(middle="other = torch.optim.Adam(model.body.parameters(), lr=0.1)",
          optimizer="Adam(model.head.parameters(), lr=0.1)", clear="optimizer.zero_grad(); other.zero_grad()",
          step="optimizer.step(); other.step()"),
    HEAD.replace("self.body = nn.Linear(8, 8)", "layers = [nn.Linear(8, 8) for _ in range(3)]\n"
                 "        self.body = nn.Sequential(*layers)") + plain()[len(HEAD):],
    HEAD.replace("self.body = nn.Linear(8, 8)", "self.body = nn.Linear(8, 8)\n"
                 "        self.layers = [self.body, nn.ReLU()]") + plain()[len(HEAD):],
    HEAD.replace("self.body = nn.Linear(8, 8)", "self.layers = [nn.Linear(8, 8)]\n        self.body = "
                 "nn.ModuleList(self.layers)[0]") + plain()[len(HEAD):],
    # cut off on purpose
    plain(before="encoder = nn.Linear(8, 8)", forward="loss = criterion(model(encoder(x).detach()), y)"),
    plain(forward="out = model(x)\n        loss = criterion(out, y) + (out.detach() - out).pow(2).mean()"),
    plain(after="print(loss.item(), loss.detach().cpu().numpy())"),
    plain(forward="z = model.body(x)\n        z = z + (z.round() - z).detach()\n"
          "        loss = criterion(model.head(z), y)"),
    plain(late="with torch.no_grad(): print(criterion(model(x), y))"),
    # what other code makes or clears
    plain(before="from mine import Adam", clear="pass", backward="optimizer.zero_grad(); loss.backward()").replace(
        "torch.optim.SGD", "Adam"),
    plain(clear="pass", after="for p in model.parameters():\n            p.grad.zero_()"),
    # trained again from the start, each time with another optimizer
    HEAD + "for run in range(3):\n" + textwrap.indent(plain()[len(HEAD):], "    "),
    # what depends on a draw keeps its graph
    plain(forward="dist = torch.distributions.Categorical(logits=model(x))\n        loss = -dist.log_prob(y).mean()"),
    # layers that are called one after the other
    HEAD.replace("nn.Linear(8, 8)", "nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])").replace(
        "return self.head(torch.relu(self.body(x)))", "for layer in self.body:\n            x = torch.relu(layer(x))\n"
        "        return self.head(x)") + plain()[len(HEAD):],
    # one of two imports
    plain(before="try:\n    from torch.optim import SGD\nexcept ImportError:\n    SGD = None").replace(
        "torch.optim.SGD", "SGD"),
    # rows of a part of the data
    plain().replace("DataLoader(data,", "DataLoader(torch.utils.data.random_split(dataset=data, lengths=[9, 1])[0],"),
    # a framework does it
    LIGHTNING,
]  # fmt: skip


@pytest.mark.parametrize("text", HEALTHY)
def test_a_program_that_only_resembles_a_fault_is_left_in_peace(text: str) -> None:
    assert causes(text) == []


ONE_EPOCH = """
def run_epoch(model, optimizer=None):
    for x, y in loader:
        loss = criterion(model(x), y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
for epoch in range(5):
    run_epoch(model, optimizer)
    with torch.no_grad():
        run_epoch(model)
"""


def test_a_function_that_trains_with_an_optimizer_and_tests_without_one_is_left_in_peace() -> None:
    assert causes(HEAD + ONE_EPOCH) == []


def test_a_fault_says_what_is_wrong_in_the_words_of_the_script() -> None:
    (fault,) = script_faults(ast.parse(text := plain(optimizer="Adam(model.head.parameters(), lr=0.1)")), text)[0]
    assert fault.text == "no optimizer holds model.body: these weights are never trained"
    (fault,) = script_faults(ast.parse(text := plain(clear="pass", each_epoch="optimizer.zero_grad()")), text)[0]
    assert fault.text == "optimizer.zero_grad() is called once for each epoch, and step() in each batch"


ABSURD = [
    "x = " + "(" * 60 + "1" + ")" * 60,
    "def f(): return f()\noptim = f()\nloss.backward()",
    "optim = 1\nloss.backward()\n" + "a.b = a\nfor a in a: a = [a for a in a]\n" * 50,
    "import torch\noptim = torch.x" + ".y()" * 400 + "\nloss.backward()",
]


@pytest.mark.parametrize("text", ABSURD)
def test_absurd_scripts_come_to_an_end(text: str) -> None:
    assert causes(text) == []


STACKED = """
def build(*sizes):
    layers = []
    for one, two in zip(sizes, sizes[1:]):
        layers += [nn.Linear(one, two), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
online = build(4, 32, 2)
{slow}
slow.requires_grad_(False)
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
for state, reward in loader:
    optimizer.zero_grad()
    loss = (online(state) - reward - slow(state)).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


def test_freezing_a_copy_of_a_spread_list_leaves_the_model_itself_alone() -> None:
    assert causes(HEAD + STACKED.format(slow="slow = copy.deepcopy(online)")) == []
    assert causes(HEAD + STACKED.format(slow="slow = online")) == ["params-frozen"]


GRAPH = """
from torch_geometric.nn import {layer}
class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = {steps}
        self.out = nn.Linear(8, 2)
    def forward(self, x, edges):
        for step in self.steps:
            x = step(x, edges)
        return self.out(x)
net = Graph()
optimizer = torch.optim.Adam(net.parameters())
for x, y in loader:
    optimizer.zero_grad()
    criterion(net(x, edges), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("layer", "steps", "found"),
    [
        ("SAGEConv", "[SAGEConv(8, 8) for _ in range(2)]", ["unregistered-module"]),
        ("SAGEConv", "nn.ModuleList([SAGEConv(8, 8) for _ in range(2)])", []),
        ("LGConv", "[LGConv() for _ in range(2)]", []),
    ],
)
def test_graph_layers_with_weights_do_not_belong_into_a_plain_list(layer: str, steps: str, found: list[str]) -> None:
    assert causes(HEAD + GRAPH.format(layer=layer, steps=steps)) == found


AGENT = """
class Agent:
    def __init__(self):
        self.net = nn.Linear(4, 2)
        self.net_target = {target}
        self.optimizer = torch.optim.Adam(self.net.parameters())
    def update(self, s, r):
        with torch.no_grad():
            goal = r + self.net_target(s).max(1).values
        loss = (self.net(s).max(1).values - goal).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
    def sync(self):
        {sync}
agent = Agent()
for s, r in loader:
    agent.update(s, r)
    agent.sync()
"""
SYNC = "self.net_target.load_state_dict(self.net.state_dict())"


@pytest.mark.parametrize(
    ("target", "sync", "found"),
    [
        ("self.net", SYNC, ["target-out-of-step"]),
        ("copy.deepcopy(self.net)", SYNC, []),
        ("nn.Linear(4, 2)", SYNC, []),
        ("self.net", "self.net.load_state_dict(self.net.state_dict())", []),
    ],
)
def test_a_target_that_is_the_network_itself_never_lags_behind(target: str, sync: str, found: list[str]) -> None:
    assert causes(HEAD + AGENT.format(target=target, sync=sync)) == found


PREFERENCES = """
def main():
    model = Net()
    {reference} = {other}
    optimizer = torch.optim.Adam(model.parameters())
    for x, y in loader:
        one = model(x).log_softmax(-1)
        with torch.no_grad():
            two = {reference}({given}).log_softmax(-1)
        loss = -(one - two).gather(1, y).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
main()
"""


@pytest.mark.parametrize(
    ("reference", "other", "given", "found"),
    [
        ("ref_model", "model", "x", ["target-out-of-step"]),
        ("ref_model", "copy.deepcopy(model)", "x", []),
        ("ref_model", "Net()", "x", []),
        ("ref_model", "model", "x + torch.randn(8)", []),
        ("same", "model", "x", []),
    ],
)
def test_a_reference_is_a_model_of_its_own(reference: str, other: str, given: str, found: list[str]) -> None:
    text = HEAD + PREFERENCES.format(reference=reference, other=other, given=given)
    assert causes(text) == found


DECAYED = """
import torchvision
class Task:
    def __init__(self):
        self.net = torchvision.models.resnet18(weights="DEFAULT")
        {first}
        {second}
    def make_optimizer(self):
        some, others = [], []
        for name, weight in self.net.named_parameters():
            (some if weight.ndim > 1 else others).append(weight)
        return torch.optim.AdamW([{{"params": some}}, {{"params": others, "weight_decay": 0.0}}])
    def replace(self):
        self.net.fc = nn.Linear(512, 7)
    def fit(self):
        for x, y in loader:
            self.optimizer.zero_grad()
            criterion(self.net(x), y).backward()
            self.optimizer.step()
Task().fit()
"""


def test_a_head_made_after_an_optimizer_whose_groups_a_loop_fills_is_never_trained() -> None:
    steps = "self.optimizer = self.make_optimizer()", "self.replace()"
    assert causes(HEAD + DECAYED.format(first=steps[0], second=steps[1])) == ["params-not-in-optimizer"]
    assert causes(HEAD + DECAYED.format(first=steps[1], second=steps[0])) == []
