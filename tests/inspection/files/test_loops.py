"""Training loops are judged by their syntax tree; beside each fault stands a program that only resembles it."""

from pathlib import Path

import pytest

from stayfinite.inspection.files.inspecting import inspect_files


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(text: str, here: Path) -> list[tuple[str, str, str]]:
    """Severity, cause and place of every finding."""
    (here / "train.py").write_text(text)
    return [(each.severity, each.cause, each.where) for each in inspect_files(["train.py"]).findings]


ADVERSARIAL = """
import torch
def train(generator, critic, loader):
    optim_g = torch.optim.{optimizer}(generator.parameters(), lr=2e-4)
    optim_d = torch.optim.{optimizer}(critic.parameters(), lr=2e-4)
    for x in loader:
        fake = generator(x)
        optim_d.zero_grad()
        loss_d = critic_loss(critic(x), critic(fake.detach()))
        loss_d.backward()
        optim_d.step()
        {clear}
        loss_g = generator_loss(critic(fake))
        loss_g.backward()
        optim_g.step()
"""


def test_an_optimizer_that_is_never_cleared_beside_another_is_named(here: Path) -> None:
    text = ADVERSARIAL.format(optimizer="SGD", clear="")
    assert said(text, here) == [("error", "no-zero-grad", "train.py:15")]
    assert said(text.replace("SGD", "AdamW"), here) == [("warning", "no-zero-grad", "train.py:15")]


def test_a_model_that_is_cleared_clears_its_own_optimizer_alone(here: Path) -> None:
    text = ADVERSARIAL.format(optimizer="SGD", clear="generator.zero_grad()")
    assert said(text.replace("        optim_d.zero_grad()\n", ""), here) == [("error", "no-zero-grad", "train.py:10")]
    assert said(text.replace("optim_d.zero_grad()", "critic.zero_grad()"), here) == []
    assert (
        said(text.replace("optim_d.zero_grad()", "both.zero_grad()").replace("generator.zero", "all.zero"), here) == []
    )


@pytest.mark.parametrize(
    "clear", ["optim_g.zero_grad()", "generator.zero_grad()", "for p in generator.parameters(): p.grad = None"]
)
def test_an_optimizer_that_is_cleared_in_another_way_is_left_in_peace(clear: str, here: Path) -> None:
    assert said(ADVERSARIAL.format(optimizer="SGD", clear=clear), here) == []


STEP = """
import torch
{before}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{middle}
for epoch in range(9):
    for x, y in loader:
        {clear}
        loss = criterion(model(x), y)
        {backward}
        {step}
"""


def loop(
    before: str = "", middle: str = "", clear: str = "optimizer.zero_grad()", backward: str = "loss.backward()",
    step: str = "optimizer.step()",
) -> str:  # fmt: skip
    return STEP.format(before=before, middle=middle, clear=clear, backward=backward, step=step)


LOSS = "loss = criterion(model(x), y)"
HALF = f"\n        with torch.autocast('cuda', dtype=torch.float16):\n            {LOSS}\n        "
IN_HALF = HALF + "loss.backward()"


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (loop(clear="", backward="loss = torch.tensor(loss.item(), requires_grad=True)\n        loss.backward()",
              step="optimizer.step()\n        optimizer.zero_grad()"), "detached-loss"),
        (loop(backward="loss = loss.detach()\n        loss.requires_grad_()\n        loss.backward()"),
         "detached-loss"),
        (loop(step="print(loss.item())"), "step-missing"),
        (loop(clear="", backward="loss.backward()\n        optimizer.zero_grad()"), "cleared-before-step"),
        (loop(backward=IN_HALF), "scaler-missing"),
        (loop(middle="ctx = torch.amp.autocast(device_type='cuda', dtype=torch.float16)",
              backward=IN_HALF.replace("torch.autocast('cuda', dtype=torch.float16)", "ctx")), "scaler-missing"),
        (loop(backward="for micro_step in range(accumulation):\n            loss = criterion(model(x), y)\n"
                       "            loss.backward()"), "accumulation-unscaled"),
    ],
)  # fmt: skip
def test_a_fault_of_one_loop_is_named(text: str, cause: str, here: Path) -> None:
    assert [found for _, found, _ in said(text, here)] == [cause]


@pytest.mark.parametrize(
    "text",
    [
        loop(step="optimizer.step()\n        loss = loss.detach()\n        total = torch.tensor(loss.item())"),
        loop(backward="if not len(y):\n            loss = torch.tensor(0.0, requires_grad=True)\n"
                      "        loss.backward()"),
        loop(step="advance(optimizer)", before="from engine import advance").replace("advance", "train_step"),
        loop(before="from optim import Scheduled", step="optimizer.step_and_update_lr()"),
        loop(step="optimizer.step()\n        optimizer.zero_grad()", clear=""),
        loop(backward=IN_HALF.replace("float16", "bfloat16")),
        loop(middle="scaler = torch.amp.GradScaler('cuda')", step="scaler.step(optimizer)\n        scaler.update()",
             backward=HALF + "scaler.scale(loss).backward()"),
        loop(backward="with torch.autocast('cuda', dtype=torch.float16):\n            seen = encoder(x)\n"
                      "        loss.backward()"),
        loop(backward=IN_HALF.replace("'cuda', dtype=torch.float16", "'cuda', enabled=False")),
        loop(backward=f"for micro_step in range(accumulation):\n            {LOSS} / accumulation\n"
                      "            loss.backward()"),
        loop(backward="for task in range(tasks):\n            loss = criterion(model(x), y)\n"
                      "            loss.backward()"),
    ],
)  # fmt: skip
def test_a_loop_that_only_resembles_a_fault_is_left_in_peace(text: str, here: Path) -> None:
    assert said(text, here) == []


def test_a_loop_of_a_module_beside_the_script_is_read(here: Path) -> None:
    (here / "engine.py").write_text(
        "def train_one_epoch(model, criterion, loader, optimizer):\n    for x, y in loader:\n"
        "        optimizer.zero_grad()\n        loss = criterion(model(x), y).item()\n        loss.backward()\n"
        "        optimizer.step()\n"
        "def unused(model, optimizer):\n    loss = model().item()\n    loss.backward()\n    optimizer.step()\n"
    )
    text = (
        "import torch\nfrom engine import train_one_epoch\nmodel = Net()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "train_one_epoch(model, criterion, loader, optimizer)\n"
    )
    assert said(text, here) == [("error", "detached-loss", "engine.py:4")]


def test_an_autocast_of_a_module_beside_the_script_needs_a_scaler_too(here: Path) -> None:
    engine = (
        "import torch\ndef train_one_epoch(model, criterion, loader, optimizer):\n    for x, y in loader:\n"
        "        optimizer.zero_grad()\n        with torch.cuda.amp.autocast():\n"
        "            loss = criterion(model(x), y)\n        {backward}\n        optimizer.step()\n"
    )
    text = "import torch\nfrom engine import train_one_epoch\n" + loop(step="train_one_epoch(model, f, x, optimizer)")
    (here / "engine.py").write_text(engine.format(backward="loss.backward()"))
    assert said(text, here) == [("warning", "scaler-missing", "engine.py:5")]
    (here / "engine.py").write_text(engine.format(backward="scaler.scale(loss).backward()"))
    assert said(text, here) == []


@pytest.mark.parametrize("name", ["scaler", "grad_scaler", "self.amp_scaler"])
def test_a_scaler_by_any_name_has_to_unscale_before_clipping(name: str, here: Path) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        {name}.step(optimizer)"
    text = loop(backward=HALF + "{name}.scale(loss).backward()", step=clip).replace("{name}", name)
    assert [cause for _, cause, _ in said(text, here)] == ["clip-before-unscale"]
    unscaled = text.replace("torch.nn.utils.clip", f"{name}.unscale_(optimizer)\n        torch.nn.utils.clip")
    assert said(unscaled, here) == []


BEFORE = loop(backward="optimizer.step()", step="loss.backward()")


@pytest.mark.parametrize(
    "text", [BEFORE, loop(clear="", backward="optimizer.step()", step="loss.backward()\n        optimizer.zero_grad()")]
)
def test_a_step_between_zero_grad_and_backward_is_named(text: str, here: Path) -> None:
    assert [(severity, cause) for severity, cause, _ in said(text, here)] == [("error", "cleared-before-step")]


@pytest.mark.parametrize(
    "text",
    [
        loop(clear="optimizer.step()\n        optimizer.zero_grad()", step=""),  # the gradient of the batch before
        BEFORE.replace("optimizer.step()", "optimizer.step(closure)"),
        BEFORE.replace("optimizer.step()", "gradient_of(model)\n        optimizer.step()"),
        BEFORE.replace("optimizer.step()", "agent.learn(x)\n        optimizer.step()"),
        BEFORE.replace("        optimizer.step()", "        if ready: optimizer.step()"),
        BEFORE.replace("optimizer.zero_grad()", "critic_opt.zero_grad()"),
    ],
)
def test_a_step_whose_gradient_came_from_elsewhere_is_left_in_peace(text: str, here: Path) -> None:
    assert "cleared-before-step" not in [cause for _, cause, _ in said(text, here)]


def with_loss(made: str, out: str, given: str = "out", more: str = "") -> str:
    text = loop(before=made).replace("loss = criterion(model(x), y)", f"out = {out}\n{more}        loss = {given}")
    return text if made else text.replace("criterion(", "torch.nn.BCEWithLogitsLoss()(")


BCE = "criterion = torch.nn.BCEWithLogitsLoss()"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (with_loss(BCE, "torch.sigmoid(model(x))", "criterion(out, y)"), True),
        (with_loss("", "model(x).sigmoid()", "criterion(out, y)"), True),
        (with_loss(BCE, "model(x)", "criterion(torch.sigmoid(out), y)"), True),
        (with_loss(BCE, "model(x)", "criterion(out, torch.sigmoid(y))"), False),
        (with_loss(BCE, "model(x)", "criterion(out, y) ; shown = torch.sigmoid(out)"), False),
        (with_loss(BCE, "torch.sigmoid(gate(x))", "criterion(out, y)", "        out = out * model(x)\n"), False),
        (with_loss("criterion = torch.nn.BCELoss()", "torch.sigmoid(model(x))", "criterion(out, y)"), False),
    ],
)
def test_a_sigmoid_before_a_loss_that_applies_one_is_named_and_one_for_a_metric_is_not(
    text: str, named: bool, here: Path
) -> None:
    assert ("softmax-before-cross-entropy" in [cause for _, cause, _ in said(text, here)]) is named


@pytest.mark.parametrize(
    ("formula", "named"),
    [
        ("torch.sqrt(out - out.mean()).sum()", True),
        ("torch.log(out - out.mean(dim=1, keepdim=True)).sum()", True),
        ("torch.sqrt((out - out.mean()) ** 2 + 1e-6).sum()", False),
        ("torch.sqrt((out - out.mean()).abs() + 1e-6).sum()", False),
        ("torch.sqrt(out - out.min() + 1e-6).sum()", False),
    ],
)
def test_a_root_of_what_is_below_its_own_mean_is_named(formula: str, named: bool, here: Path) -> None:
    text = with_loss("criterion = 0", "model(x)", formula)
    assert ("loss-formula-singularity" in [cause for _, cause, _ in said(text, here)]) is named


ONE_OUTPUT = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, {outputs}))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.CrossEntropyLoss()(model(x), y)
    loss.backward()
    optimizer.step()
"""


def test_a_cross_entropy_of_one_output_is_named(here: Path) -> None:
    assert [each[1:] for each in said(ONE_OUTPUT.format(outputs=1), here)] == [("softmax-axis", "train.py:8")]
    assert said(ONE_OUTPUT.format(outputs=2), here) == []
