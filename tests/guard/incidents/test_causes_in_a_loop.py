"""Whole loops with one thing wrong, each beside one that only looks like it: the cause that is named is true."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stayfinite import Guard, OptimizerError, Policy, diagnose
from tiny_training import Lines, changed, fingerprint

STEPS = 12
BAD = 8
"""The step at which a fault shows."""


@dataclass
class Loop:
    """A training of a few steps."""

    model: nn.Module
    forward: Callable[[Any], Tensor]
    batches: Sequence[Any]
    optimizer: torch.optim.Optimizer | None = None
    scheduler: Any = None
    between: Callable[[int], None] = lambda _step: None
    """Called after every step with its number."""
    policy: Policy = Policy()  # noqa: RUF009 - it is frozen
    max_norm: float | None = 1.0

    def run(self, directory: Path) -> list[dict[str, Any]]:
        """Train under a guard; the autopsies, oldest first."""
        optimizer = self.optimizer or torch.optim.SGD(self.model.parameters(), lr=0.05)
        with Guard(
            self.model, optimizer, self.scheduler, max_norm=self.max_norm, policy=self.policy, run_dir=directory,
            forward=self.forward, console=Lines(),
        ) as guard:  # fmt: skip
            for step, batch in enumerate(self.batches, 1):
                guard.step(guard.forward(batch))
                self.between(step)
        return [json.loads(path.read_text()) for path in sorted(directory.glob("incidents/*/autopsy.json"))]


def net(**settings: Any) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16, **settings), nn.ReLU(), nn.Linear(16, 3, **settings))


def batches(rows: int = 8, steps: int = STEPS) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        {"x": torch.randn(rows, 6, generator=generator), "y": torch.randint(0, 3, (rows,), generator=generator)}
        for _ in range(steps)
    ]


def classify(model: nn.Module) -> Callable[[Any], Tensor]:
    return lambda batch: F.cross_entropy(model(batch["x"]), batch["y"])


# -- a number of the loop's own --------------------------------------------------------------------------------------


class Scaled(nn.Module):
    """A net whose input is scaled by a buffer that the loop sets."""

    def __init__(self) -> None:
        super().__init__()
        self.net = net()
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * self.scale)


@pytest.mark.parametrize("value", [math.nan, 1.5])
def test_a_buffer_that_the_loop_spoils_is_named_and_one_that_it_sets_is_left_in_peace(value, tmp_path):
    model = Scaled()

    def between(step: int) -> None:
        if step == BAD:
            model.scale[2] = value

    found = Loop(model, classify(model), batches(), between=between).run(tmp_path)
    assert [each["cause"] for each in found] == ["nan-weights"] * math.isnan(value)
    assert all(each["origin"]["leaf"] == "scale" for each in found)
    assert model.scale[2].isnan() if math.isnan(value) else model.scale[2] == value


@pytest.mark.filterwarnings("ignore::stayfinite.state.checkpoints.CheckpointWarning")
@pytest.mark.parametrize("size", [1e25, 1.0])
def test_statistics_that_overflow_in_a_finite_step_make_a_run_sick(size, tmp_path):
    """The loss does not show it: the row is normalized away, and the model is of no use once it is in eval()."""
    torch.manual_seed(0)
    model, loaded = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)), batches()
    loaded[BAD]["x"][0] = size
    Loop(model, classify(model), loaded, policy=Policy(checkpoint_steps=2, sigmas=math.inf)).run(tmp_path)
    assert bool(model[1].running_var.isfinite().all()) == (size == 1.0)
    found = diagnose(tmp_path)
    assert [each.cause for each in found.findings] == ["nan-weights"] * (size > 1.0)
    assert found.verdict == ("sick" if size > 1.0 else "healthy")


# -- sizes -----------------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """Multiplies by the same matrix at every step in time, with or without a bound."""

    def __init__(self, radius: float, *, bounded: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.into, self.over, self.out = nn.Linear(4, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 1)
        self.bounded = bounded
        with torch.no_grad():
            self.over.weight.copy_(radius * torch.eye(8))

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 8)
        for moment in x.unbind(1):
            state = self.into(moment) + self.over(state)
            state = torch.tanh(state) if self.bounded else state
        return self.out(state)


@pytest.mark.parametrize("length", [60, 240])
def test_numbers_that_grow_beyond_fp32_are_no_fault_of_the_device(length, tmp_path):
    """In 60 steps only the norm of the gradients is infinite, in 240 the loss is."""
    for bounded in (False, True):
        model = Recurrent(1.6, bounded=bounded)
        forward = lambda x, model=model: model(x).pow(2).mean()  # noqa: E731
        inputs = [torch.randn(4, length, 4, generator=torch.Generator().manual_seed(2))] * 3
        found = Loop(model, forward, inputs).run(tmp_path / str(bounded))
        assert [each["cause"] for each in found] == ["exploding-gradient"] * (not bounded)
    assert diagnose(tmp_path / "False").findings[0].cause == "exploding-gradient"
    assert diagnose(tmp_path / "True").verdict == "healthy"


# -- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1])
def test_a_batch_without_rows_is_called_that_and_one_with_a_row_is_fine(rows, tmp_path):
    model, loaded = net(), batches()
    loaded[BAD] = {name: item[:rows] for name, item in loaded[BAD].items()}
    found = Loop(model, classify(model), loaded).run(tmp_path)
    assert [each["cause"] for each in found] == ["empty-batch"] * (rows == 0)


@pytest.mark.filterwarnings("ignore:std.*degrees of freedom")
@pytest.mark.parametrize("trained", [False, True], ids=["of the input", "of what is trained"])
@pytest.mark.parametrize("rows", [1, 2])
def test_the_spread_of_a_single_row_is_told_from_that_of_two(rows, trained, tmp_path):
    model, loaded = net(), batches()
    loaded[BAD] = {name: item[:rows] for name, item in loaded[BAD].items()}

    def forward(batch: dict[str, Tensor]) -> Tensor:
        x = batch["x"]
        if not trained:
            return F.cross_entropy(model((x - x.mean(0)) / (x.std(0) + 1e-5)), batch["y"])
        out = model(x)
        return F.cross_entropy((out - out.mean(0)) / (out.std(0) + 1e-5), batch["y"])

    # A spread of two rows makes one batch unlike the others: no matter here.
    found = Loop(model, forward, loaded, policy=Policy(sigmas=math.inf)).run(tmp_path)
    assert [each["cause"] for each in found] == ["loss-formula-singularity"] * (rows == 1)
    assert all("of a single value" in each["verdict"] and each["fix"]["verified"] for each in found)


def test_rows_of_a_weight_are_not_taken_for_rows_of_the_batch(tmp_path):
    first = nn.Linear(6, 16)
    with torch.no_grad():
        first.weight[3] = 0  # of sixteen rows; the batch has eight
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(first), nn.ReLU(), nn.Linear(16, 3))
    (found,) = Loop(model, classify(model), batches(steps=1)).run(tmp_path)
    assert found["cause"] == "loss-formula-singularity"
    assert found["rows"] == []
    assert "row 1" not in found["verdict"]


@pytest.mark.parametrize("label", [7, 2])
def test_a_run_that_fails_in_its_very_first_pass_leaves_word_of_it(label, tmp_path):
    model, loaded = net(), batches()
    loaded[0]["y"][2] = label
    loop = Loop(model, classify(model), loaded)
    if label == 2:
        loop.run(tmp_path / "run")
        assert diagnose(tmp_path / "run").verdict == "healthy"
        return
    with pytest.raises(IndexError):
        loop.run(tmp_path / "run")
    found = diagnose(tmp_path / "run")
    assert found.findings[0].cause == "label-out-of-range"
    assert found.findings[0].evidence[0].endswith("events.jsonl:2: IndexError: Target 7 is out of bounds.")
    assert (tmp_path / "run/report.html").is_file()


def test_a_guard_that_is_closed_or_interrupted_before_its_first_step_leaves_nothing(tmp_path):
    model = net()
    with Guard(model, torch.optim.SGD(model.parameters()), run_dir=tmp_path / "closed", console=Lines()):
        pass
    guard = Guard(model, torch.optim.SGD(model.parameters()), run_dir=tmp_path / "interrupted", console=Lines())
    with pytest.raises(KeyboardInterrupt), guard:
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


# -- the update ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [0.0, 1e-8])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop])
def test_an_eps_of_zero_is_named_where_it_has_divided_zero_by_zero(kind, eps, tmp_path):
    model, loaded = net(), batches()
    for batch in loaded:
        batch["x"][:, 4] = 0  # the weights of this column have no gradient
    optimizer = kind(model.parameters(), lr=1e-3, eps=eps)
    found = Loop(model, classify(model), loaded, optimizer).run(tmp_path)
    assert [each["cause"] for each in found] == ["adam-eps-underflow"] * (eps == 0)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("broken", [math.nan, math.inf, None])
def test_no_update_is_made_at_a_learning_rate_that_is_no_number(broken, groups, tmp_path):
    model = net()
    parts = [{"params": model[0].parameters()}, {"params": model[2].parameters()}]
    optimizer = torch.optim.AdamW(parts if groups == 2 else model.parameters(), lr=1e-3)

    def last(step: int) -> float:
        return 1.0 if step < BAD or broken is None else broken

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, [last] if groups == 1 else [lambda _step: 1.0, last])
    loop = Loop(model, classify(model), batches(), optimizer, scheduler)
    if broken is None:
        assert loop.run(tmp_path) == []
        assert diagnose(tmp_path).verdict == "healthy"
        return
    states = []
    loop.between = lambda _step: states.append(fingerprint(model=model.state_dict(), moments=optimizer.state_dict()))
    with pytest.raises(OptimizerError, match=f"the learning rate is {broken} at step {BAD + 1}"):
        loop.run(tmp_path)
    assert len(states) == BAD
    assert changed(states[-1], fingerprint(model=model.state_dict(), moments=optimizer.state_dict())) == []
    assert diagnose(tmp_path).findings[0].cause == "lr-schedule-bug"


def test_while_watching_a_broken_rate_is_only_named(tmp_path):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < BAD else math.nan)
    found = Loop(model, classify(model), batches(), optimizer, scheduler, policy=Policy.watch()).run(tmp_path)
    assert [each["cause"] for each in found] == ["lr-schedule-bug"]
    assert diagnose(tmp_path).findings[0].cause == "lr-schedule-bug"


# -- numbers and tensors of the program's own --------------------------------------------------------------------------


def weighted(model: nn.Module, weight: Any) -> Callable[[Any], Tensor]:
    return lambda batch: F.cross_entropy(model(batch["x"]), batch["y"]) * weight


def with_gradient_hook(model: nn.Module, factor: float) -> Callable[[Any], Tensor]:
    model[0].bias.register_hook(lambda gradient: gradient * factor)
    return classify(model)


def with_module_hook(model: nn.Module, factor: float) -> Callable[[Any], Tensor]:
    model[1].register_full_backward_hook(lambda _module, into, _out: (into[0] * factor,))
    return classify(model)


def divided(model: nn.Module, factor: float) -> Callable[[Any], Tensor]:
    count = 1 if math.isfinite(factor) else 0
    return lambda batch: F.cross_entropy(model(batch["x"]), batch["y"]) / count


def with_class_weights(model: nn.Module, factor: float) -> Callable[[Any], Tensor]:
    weights = torch.tensor([1.0, factor, 1.0])
    return lambda batch: F.cross_entropy(model(batch["x"]), batch["y"], weight=weights)


def determinant(model: nn.Module, factor: float) -> Callable[[Any], Tensor]:
    shift = 9.0 if math.isfinite(factor) else -9.0
    return lambda batch: (
        classify(model)(batch) + torch.logdet(model[2].weight @ model[2].weight.T + shift * torch.eye(3))
    )


@pytest.mark.parametrize(
    ("loss", "cause", "words"),
    [
        (weighted, "loss-formula-singularity", "mul in the loss gets the Python number inf"),
        (with_gradient_hook, "loss-formula-singularity", "gets the Python number inf"),
        (with_module_hook, "loss-formula-singularity", "a backward hook of a module, at test_causes_in_a_loop.py:"),
        (divided, "loss-formula-singularity", "division by zero"),
        (with_class_weights, "nan-weights", "it is not a parameter, a buffer or in the batch"),
        (determinant, "loss-formula-singularity", "the log of a negative determinant"),
    ],
)
def test_what_the_program_puts_in_by_itself_is_named_and_a_finite_number_is_left_in_peace(loss, cause, words, tmp_path):
    for factor in (math.inf, 0.5):
        model = net()
        found = Loop(model, loss(model, factor), batches(steps=3)).run(tmp_path / str(factor))
        assert [each["cause"] for each in found] == ([] if factor == 0.5 else [cause])
        assert all(words in each["verdict"] for each in found), found


def test_what_most_rows_do_is_the_rates_fault_and_what_one_row_does_is_that_rows(tmp_path):
    for lr, label in ((30.0, 0.0), (0.01, 1e6)):
        model = net()
        loaded = [batch | {"y": batch["y"].float()} for batch in batches(steps=40)]
        loaded[30]["y"][3] += label
        forward = lambda batch, model=model: F.mse_loss(model(batch["x"]).sum(1), batch["y"])  # noqa: E731
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        policy = Policy.refuse_spikes(max_vetoes_in_a_row=100)
        loop = Loop(model, forward, loaded, optimizer, max_norm=None, policy=policy)
        found = loop.run(tmp_path / str(lr))
        assert found[0]["cause"] == ("lr-too-high" if lr == 30.0 else "toxic-batch")
        assert found[0]["rows"] == ([] if lr == 30.0 else [3])
        assert diagnose(tmp_path / str(lr)).findings[0].cause == found[0]["cause"]


def test_a_bad_row_is_named_by_its_place_in_the_data_set_too(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    x[37, 2] = float("nan")
    model = nn.Linear(4, 1)
    console = Lines()
    guard = Guard(
        model, torch.optim.SGD(model.parameters(), 1e-2), console=console, run_dir=tmp_path / "run",
        forward=lambda batch: F.mse_loss(model(batch[0]), batch[0].sum(1, keepdim=True)),
    )  # fmt: skip
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=16, shuffle=True)
    for batch in guard.batches(loader):
        guard.step(guard.forward(batch))
    guard.close()
    explained = next(line for line in console.lines if "explained" in line)
    found = json.loads((tmp_path / "run/incidents/0001/autopsy.json").read_text())
    (row,) = found["rows"]
    assert f"(dataset row 37, row {row} of the batch)" in explained
    assert f"drop or repair dataset row 37 (row {row} of the batch)" in explained
    assert not any("forward=" in line for line in console.lines)


def test_the_first_refusal_without_a_forward_function_says_once_how_to_get_the_cause():
    model, console = nn.Linear(4, 1), Lines()
    guard = Guard(model, torch.optim.SGD(model.parameters(), 1e-2), console=console)
    for value in (1.0, float("nan"), 1.0, float("nan")):
        guard.step(model(torch.full((2, 4), value)).sum())
    guard.close()
    assert sum("Pass forward= to Guard to get the cause." in line for line in console.lines) == 1
