"""One batch is driven down, or the reason why not is told; slow, random and warming-up trainings raise no alarm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional
from torch.optim import SGD, Adam, AdamW, SparseAdam
from torch.optim.lr_scheduler import LambdaLR

from inspection.probes.on_the_bench import bench_of, causes, line, looked, loss_of, small_model
from stayfinite.inspection.probes import learning

TITLE = "overfitting one batch"


class Reversed(torch.autograd.Function):
    """Its backward has the wrong sign."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x * 1.0

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        return -gradients[0]


def test_a_healthy_training_learns() -> None:
    found = looked(bench_of(), learning)
    assert causes(found) == []
    assert line(found, TITLE).status == "pass"
    assert "in 10 steps" in line(found, TITLE).seen


def test_a_first_pass_that_took_long_is_no_reason_for_fewer_steps() -> None:
    bench = bench_of()
    bench.__dict__["first"] = replace(bench.first, seconds=2.0)
    assert "in 10 steps" in line(looked(bench, learning), TITLE).seen


@pytest.mark.parametrize("rate", [1e-5, 1e-6])
def test_a_small_rate_for_fine_tuning_in_three_steps_is_no_alarm(rate: float) -> None:
    bench = bench_of(optimizer=lambda parameters: AdamW(parameters, lr=rate), steps=3)
    assert causes(looked(bench, learning)) == []


@pytest.mark.parametrize("kind", [AdamW, SGD])
def test_a_rate_that_is_far_too_high_is_told_from_one_that_works(kind: Any) -> None:
    high = bench_of(optimizer=lambda parameters: kind(parameters, lr=300.0))
    assert causes(looked(high, learning)) == ["lr-too-high"]
    fine = bench_of(optimizer=lambda parameters: kind(parameters, lr=1e-2))
    assert causes(looked(fine, learning)) == []


class Normed(nn.Module):
    """Deep, with a norm of the root mean square before a head that stays as it is: as adapters on a language model."""

    def __init__(self, deep: int = 7) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(8, 16), *(nn.Linear(16, 16) for _ in range(deep)))
        self.head = nn.Linear(16, 4, bias=False).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        return 3.0 * self.head(hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6))


@pytest.mark.parametrize("rate", [1e2, 1e3])
def test_a_fall_to_where_every_input_gets_the_same_answer_is_not_learning(rate: float) -> None:
    """The hidden values are so large that the norm makes 0 of them: the loss is ln(4), a little below the first."""
    found = looked(bench_of(Normed(), optimizer=lambda parameters: Adam(parameters, lr=rate)), learning)
    assert causes(found) == ["lr-too-high"]
    assert "to 1.386 in 10 steps, at " in found.findings[0].evidence[0]


@pytest.mark.parametrize("rate", [1e12, 1e15])
def test_a_rate_of_which_a_billionth_is_too_high_as_well_is_found(rate: float) -> None:
    """The hidden values are huge and finite: the loss falls a little, at once, and at many smaller rates too."""
    found = looked(bench_of(Normed(deep=1), optimizer=lambda parameters: Adam(parameters, lr=rate)), learning)
    assert causes(found) == ["lr-too-high"]


def test_a_fall_of_less_than_a_thousandth_that_stands_at_once_is_not_learning_either() -> None:
    """It starts next to ln(4): the way to where every input gets the same answer is short."""
    model = Normed(deep=1)
    with torch.no_grad():
        model.head.weight.mul_(1e-3)
    found = looked(bench_of(model, optimizer=lambda parameters: Adam(parameters, lr=1e10)), learning)
    assert causes(found) == ["lr-too-high"]
    fine = looked(bench_of(model, optimizer=lambda parameters: Adam(parameters, lr=1e-3)), learning)
    assert causes(fine) == []


def test_a_rate_that_loses_the_loss_at_once_is_not_taken_for_a_batch_that_cannot_be_learned() -> None:
    found = looked(bench_of(optimizer=lambda parameters: AdamW(parameters, lr=1e12)), learning)
    assert causes(found) == ["lr-too-high"]


@pytest.mark.parametrize("rate", [3e-3, 1e-2, 3e-2])
def test_the_same_model_learns_at_a_usual_rate_also_where_it_climbs_at_first(rate: float) -> None:
    found = looked(bench_of(Normed(), optimizer=lambda parameters: Adam(parameters, lr=rate)), learning)
    assert causes(found) == []
    assert line(found, TITLE).status == "pass"


def test_a_training_that_only_learns_how_often_each_class_comes_at_first_is_healthy() -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    with torch.no_grad():
        model.bias.copy_(torch.tensor([-2.0, 2.0, 2.0, 2.0]))
    labels = torch.tensor([0] * 12 + [1, 2, 3, 0])
    bench = bench_of(
        model,
        batch=(1e-3 * torch.randn(16, 8), labels),
        optimizer=lambda parameters: SGD(parameters, lr=2.0),
        steps=16,
    )
    found = looked(bench, learning)
    counts = labels.bincount() / len(labels)
    always_the_same = -float((counts * counts.log()).sum())
    assert float(line(found, TITLE).seen.split()[2]) == pytest.approx(always_the_same, rel=1e-2)
    assert causes(found) == []


def test_a_rate_that_is_far_too_low_is_found_because_a_higher_one_works() -> None:
    low = bench_of(optimizer=lambda parameters: AdamW(parameters, lr=1e-9))
    assert causes(looked(low, learning)) == ["lr-too-low"]


def test_a_batch_that_is_learned_already_is_no_fault_of_the_rate() -> None:
    model = nn.Linear(8, 1)
    target = torch.zeros(6, 1)
    with torch.no_grad():
        model.weight.zero_().add_(1e-6)
        model.bias.zero_()
    bench = bench_of(
        model,
        forward=lambda batch: functional.mse_loss(model(batch[0]), target) + 3.0,
        optimizer=lambda parameters: Adam(parameters, lr=1e-9),
    )
    assert causes(looked(bench, learning)) == []


def test_a_backward_of_the_wrong_sign_cannot_be_learned_with() -> None:
    model = small_model()
    plain = loss_of(model)
    wrong = bench_of(model, forward=lambda batch: Reversed.apply(plain(batch)))
    assert causes(looked(wrong, learning)) == ["cannot-overfit-batch"]
    assert causes(looked(bench_of(model, forward=plain), learning)) == []


def test_a_loss_with_random_numbers_learns_with_the_same_ones_in_each_step() -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Dropout(0.2), nn.Linear(32, 8))

    def denoise(batch: tuple[Tensor, Tensor]) -> Tensor:
        noise, share = torch.randn_like(batch[0]), torch.rand(len(batch[0]), 1)
        return functional.mse_loss(model((1 - share) * batch[0] + share * noise), noise)

    found = looked(bench_of(model, forward=denoise), learning)
    assert causes(found) == []
    assert line(found, TITLE).status == "pass"


def test_a_loss_that_moves_by_itself_is_no_verdict() -> None:
    model, own = small_model(), torch.Generator().manual_seed(0)
    plain = loss_of(model)
    bench = bench_of(model, forward=lambda batch: plain(batch) + 100 * torch.rand((), generator=own))
    assert causes(looked(bench, learning)) == []


def test_a_warmup_is_followed_to_where_it_leads() -> None:
    bench = bench_of()
    LambdaLR(bench.optimizer, lambda step: step / 100)
    found = looked(bench, learning)
    assert causes(found) == []
    assert line(found, TITLE).status == "pass"
    assert bench.optimizer.param_groups[0]["lr"] == 0


def test_an_optimizer_that_climbs_on_purpose_is_followed_uphill() -> None:
    model = small_model()
    plain = loss_of(model)
    bench = bench_of(
        model,
        forward=lambda batch: -plain(batch),
        optimizer=lambda parameters: AdamW(parameters, lr=1e-3, maximize=True),
    )
    assert causes(looked(bench, learning)) == []


def test_a_loop_that_clips_is_not_blamed_for_large_gradients() -> None:
    model = small_model()
    plain = loss_of(model)
    bench = bench_of(
        model, forward=lambda batch: 1e4 * plain(batch), optimizer=lambda parameters: SGD(parameters, lr=0.05)
    )
    found = looked(bench, learning)
    assert causes(found) == []
    assert "clipped at 1" in line(found, TITLE).seen


def test_a_scaler_that_looks_for_its_scale_takes_no_step_away() -> None:
    scaler = GradScaler("cpu", init_scale=2.0**40)
    found = looked(bench_of(autocast=torch.float16, scaler=scaler), learning)
    assert causes(found) == []
    assert "in 10 steps" in line(found, TITLE).seen
    assert scaler.get_scale() == 2.0**40


def test_an_optimizer_that_moves_nothing_is_found() -> None:
    class Idle(SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            """Nothing is done."""

    found = looked(bench_of(optimizer=lambda parameters: Idle(parameters, lr=0.1)), learning)
    assert causes(found) == ["cannot-overfit-batch"]


def test_sparse_gradients_are_followed_too() -> None:
    torch.manual_seed(0)
    table = nn.Embedding(20, 4, sparse=True)
    bench = bench_of(
        table,
        batch=(torch.arange(6), torch.arange(6) % 4),
        optimizer=lambda parameters: SparseAdam(list(parameters), lr=1e-2),
    )
    found = looked(bench, learning)
    assert line(found, TITLE).status == "pass"
    assert "in 10 steps" in line(found, TITLE).seen


def test_no_steps_are_taken_when_none_are_wanted() -> None:
    found = looked(bench_of(steps=0), learning)
    assert line(found, TITLE).status == "skip"


def test_where_a_pass_takes_long_two_rows_are_driven_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stayfinite.inspection.bench.bench.LONG", 0.0)
    model = small_model()
    plain, rows = loss_of(model), list[int]()

    def forward(batch: Any) -> Tensor:
        rows.append(len(batch[0]))
        return plain(batch)

    bench = bench_of(model, forward=forward)
    found = looked(bench, learning)
    assert causes(found) == []
    assert "2 rows" in line(found, TITLE).seen
    assert len(rows) > 3
    assert set(rows[1:]) == {2}
    faulty = bench_of(model, forward=lambda batch: Reversed.apply(plain(batch)))
    assert causes(looked(faulty, learning)) == ["cannot-overfit-batch"]


def test_no_step_is_taken_with_gradients_that_are_not_finite() -> None:
    model = small_model()
    bench = bench_of(model, forward=lambda batch: (model(batch[0]) * 0.0).pow(2).sum().sqrt())
    found = line(looked(bench, learning), TITLE)
    assert (found.status, found.seen) == ("skip", "gradients are NaN or inf")
