"""The range test finds where the loss falls and where it runs away, and puts everything back."""

from pathlib import Path

import pytest
import torch
from torch.optim import SGD, AdamW

from inspection.probes.on_the_bench import bench_of, line, looked, small_model
from stayfinite.errors import UsageError
from stayfinite.inspection.inspection import conclude
from stayfinite.inspection.notes import Notes
from stayfinite.inspection.probes import learning
from stayfinite.inspection.probes.lr_range import learning_rate_range, look_at_rates
from stayfinite.report.lr_range import save_lr_range


def test_a_sweep_suggests_a_rate_that_learns_well_below_the_one_that_runs_away() -> None:
    found = learning_rate_range(bench_of(optimizer=lambda parameters: SGD(parameters, lr=0.1)), 1e-5, 1e4)
    assert found.suggested is not None
    assert found.diverges is not None
    assert found.starts is not None
    assert found.starts <= found.steepest
    assert found.suggested <= found.diverges / 10
    assert 1e-3 < found.suggested < 10


def test_groups_keep_their_proportions_and_everything_is_put_back() -> None:
    model = small_model()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    bench = bench_of(model)
    bench.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 1e-4})
    learning_rate_range(bench, steps=20)
    assert [group["lr"] for group in bench.optimizer.param_groups] == [1e-3, 1e-4]
    assert not bench.optimizer.state
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_loss_that_never_falls_has_no_suggestion() -> None:
    model = small_model()
    found = learning_rate_range(bench_of(model, forward=lambda _: model[0].weight.sum() * 0.0 + 1.0), steps=20)
    assert found.suggested is None
    assert found.diverges is None


def test_the_sweep_is_a_line_and_a_picture_in_the_notes() -> None:
    notes = Notes()
    found = look_at_rates(bench_of(), notes)
    assert found.suggested is not None
    assert f"try {found.suggested:.1e}" in conclude(notes).lines[0].seen
    marks = [row[3] for row in notes.tables[0].rows]
    assert any("try this" in mark for mark in marks)
    assert any("planned 1.0e-03" in mark for mark in marks)


def test_the_sweep_is_made_on_demand_only() -> None:
    swept = looked(bench_of(lr_range=True), learning)
    assert "try" in line(swept, "range").seen
    assert len(looked(bench_of(), learning).lines) == 1
    idle = bench_of(optimizer=lambda parameters: AdamW(parameters, lr=0.0), lr_range=True)
    assert line(looked(idle, learning), "range").status == "skip"


def test_a_rate_of_zero_cannot_be_swept() -> None:
    with pytest.raises(UsageError, match="learning rate is 0"):
        learning_rate_range(bench_of(optimizer=lambda parameters: AdamW(parameters, lr=0.0)))


def test_a_range_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="invalid sweep"):
        learning_rate_range(bench_of(), lowest=1.0, highest=0.1)


def test_the_sweep_can_be_drawn_into_a_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = learning_rate_range(bench_of(), steps=30)
    save_lr_range(found.to_json(), tmp_path / "rates.svg")
    assert (tmp_path / "rates.svg").read_text().count("<path") > 10
    with pytest.raises(UsageError, match="ending in"):
        save_lr_range(found.to_json(), tmp_path / "rates.txt")
