"""What goes with a training: its schedule, its validation batch, its metric."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from inspection.probes.on_the_bench import Batch, bench_of, causes, line, looked, small_batch, small_model
from stayfinite import preflight
from stayfinite.inspection.probes.evaluation import look_at_metric as metric
from stayfinite.inspection.probes.evaluation import look_at_validation as validation
from stayfinite.inspection.probes.optimizer import look_at_schedule as schedule


def scheduled(make, **parts):
    bench = bench_of(optimizer=lambda parameters: SGD(parameters, lr=0.1))
    return bench_of(bench.model, optimizer=lambda _: bench.optimizer, scheduler=make(bench.optimizer), **parts)


@pytest.mark.parametrize(
    "make",
    [
        lambda o: lr_scheduler.CosineAnnealingLR(o, 50),
        lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=60),
        lambda o: lr_scheduler.LambdaLR(o, lambda step: min(1.0, step / 20)),
        lambda o: lr_scheduler.StepLR(o, 1, 0.1),
        lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1),
        lr_scheduler.ReduceLROnPlateau,
        lambda o: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.01), lr_scheduler.ExponentialLR(o, 0.9)], milestones=[5]
        ),
    ],
)
def test_a_schedule_that_trains_is_fine_and_is_put_back(make):
    bench = scheduled(make)
    before, rate = str(bench.scheduler.state_dict()), bench.optimizer.param_groups[0]["lr"]
    assert causes(looked(bench, schedule)) == []
    assert str(bench.scheduler.state_dict()) == before
    assert bench.optimizer.param_groups[0]["lr"] == rate


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.0), "rate is 0"),
        (lambda o: lr_scheduler.ExponentialLR(o, 1.5), "rises"),
        (lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 - step / 10), "rate is -"),
        (lambda o: lr_scheduler.LambdaLR(o, lambda step: float("nan") if step > 3 else 1.0), "rate is nan"),
        (lambda _: lr_scheduler.StepLR(SGD(small_model().parameters(), lr=1.0), 5), "another optimizer"),
    ],
)
def test_a_schedule_that_cannot_train_is_found(make, words):
    found = looked(scheduled(make), schedule)
    assert causes(found) == ["lr-schedule-bug"]
    assert words in " ".join(found.findings[0].evidence)


def test_the_rate_after_an_epoch_is_shown():
    loader = DataLoader(TensorDataset(*small_batch(40)), batch_size=2)
    found = looked(scheduled(lambda o: lr_scheduler.StepLR(o, 10, 0.5), loader=loader), schedule)
    assert "0.05 after an epoch" in line(found, "schedule").seen


def rows(seed: int, scale: float = 1.0, shift: float = 0.0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(16, 8, generator=generator) + shift, torch.arange(16) % 4


@pytest.mark.parametrize("other", [rows(2, scale=100.0), rows(2, shift=4.0), rows(2, scale=0.3, shift=0.5)])
def test_validation_inputs_that_were_prepared_otherwise_are_found(other):
    assert causes(looked(bench_of(batch=rows(1), validation=other), validation)) == ["splits-scaled-differently"]


def test_validation_inputs_that_were_prepared_alike_are_fine():
    assert causes(looked(bench_of(batch=rows(1), validation=rows(2)), validation)) == []
    loader = DataLoader(TensorDataset(*rows(3)), batch_size=16, shuffle=True)
    assert causes(looked(bench_of(batch=rows(1), validation=loader), validation)) == []


def test_validation_rows_that_are_trained_on_are_found():
    assert causes(looked(bench_of(batch=rows(1), validation=rows(1)), validation)) == ["train-val-overlap"]


def accuracy_of(model: nn.Module):
    def accuracy(batch: Batch) -> float:
        return (model(batch[0]).argmax(1) == batch[1]).float().mean().item()

    return accuracy


def test_a_metric_that_follows_the_model_is_fine():
    model = small_model()
    assert causes(looked(bench_of(model, metric=accuracy_of(model)), metric)) == []
    assert causes(looked(bench_of(model, metric=accuracy_of(model), validation=rows(4)), metric)) == []


@pytest.mark.parametrize(
    "stuck",
    [
        lambda model, batch: (model(batch[0]) == batch[1][:, None]).float().mean(),  # scores are no classes
        lambda model, batch: (model(batch[0])[:, :1].argmax(1) == batch[1]).float().mean(),  # one column has one argmax
        lambda model, batch: (batch[1] == batch[1]).float().mean(),
        lambda model, batch: int((model(batch[0]).argmax(1) == batch[1]).sum()) // 7,
    ],
)
def test_a_metric_that_cannot_move_is_found(stuck):
    model = small_model()
    found = looked(bench_of(model, metric=lambda batch: stuck(model, batch)), metric)
    assert causes(found) == ["metric-stuck"]


def test_an_accuracy_that_counts_pairs_is_found():
    model = small_model()

    def accuracy(batch: Batch) -> float:
        return 100.0 * (model(batch[0]).argmax(1)[:, None] == batch[1]).sum().item() / len(batch[1])

    assert "metric-impossible" in causes(looked(bench_of(model, metric=accuracy), metric))


def test_preflight_takes_what_a_program_has():
    model = small_model()
    optimizer = AdamW(model.parameters(), lr=1e-3)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    findings = preflight(
        model, optimizer, rows(1), lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        scheduler=lr_scheduler.StepLR(optimizer, 5), validation=rows(2, scale=50.0), metric=accuracy_of(model),
    )  # fmt: skip
    assert [each.cause for each in findings if each.severity != "info"] == ["splits-scaled-differently"]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
