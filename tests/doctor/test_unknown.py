"""A program that ends without a finding is called unknown where it shows no learning, and healthy where it learns."""

import pytest

from plain_programs import causes, changed, watch
from stayfinite.doctor.judges.course import doubt

CLASSES = """
import torch
torch.manual_seed(0)
X = torch.randn(640, 10)
Y = X[:, :3].argmax(1)
model = torch.nn.Linear(10, 3)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(200):
    i = step % 20 * 32
    loss = torch.nn.functional.cross_entropy(model(X[i : i + 32]), Y[i : i + 32])
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
SHUFFLED = ("argmax(1)", "argmax(1)[torch.randperm(640)]")


@pytest.mark.parametrize("more", [(), (("step % 20 * 32", "0"), ("32", "640"))], ids=["batches", "all rows"])
def test_a_classifier_that_only_guesses_is_not_healthy(tmp_path, more):
    text = changed(changed(CLASSES, *more), SHUFFLED)
    seen, _ = watch(tmp_path, text, examine=False)
    assert causes(seen) == []
    assert doubt(seen.program) == "the loss stays at ln 3, chance level for 3 classes"


def test_a_network_that_slowly_learns_shuffled_labels_by_heart_is_not_healthy(tmp_path):
    more = [
        ("= torch.nn.Linear(10, 3)", "= nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))"),
        ("import torch", "import torch\nfrom torch import nn"),
        ("AdamW(model.parameters(), lr=1e-2)", "SGD(model.parameters(), lr=0.05)"),
        ("range(200)", "range(500)"),
    ]  # fmt: skip
    assert "chance level" in doubt(watch(tmp_path, changed(CLASSES, SHUFFLED, *more), examine=False)[0].program)
    assert doubt(watch(tmp_path, changed(CLASSES, *more), examine=False)[0].program) == ""


LEARNS = {
    "a run that learns": [],
    "a short run that has begun to learn": [("range(200)", "range(70)"), ("lr=1e-2", "lr=3e-3")],
    "a run too short to tell": [("range(200)", "range(30)"), SHUFFLED],
    "a loss that comes from far above": [("Linear(10, 3)", "Linear(10, 3)\nmodel.weight.data *= 20"), SHUFFLED],
}


@pytest.mark.parametrize("name", LEARNS)
def test_a_classifier_whose_loss_moves_stays_healthy(tmp_path, name):
    seen, _ = watch(tmp_path, changed(CLASSES, *LEARNS[name]), examine=False)
    assert causes(seen) == []
    assert doubt(seen.program) == ""
