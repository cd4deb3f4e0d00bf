"""The host's half of a graphed step, on a tape that does everything again; for CUDA see test_graphs_on_cuda.py."""

import copy
import gc
from contextlib import nullcontext, suppress
from functools import partial

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from stayfinite import Action, Guard, Policy
from stayfinite.errors import OptimizerError, UsageError
from stayfinite.guard.graphing.graphed import WARM_UP, GraphedStep
from stayfinite.guard.graphing.graphs import StaticBatch, form_of, nothing_collected

STEPS = 40


class Again:
    """A tape that does the work anew at every replay, without the gradients of the last, and counts recordings."""

    def __init__(self, training):
        self.model = training.model
        self.recorded = self.replayed = 0

    def aside(self):
        return nullcontext()

    def record(self, *halves):
        self.recorded += 1

        def counted():
            self.replayed += 1
            self.model.zero_grad(set_to_none=True)
            halves[0]()

        return [counted, *halves[1:]]


class Training:
    def __init__(self, *, tensor_rate=True, gate="device", forward=True, max_norm=0.5, momentum=False, **policy):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4))
        rate = torch.tensor(1e-2) if tensor_rate else 1e-2
        kind = partial(torch.optim.SGD, momentum=0.9) if momentum else torch.optim.AdamW
        self.optimizer = kind(self.model.parameters(), lr=rate, fused=True)
        self.scheduler = LambdaLR(self.optimizer, lambda step: 1 / (1 + step / 10))
        self.guard = Guard(
            self.model,
            self.optimizer,
            self.scheduler,
            max_norm=max_norm,
            policy=Policy(gate=gate, **policy),
            forward=self.loss if forward else None,
            console=Console(quiet=True),
        )

    def loss(self, batch):
        return F.mse_loss(self.model(batch["x"]), batch["y"])

    def recorded(self):
        """Its step as a graph, and the tape."""
        tape = Again(self)
        return GraphedStep(self.guard, tape, self.guard._whole_step), tape

    def everything(self):
        return copy.deepcopy(
            [self.model.state_dict(), self.optimizer.state_dict(), self.scheduler.state_dict(), self.guard.state_dict()]
        )


def batches(count=STEPS, spoilt=(), rows=16):
    source = torch.Generator().manual_seed(1)
    made = [
        {"x": torch.randn(rows, 8, generator=source), "y": torch.randn(rows, 4, generator=source)} for _ in range(count)
    ]
    for number in spoilt:
        made[number]["x"][0, 0] = float("nan")
    return made


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


@pytest.mark.parametrize("spoilt", [(), (1,), (20, 21, 30)])
def test_a_graphed_training_is_the_plain_one_to_the_last_bit(spoilt):
    plain, graphed = Training(), Training()
    step, tape = graphed.recorded()
    for batch in batches(spoilt=spoilt):
        plain.guard.step(plain.guard.forward(batch))
        step(batch)
    assert same(graphed.everything(), plain.everything())
    told = [[(d.step, d.code, d.signals.batch, d.signals.lr) for d in t.guard.decisions] for t in (graphed, plain)]
    assert told[0] == told[1]
    assert (tape.recorded, tape.replayed) == (1, STEPS - WARM_UP)


@pytest.mark.parametrize(("times", "fault"), [(20.0, False), (1e5, True)])
def test_a_bounded_step_in_a_graph_is_the_plain_one_to_the_last_bit(times, fault):
    plain, graphed = Training(max_norm=None), Training(max_norm=None)
    step, _ = graphed.recorded()
    for number, batch in enumerate(batches()):
        given = {name: value * (times if number == 30 else 1.0) for name, value in batch.items()}
        plain.guard.step(plain.guard.forward(given))
        step(given)
    assert same(graphed.everything(), plain.everything())
    bounded = [(d.step, d.fault) for d in graphed.guard.decisions if d.action is Action.BOUND]
    assert bounded == [(31, fault)]


def test_the_loss_that_is_returned_is_a_copy():
    training = Training()
    step, _ = training.recorded()
    losses = [step(batch) for batch in batches(8)]
    assert len({loss.item() for loss in losses}) == 8
    assert not any(loss.requires_grad for loss in losses)


def test_a_batch_of_another_form_is_taken_without_the_graph_and_counts():
    training = Training()
    step, tape = training.recorded()
    for batch in [*batches(6), *batches(1, rows=5), *batches(2)]:
        step(batch)
    training.guard.flush()
    assert (tape.recorded, tape.replayed) == (1, 6 - WARM_UP + 2)
    assert [decision.step for decision in training.guard.decisions] == list(range(1, 10))


def test_after_a_rollback_the_step_is_recorded_anew_and_training_goes_on():
    training = Training(max_vetoes_in_a_row=3, prove_steps=2)
    step, tape = training.recorded()
    # Until the first rung is the cut, the next one the way back.
    for batch in [*batches(30), *batches(12, spoilt=range(12)), *batches(30)]:
        step(batch)
    training.guard.flush()
    assert any(decision.action.value == "rollback" for decision in training.guard.decisions)
    assert tape.recorded > 1
    assert not training.guard.decisions[-1].refused
    assert all(torch.isfinite(parameter).all() for parameter in training.model.parameters())


def test_a_cut_of_the_rate_is_put_on_in_a_graph_and_taken_off_again():
    training = Training(cut_steps=4)
    step, _ = training.recorded()
    for batch in batches(10):
        step(batch)
    seen = []
    training.optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(float(optimizer.param_groups[0]["lr"])))
    training.guard._recovery.begin_cut()
    wanted = training.optimizer.param_groups[0]["lr"].item()
    step(batches(1)[0])
    assert seen == [pytest.approx(wanted * Policy().cut_factor)]
    assert training.optimizer.param_groups[0]["lr"].item() == pytest.approx(1e-2 / (1 + 11 / 10))


def test_a_momentum_that_no_step_has_made_yet_is_not_recorded():
    plain, graphed = Training(momentum=True), Training(momentum=True)
    step, tape = graphed.recorded()
    given = batches(20, spoilt=range(WARM_UP + 2))
    for batch in given[: WARM_UP + 2]:
        step(batch)
    assert tape.recorded == 0
    for batch in given[WARM_UP + 2 :]:
        step(batch)
    for batch in given:
        plain.guard.step(plain.guard.forward(batch))
    assert tape.recorded == 1
    assert same(graphed.everything(), plain.everything())


def test_after_a_layer_was_thawed_the_step_is_recorded_anew_and_trains_it():
    training = Training()
    training.model[0].requires_grad_(False)
    step, tape = training.recorded()
    for batch in batches(WARM_UP + 3):
        step(batch)
    training.model[0].requires_grad_(True)
    before = training.model[0].weight.detach().clone()
    for batch in batches(WARM_UP + 3):
        step(batch)
    training.guard.flush()
    assert tape.recorded == 2
    assert not torch.equal(training.model[0].weight, before)
    assert "0.weight" in training.guard.gradient_norms


def test_settings_other_than_the_rate_that_move_are_refused_by_name():
    training = Training()
    step, _ = training.recorded()
    *first, last = batches(WARM_UP + 1)
    for number, batch in enumerate(first):
        training.optimizer.param_groups[0]["weight_decay"] = 0.1 * number
        step(batch)
    with pytest.raises(OptimizerError, match="weight_decay"):
        step(last)


def test_a_setting_that_was_changed_once_is_recorded_anew():
    training = Training()
    step, tape = training.recorded()
    for batch in batches(WARM_UP + 3):
        step(batch)
    training.optimizer.param_groups[0]["weight_decay"] = 0.5
    for batch in batches(WARM_UP + 3):
        step(batch)
    assert tape.recorded == 2


def test_what_cannot_be_graphed_is_refused_with_a_way_out():
    with pytest.raises(OptimizerError, match="torch.tensor"):
        Training(tensor_rate=False).recorded()
    with pytest.raises(OptimizerError, match="fused"):
        Training(gate="host").recorded()
    with pytest.raises(UsageError, match="forward"):
        Training(forward=False).recorded()
    with pytest.raises(UsageError, match="CUDA"):
        Training().guard.graphed()


def test_batches_of_one_form_fit_and_others_do_not():
    batch = batches(1)[0]
    assert form_of(batch) == form_of(batches(2)[1])
    for other in (
        {**batch, "x": batch["x"][:3]},
        {**batch, "x": batch["x"].double()},
        {"x": batch["x"]},
        {**batch, "flag": True},
        [batch["x"], batch["y"]],
    ):
        assert form_of(other) != form_of(batch)


def test_a_static_batch_takes_in_the_numbers_of_any_batch_of_its_form():
    first, second = ({"a": (torch.full((2,), value), [torch.full((1,), value)]), "k": 3} for value in (1.0, 2.0))
    static = StaticBatch(first, torch.device("cpu"))
    held = static.batch["a"][0]
    static.take(second)
    assert static.batch["a"][0] is held
    assert (held.tolist(), static.batch["a"][1][0].tolist(), static.batch["k"]) == ([2.0, 2.0], [2.0], 3)
    assert first["a"][0].tolist() == [1.0, 1.0]


def test_a_batch_that_cannot_be_copied_into_place_is_refused_before_anything_is_done():
    training = Training()
    step, _ = training.recorded()
    with pytest.raises(UsageError, match="Training"):
        step({**batches(1)[0], "more": training})
    assert not training.guard.decisions


class Broken(Again):
    """A tape that fails as CUDA does: the cause, and then the complaint about the recording."""

    def record(self, *halves):
        try:
            halves[0]()
            raise RuntimeError("Cannot copy between CPU and CUDA tensors during CUDA graph capture")
        except RuntimeError:
            raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904


def test_a_step_that_cannot_be_recorded_says_why_and_the_plain_one_still_works():
    training, plain = Training(), Training()
    step = GraphedStep(training.guard, Broken(training), training.guard._whole_step)
    given = batches(8)
    for batch in given[:WARM_UP]:
        step(batch)
    with pytest.raises(UsageError, match="Cannot copy between CPU and CUDA"):
        step(given[WARM_UP])
    for batch in given[WARM_UP:]:
        training.guard.step(training.guard.forward(batch))
    for batch in given:
        plain.guard.step(plain.guard.forward(batch))
    # The pass that was not recorded has moved running statistics, as it would not have on a GPU.
    assert same(training.optimizer.state_dict(), plain.optimizer.state_dict())


@pytest.mark.parametrize("collecting", [True, False])
def test_nothing_is_collected_while_a_graph_is_recorded_and_all_is_as_before_afterwards(collecting):
    before = gc.isenabled()
    try:
        (gc.enable if collecting else gc.disable)()
        with suppress(RuntimeError), nothing_collected():
            assert not gc.isenabled()
            raise RuntimeError("broken off")
        assert gc.isenabled() == collecting
    finally:
        (gc.enable if before else gc.disable)()
