"""Copies that should follow, metrics that should move, answers that should differ; each beside one that is right."""

import pytest

from plain_programs import causes, changed, watch

AVERAGED = """
import copy, torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
ema_model = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    x = torch.randn(32, 6)
    loss = nn.functional.mse_loss(model(x), x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), ema_model.parameters()):
            theirs.lerp_(mine, 0.1)
        if step % 10 == 9:
            print(step, float((ema_model(x) - x[:, :1]).square().mean()))
"""


def test_an_average_that_is_bound_to_a_local_name_is_found(tmp_path):
    text = changed(AVERAGED, ("theirs.lerp_(mine, 0.1)", "theirs = theirs.lerp(mine, 0.1)"))
    seen, _ = watch(tmp_path, text)
    assert causes(seen) == ["target-out-of-step"]
    assert seen.findings[0].finding.where == "ema_model"


TIED = """
import torch, torch.nn as nn
torch.manual_seed(0)
class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(12, 16), nn.Linear(16, 12, bias=False)
        self.head.weight = self.emb.weight
    def forward(self, ids):
        return self.head(torch.tanh(self.emb(ids)))
model = Tiny()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    ids = torch.randint(0, 12, (16,))
    loss = nn.functional.cross_entropy(model(ids), (ids + 1) % 12)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


CLASSES = """
import torch, torch.nn as nn
torch.manual_seed(0)
centers = 2 * torch.randn(4, 8)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(8):
    for step in range(10):
        y = torch.randint(0, 4, (32,))
        x = centers[y] + torch.randn(32, 8)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        hits = model(x).argmax(1)
        print(f"epoch {epoch} loss {loss.item():.3f} val_acc: {(hits == y).float().mean().item():.4f}")
"""


FLIPPED = """
import random, torch, torch.nn as nn
from torch.utils.data import DataLoader, Dataset
random.seed(0); torch.manual_seed(0)
class Discs(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        mask = torch.zeros(1, 8, 8)
        mask[0, 2:5, 0:3] = 1.0
        image = mask + 0.1 * torch.randn(1, 8, 8, generator=g)
        if random.random() < 0.5:
            image, mask = image.flip(-1), mask.flip(-1)
        return image * random.uniform(0.8, 1.2), mask
model = nn.Conv2d(1, 1, 3, padding=1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(4):
    for image, mask in DataLoader(Discs(), batch_size=16, shuffle=True):
        loss = nn.functional.binary_cross_entropy_with_logits(model(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_flip_of_both_is_fine_and_of_the_image_alone_is_found(tmp_path):
    assert causes(watch(tmp_path, FLIPPED)[0]) == []
    text = changed(FLIPPED, ("image, mask = image.flip(-1), mask.flip(-1)", "image = image.flip(-1)"))
    seen = watch(tmp_path, text)[0]
    assert causes(seen) == ["labels-not-augmented"]
    line = 1 + text.splitlines().index("            image = image.flip(-1)")
    assert seen.findings[0].place[1] == line
    assert seen.findings[0].finding.evidence[0] == f"train.py:{line}: image = image.flip(-1)"


def test_a_flip_in_somebody_else_s_function_is_found_at_the_head_of_getitem(tmp_path):
    text = changed(
        FLIPPED,
        ("image, mask = image.flip(-1), mask.flip(-1)", "image = mirrored(image)"),
        ("model = nn.Conv2d", "def mirrored(image):\n    return image.flip(-1)\n\nmodel = nn.Conv2d"),
    )
    seen = watch(tmp_path, text)[0]
    assert causes(seen) == ["labels-not-augmented"]
    assert text.splitlines()[seen.findings[0].place[1] - 1] == "    def __getitem__(self, i):"


WARMING = """
import torch, torch.nn as nn
torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 30))
for epoch in range(8):
    for step in range(20):
        x = torch.randn(16, 8)
        loss = nn.functional.mse_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
"""


BANDIT = """
import torch, torch.nn as nn
from torch.distributions import Categorical
torch.manual_seed(0)
policy = nn.Linear(3, 4)
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-2)
rewards = []
for step in range(200):
    context = torch.eye(3)[torch.randint(0, 3, (64,))]
    choice = Categorical(logits=policy(context))
    action = choice.sample()
    reward = (action == context.argmax(1)).float()
    loss = -(choice.log_prob(action) * (reward - 0.2)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rewards.append(reward.mean().item())
    if step % 20 == 19:
        print(f"step {step} mean reward {sum(rewards[-20:]) / 20:.3f}")
"""


KEPT = """
import torch, torch.nn as nn
torch.manual_seed(0)
policy = nn.Linear(3, 1)
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-2)
def finish(saved, returns):
    loss = (saved * returns).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for step in range(20):
    saved = policy(torch.randn(8, 3)).squeeze(1)
    finish(saved, torch.full((8,), float("nan") if step == 9 else 1.0))
"""


def test_the_program_s_own_graph_is_walked_by_the_program_alone(tmp_path):
    seen, _ = watch(tmp_path, KEPT)
    assert seen.program.bad is not None
    assert (seen.program.bad.step, seen.program.backwards) == (9, 20)


def test_a_copy_that_a_plain_object_holds_is_found(tmp_path):
    held = "class Holder: pass\nema = Holder()\nema.module = copy.deepcopy(model).requires_grad_(False)"
    text = changed(
        AVERAGED,
        ("ema_model = copy.deepcopy(model).requires_grad_(False)", held),
        ("theirs.lerp_(mine, 0.1)", "theirs = theirs.lerp(mine, 0.1)"),
    ).replace("ema_model", "ema.module")
    seen, _ = watch(tmp_path, text)
    assert causes(seen) == ["target-out-of-step"]
    assert seen.findings[0].finding.where == "ema.module"


ROWS = """
import torch, torch.nn as nn
torch.manual_seed(0)
centers = 2 * torch.randn(4, 8)
Y = torch.randint(0, 4, (256,))
X = centers[Y] + torch.randn(256, 8)
encoder, head = nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 4)
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-2)
for epoch in range(8):
    order = torch.randperm(256)
    x, y = X[order], Y[order]
    for i in range(0, 256, 32):
        loss = nn.functional.cross_entropy(head(encoder(x[i:i + 32])), y[i:i + 32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_an_encoder_whose_output_is_cut_off_is_found(tmp_path):
    seen, _ = watch(tmp_path, changed(ROWS, ("encoder(x[i:i + 32])", "encoder(x[i:i + 32]).data")))
    assert causes(seen)[:1] == ["detached-loss"]
    assert seen.findings[0].finding.where == "encoder"


def test_a_loss_that_falls_without_end_is_found(tmp_path):
    grows = "cross_entropy(head(encoder(x[i:i + 32])), y[i:i + 32])"
    text = changed(
        ROWS,
        (grows, f"{grows} - head(encoder(x[i:i + 32])).pow(2).sum()"),
        ("lr=1e-2", "lr=5e-2"),
        ("range(8)", "range(30)"),
    )
    assert "flipped-sign" in causes(watch(tmp_path, text)[0])


FINE = {
    "an average that follows": AVERAGED,
    "a reference that stays by design": changed(
        AVERAGED, ("theirs.lerp_(mine, 0.1)", "pass"), ("ema_model", "ref_model")
    ),
    "tied weights": TIED,
    "an accuracy that moves": CLASSES,
    "one that moves, of two negations": changed(CLASSES, ("(hits == y)", "(hits == y).logical_not().logical_not()")),
    "one that is perfect": changed(CLASSES, ("(hits == y)", "(hits >= 0)")),
    "a warm-up": WARMING,
    "a reward that rises": BANDIT,
    "rows that keep their labels": ROWS,
}


@pytest.mark.parametrize("text", FINE.values(), ids=FINE)
def test_what_is_right_is_fine(tmp_path, text):
    assert causes(watch(tmp_path, text)[0]) == []


FROZEN = "for p in encoder.parameters():\n    p.requires_grad = False\nhead = nn.Linear(32, 4)\nfor epoch"
FOUND = {
    "a copy in the optimizer": ("target-out-of-step", AVERAGED, [
        (".requires_grad_(False)", ""), ("theirs.lerp_(mine, 0.1)", "pass"),
        ("Adam(model.parameters()", "Adam([*model.parameters(), *ema_model.parameters()]"),
        ("mse_loss(model(x), x[:, :1])",
         "mse_loss(model(x), x[:, :1]) + 0.1 * (model(x) - ema_model(x)).pow(2).mean()"),
    ]),
    "copied weights that should be tied": ("weights-untied", TIED, [
        ("self.head.weight = self.emb.weight", "self.head.weight.data.copy_(self.emb.weight.data)"),
    ]),
    "an accuracy that compares scores with classes": ("metric-stuck", CLASSES, [
        ("hits = model(x).argmax(1)", "hits = model(x).max(1).values"),
    ]),
    "weights of one number": ("bad-init", CLASSES, [
        ("optimizer =", "for p in model.parameters():\n    nn.init.zeros_(p)\noptimizer ="),
    ]),
    "units that are dead from the start": ("dead-units", CLASSES, [
        ("optimizer =", "nn.init.constant_(model[0].bias, -50.0)\noptimizer ="),
    ]),
    "a rate that kills the units": ("lr-too-high", CLASSES, [
        ("lr=1e-2", "lr=3.0"), ("2 * torch.randn(4, 8)", "torch.randn(4, 8)"),
    ]),
    "a rate at which the loss stands still": ("lr-too-low", CLASSES, [("lr=1e-2", "lr=1e-6")]),
    "a warm-up that never ends": ("lr-schedule-bug", WARMING, [
        ("        schedule.step()\n", "    schedule.step()\n"),
    ]),
    "a reward that falls": ("flipped-sign", BANDIT, [("loss = -(", "loss = (")]),
    "rows with other labels": ("labels-shuffled", ROWS, [("X[order], Y[order]", "X[order], Y")]),
    "a head that was replaced beside a frozen body": ("params-not-in-optimizer", ROWS, [("for epoch", FROZEN)]),
}  # fmt: skip
WITH_ITS_EFFECTS = ("bad-init", "dead-units", "params-not-in-optimizer")
"""What these bring about is told as well."""


@pytest.mark.parametrize(("cause", "text", "edits"), FOUND.values(), ids=FOUND)
def test_what_is_wrong_is_found(tmp_path, cause, text, edits):
    found = causes(watch(tmp_path, changed(text, *edits))[0])
    assert found[0] == cause
    assert found == [cause] or cause in WITH_ITS_EFFECTS
