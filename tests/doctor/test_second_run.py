"""A bad step whose statements cannot be run again is explained by a second run of the program up to that step."""

import json

import pytest

from stayfinite.cli.doctor import run

STREAM = """
import random
import torch
class Stream:
    def __init__(self):
        self.batches = self.draw_all()
    def draw_all(self):
        for step in range(60):
            x = torch.randn(16, 4)
            if step == 9:
                x[5] = 0.0
            yield x
    def draw(self):
        return next(self.batches)
net = torch.nn.Linear(4, 4, bias=False)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
stream = Stream()
target = random.random()
for step in range(14):
    x = stream.draw()
    length = (net(x) ** 2).sum(1).sqrt()
    loss = (length - target).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
with open("ended", "a") as file:
    file.write("x")
"""


@pytest.fixture
def told_of(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def tell(text, *flags):
        (tmp_path / "train.py").write_text(text)
        assert run([*flags, "--json", "train.py"]) == 1
        return json.loads(capsys.readouterr().out)

    return tell


def test_a_bad_step_fed_by_a_generator_gets_its_origin_from_a_second_run(told_of, tmp_path):
    said = told_of(STREAM)
    top = said["findings"][0]
    assert (top["cause"], top["known_by"]) == ("loss-formula-singularity", "proved by re-run")
    assert top["where"] == "train.py:21, step 9"
    assert "train.py:21: length = (net(x) ** 2).sum(1).sqrt()" in top["evidence"]
    assert "It shows in row 5 of the batch." in top["evidence"]
    assert "A second run reproduced all 10 losses to the last bit." in top["evidence"]
    assert (tmp_path / "ended").read_text() == "x"


@pytest.mark.slow
def test_a_program_that_does_not_repeat_itself_is_said_not_to_and_nothing_is_called_proved(told_of):
    top = told_of(STREAM.replace("random.random()", "random.SystemRandom().random()"))["findings"][0]
    assert top["known_by"] == "seen in the running program"
    assert any(line.startswith("The program is not deterministic: loss 1 was ") for line in top["evidence"])


def test_once_means_once(told_of):
    top = told_of(STREAM, "--once")["findings"][0]
    assert top["cause"] == "nan-loss"
    assert not any("second run" in line for line in top["evidence"])
