"""Recorded passes on a tape that does everything again; for CUDA graphs see test_recording_on_cuda.py."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from guarded_training import NAN, GuardedTraining, events
from stayfinite.errors import OrderError, UsageError
from stayfinite.recipes.running import recording
from stayfinite.recipes.running.recording import RecordedLoss


class Again:
    """A tape that does the work anew at every replay, and counts."""

    def __init__(self):
        self.recorded = self.replayed = 0

    def aside(self):
        return nullcontext()

    def record(self, *halves):
        self.recorded += 1
        for half in halves:
            half()

        def counted():
            self.replayed += 1
            halves[0]()

        return [counted, *halves[1:]]


class Broken(Again):
    def record(self, *halves):
        raise RuntimeError("operation not permitted when stream is capturing")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.drop, self.down = nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1)
        self.unused = nn.Linear(2, 2)

    def loss(self, batch):
        return self.down(self.drop(torch.tanh(self.up(batch["x"])))).square().mean()


def batches(count, rows=(4, 6)):
    chance = torch.Generator().manual_seed(1)
    return [{"x": torch.randn(rows[number % len(rows)], 4, generator=chance)} for number in range(count)]


def gradients(model):
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]


def same(one, other):
    return all(a is b is None or torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_replayed_passes_give_the_losses_and_gradients_of_those_as_written(accumulation, set_to_none):
    def train(net, compute, context):
        torch.manual_seed(5)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        seen = []
        for number, batch in enumerate(batches(12)):
            with context():
                loss = compute(batch)
            (loss * 0.5).backward()
            seen.append(loss.detach())
            if (number + 1) % accumulation == 0:
                seen += gradients(net)[:4]
                optimizer.step()
                optimizer.zero_grad(set_to_none=set_to_none)
        return seen, gradients(net)

    plain, other, tape = Net(), Net(), Again()
    recorded = RecordedLoss(other, other.loss, pytest.fail, tape=tape)
    expected, left = train(plain, plain.loss, nullcontext)
    found, left_here = train(other, recorded, recorded.replaying)
    assert all(torch.equal(one, two) for one, two in zip(expected, found, strict=True))
    assert same(left, left_here)
    assert (tape.recorded, tape.replayed) == (2, 12)
    assert other.unused.weight.grad is None


def test_outside_of_replaying_in_evaluation_and_where_nobody_wants_it_everything_runs_as_written():
    net, tape = Net(), Again()
    recorded = RecordedLoss(net, net.loss, pytest.fail, tape=tape)
    (batch,) = batches(1)
    recorded(batch).backward()
    with recorded.replaying():
        net.eval()
        recorded(batch)
    unwanted = RecordedLoss(net.train(), net.loss, pytest.fail, wanted=False)
    with unwanted.replaying():
        unwanted(batch)
    assert tape.recorded == tape.replayed == 0


def test_what_cannot_be_recorded_is_said_once_and_trains_as_written():
    net, said = Net(), []
    recorded = RecordedLoss(net, net.loss, said.append, tape=Broken())
    for batch in batches(4):
        with recorded.replaying():
            recorded(batch).backward()
    assert len(said) == 1
    assert "running eagerly: RuntimeError: operation not permitted" in said[0]
    assert all(gradient is not None for gradient in gradients(net)[:4])


def test_a_backward_pass_after_another_forward_pass_is_refused():
    net = Net()
    recorded = RecordedLoss(net, net.loss, pytest.fail, tape=Again())
    one, other = batches(2)
    with recorded.replaying():
        first = recorded(one)
        recorded(other)
    with pytest.raises(OrderError, match="before the next forward pass"):
        first.backward()


def test_weights_that_were_put_elsewhere_are_recorded_anew():
    net, tape = Net(), Again()
    recorded = RecordedLoss(net, net.loss, pytest.fail, tape=tape)
    (batch,) = batches(1)
    for _ in range(2):
        with recorded.replaying():
            recorded(batch).backward()
        net.up.weight.data = net.up.weight.data.clone()
    assert tape.recorded == 2


def test_only_so_many_forms_are_recorded(monkeypatch):
    monkeypatch.setattr(recording, "MOST_FORMS", 2)
    net, tape = Net(), Again()
    recorded = RecordedLoss(net, net.loss, pytest.fail, tape=tape)
    for batch in batches(9, rows=(2, 3, 4)):
        with recorded.replaying():
            recorded(batch).backward()
    assert (tape.recorded, tape.replayed) == (2, 6)


def test_without_a_gpu_it_is_refused():
    net = Net()
    with pytest.raises(UsageError, match="the model is on cpu"):
        RecordedLoss(net, net.loss, pytest.fail)


class Recorded(GuardedTraining):
    """As the programs use it."""

    def __init__(self, folder, tape):
        super().__init__(folder, forward=self.through)
        self.recorded = RecordedLoss(self.model, self.loss, pytest.fail, tape=tape)

    def through(self, batch):
        return self.recorded(batch)

    def steps(self, count=1, value=None):
        for _ in range(count):
            with self.recorded.replaying():
                loss = self.guard.forward(self.batch(value))
            self.guard.step(loss)


def test_a_guarded_run_is_the_same_to_the_last_bit_and_a_bad_step_is_explained_as_written(tmp_path):
    tape = Again()
    plain, recorded = GuardedTraining(tmp_path / "plain"), Recorded(tmp_path / "recorded", tape)
    for training in (plain, recorded):
        torch.manual_seed(7)
        training.steps(20)
        training.steps(1, NAN)
        training.steps(5)
        training.guard.close()
    assert plain.everything() == recorded.everything()
    assert (tape.recorded, tape.replayed) == (1, 26)
    (found,) = events(tmp_path / "recorded", "autopsy")
    assert found["cause"] == "bad-data-row"
    assert found["rows"] == events(tmp_path / "plain", "autopsy")[0]["rows"]
