"""Training that runs and does not do what it should: each fault is named, its healthy look-alike is left in peace."""

import pytest

from plain_programs import HEALTHY, causes, changed, watch

FAULTS = {
    "no-zero-grad": [("        optimizer.zero_grad()\n", "")],
    "cleared-before-step": [("        loss.backward()\n", "        loss.backward()\n        optimizer.zero_grad()\n")],
    "double-step": [("        optimizer.step()\n", "        optimizer.step()\n        optimizer.step()\n")],
    "params-not-in-optimizer": [("Adam(model.parameters()", "Adam(model[4].parameters()")],
    "softmax-before-cross-entropy": [("out = model(x)", "out = model(x).softmax(1)")],
    "flipped-sign": [("        loss.backward()", "        (-loss).backward()")],
    "lr-zero": [("lr=5e-3", "lr=0.0")],
    "unshuffled": [
        ("Y = (X[:, 0] > 0).long()", "Y = (torch.arange(256) > 95).long()"),
        ("batch_size=16, shuffle=True", "batch_size=16"),
    ],
    "duplicate-rows": [
        ("    for x, y in loader:\n", "    for _ in range(12):\n        x, y = next(iter(loader))\n"),
        ("shuffle=True", "shuffle=False"),
    ],
    "metric-impossible": [("right / 64", "right / 8")],
    "metric-not-reset": [
        ("    total = 0.0\n", ""),
        ("for epoch in range(3):", "total = 0.0\nfor epoch in range(4):"),
    ],
    "splits-scaled-differently": [("TensorDataset(X[192:]", "TensorDataset(X[192:] * 9 + 40")],
    "detached-loss": [
        ("loss = criterion(out, y)", "loss = torch.tensor(criterion(out, y).item(), requires_grad=True)"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("cause", FAULTS)
def test_a_planted_fault_is_the_first_finding(tmp_path, cause):
    seen, _ = watch(tmp_path, changed(HEALTHY, *FAULTS[cause]), examine=False)
    assert seen.program.troubles == []
    assert causes(seen)[:1] == [cause]


MODES = {
    "trained in evaluation mode": [("    model.train()\n", "")],
    "evaluated in training mode": [("    model.eval()\n", "")],
}


@pytest.mark.parametrize("words", MODES)
def test_a_wrong_mode_is_named(tmp_path, words):
    seen, _ = watch(tmp_path, changed(HEALTHY, *MODES[words]), examine=False)
    assert causes(seen) == ["wrong-mode"]
    assert words in seen.findings[0].finding.evidence[0]
    assert words.split()[-2] in seen.findings[0].finding.title
    assert "BatchNorm" in seen.findings[0].finding.evidence[1]


def test_a_schedule_that_is_stepped_at_every_batch_is_named(tmp_path):
    text = changed(
        HEALTHY,
        ("criterion = nn", "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)\ncriterion = nn"),
        ("        total += loss.item()\n", "        total += loss.item()\n        schedule.step()\n"),
    )
    seen, _ = watch(tmp_path, text, examine=False)
    assert causes(seen) == ["lr-schedule-bug"]


LOOKALIKES = {
    "zero_grad after step": [
        ("        optimizer.zero_grad()\n", ""),
        ("        optimizer.step()\n", "        optimizer.step()\n        optimizer.zero_grad()\n"),
    ],
    "gradients set to None": [("optimizer.zero_grad()", "[setattr(p, 'grad', None) for p in model.parameters()]")],
    "a schedule stepped each epoch": [
        ("criterion = nn", "schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)\ncriterion = nn"),
        ("    model.eval()\n", "    schedule.step()\n    model.eval()\n"),
    ],
    "one order for both": [("loader = Data", "order = torch.randperm(256)\nX, Y = X[order], Y[order]\nloader = Data")],
    "percent": [("right / 64", "100 * right / 64")],
    "a sum of one epoch": [("total / len(loader)", "total")],
    "random labels": [("Y = (X[:, 0] > 0).long()", "Y = torch.randint(0, 2, (256,))")],
    "a frozen first layer": [("criterion = nn", "model[0].requires_grad_(False)\ncriterion = nn")],
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_a_healthy_look_alike_is_left_in_peace(tmp_path, name):
    seen, _ = watch(tmp_path, changed(HEALTHY, *LOOKALIKES[name]))
    assert causes(seen) == []
