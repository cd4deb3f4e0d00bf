"""A plain program is watched from outside: its numbers stay its own, and nothing stays patched."""

import pytest
import torch

from plain_programs import HEALTHY, ROOT_OF_ZERO, causes, changed, patched_now, run_alone, watch
from stayfinite.doctor.told import PROVED


def test_a_watched_program_ends_with_the_same_weights_to_the_last_bit(tmp_path):
    alone = run_alone(tmp_path, HEALTHY)
    seen, watched = watch(tmp_path, HEALTHY)
    assert causes(seen) == []
    assert seen.replayed
    assert seen.program.steps == 36
    for one, two in zip(alone["model"].state_dict().values(), watched["model"].state_dict().values(), strict=True):
        assert torch.equal(one, two)
    assert torch.equal(alone["loss"], watched["loss"])


def test_nothing_stays_patched(tmp_path):
    before = patched_now()
    watch(tmp_path, HEALTHY)
    assert patched_now() == before


def test_an_error_of_the_program_is_its_own_and_everything_is_taken_off(tmp_path):
    before = patched_now()
    with pytest.raises(ZeroDivisionError):
        watch(tmp_path, changed(HEALTHY, ("    model.eval()", "    1 / 0\n    model.eval()")))
    assert patched_now() == before


def test_the_first_bad_step_is_replayed_explained_and_its_line_named(tmp_path):
    seen, _ = watch(tmp_path, ROOT_OF_ZERO)
    top = seen.findings[0]
    assert top.finding.cause == "loss-formula-singularity"
    assert top.known_by == PROVED
    assert seen.program.bad.step == 7
    assert any("torch.sqrt(((p - t) ** 2).sum(1))" in line for line in top.finding.evidence)
    assert "verified by re-run" in top.finding.fix
    assert "Row 3" in " ".join(top.finding.evidence)


def test_explaining_changes_nothing_of_what_the_program_does_next(tmp_path):
    masked = changed(
        ROOT_OF_ZERO, ("    opt.step()", "    [p.grad.nan_to_num_() for p in net.parameters()]\n    opt.step()")
    )
    alone = run_alone(tmp_path, masked)
    _, watched = watch(tmp_path, masked)
    assert torch.equal(alone["net"].weight, watched["net"].weight)


def test_the_guard_refuses_bad_steps_in_place(tmp_path):
    seen, names = watch(tmp_path, ROOT_OF_ZERO, guard=True)
    assert seen.program.refused > 0
    assert bool(names["net"].weight.isfinite().all())


def test_a_bad_row_of_a_loader_is_named(tmp_path):
    seen, _ = watch(tmp_path, changed(HEALTHY, ("loader = Data", "X[77, 2] = float('nan')\nloader = Data")))
    assert causes(seen)[0] == "bad-data-row"
    assert seen.findings[0].known_by == PROVED


REPLAYED = {
    "a step inside of a method": """
import torch
class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.net = torch.nn.Linear(3, 1)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def train_step(self, x):
        scale = x.sum(1, keepdim=True)
        loss = (self.net(x) / scale).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()
trainer = Trainer()
for i in range(6):
    x = torch.rand(8, 3)
    if i == 4:
        x[5] = 0.0
    trainer.train_step(x)
""",
    "a closure": """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=2)
x = torch.rand(8, 3)
def closure():
    opt.zero_grad()
    loss = torch.log(net(x).sum() * 0.0)
    loss.backward()
    return loss
for i in range(3):
    opt.step(closure)
""",
    "a step written by hand": """
import torch
w = torch.ones(3, 1, requires_grad=True)
x = torch.rand(8, 3, generator=torch.Generator().manual_seed(0))
for i in range(8):
    if i == 5:
        x[2] = 0.0
    loss = (x @ w).log().pow(2).mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.01 * w.grad
        w.grad.zero_()
""",
}


@pytest.mark.parametrize("text", REPLAYED.values(), ids=REPLAYED)
def test_a_step_is_replayed_however_it_is_written(tmp_path, text):
    seen, _ = watch(tmp_path, text)
    assert seen.replayed
    assert causes(seen)[0] == "loss-formula-singularity"


def test_the_seams_can_be_left_out_of_a_program_that_does_not_train(tmp_path):
    seen, _ = watch(tmp_path, "import torch\nprint(torch.ones(3).sum())\n")
    assert not seen.program.trains
    assert causes(seen) == []
