"""What is told of a bad step holds: rows are rows of the batch, proofs are of what was tried, good weights are good."""

from plain_programs import causes, changed, watch

SLICED = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, t = torch.randn(256, 4), torch.randn(256, 3)
for step in range(14):
    i = step % 4 * 64
    if step == 7:
        x[i + 3], t[i + 3] = 0, net.bias.detach()
    d = torch.sqrt(((net(x[i : i + 64]) - t[i : i + 64]) ** 2).sum(1))
    loss = d.mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
FAST = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
opt = torch.optim.SGD(net.parameters(), lr=500.0)
x = torch.randn(512, 10)
y = x[:, :3].argmax(1)
for step in range(40):
    i = step % 16 * 32
    loss = torch.nn.functional.cross_entropy(net(x[i : i + 32]), y[i : i + 32])
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
BAD_ROW = ("x[i + 3], t[i + 3] = 0, net.bias.detach()", "x[i + 3, 1] = float('nan')")


def told(seen):
    finding = seen.findings[0].finding
    return " ".join(finding.evidence), finding.fix


def test_a_row_of_a_sliced_data_set_is_named_as_a_row_of_the_batch(tmp_path):
    seen, _ = watch(tmp_path, SLICED)
    assert causes(seen)[0] == "loss-formula-singularity"
    evidence, _ = told(seen)
    assert "It begins in row 3 of the batch." in evidence
    assert "left out" not in evidence


def test_a_row_of_the_data_set_is_named_where_it_holds_nan(tmp_path):
    seen, _ = watch(tmp_path, changed(SLICED, BAD_ROW))
    assert causes(seen)[0] == "bad-data-row"
    assert "Row 195 of the data set holds NaN or inf." in told(seen)[0]


def test_rows_of_the_data_set_are_not_blamed_for_their_place(tmp_path):
    nan_elsewhere = changed(SLICED, ("    if step == 7", "    x[63] = float('nan')\n    if step == 7"))
    seen, _ = watch(tmp_path, nan_elsewhere.replace("step % 4 * 64", "64 + step % 3 * 64"))
    assert seen.program.bad.step == 7
    assert "left out" not in told(seen)[0]


def test_a_fix_that_was_not_tried_is_not_called_verified(tmp_path):
    seen, _ = watch(tmp_path, FAST)
    assert causes(seen)[0] == "lr-too-high"
    evidence, fix = told(seen)
    assert fix.endswith("(re-run: the last update caused it; fix not tested)")
    assert "On the last finite weights the same batch gives loss" in evidence
    assert "known-good" not in evidence
    assert "left out" not in evidence
    assert "It begins in" not in evidence


def test_weights_with_a_good_loss_are_called_known_good(tmp_path):
    seen, _ = watch(tmp_path, SLICED)
    assert "last known-good weights" in told(seen)[0]
