"""The headroom is told before training, and is a fault only where the training is in fp16."""

import pytest
import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn import functional

from inspection.probes.on_the_bench import bench_of, causes, line, looked, small_model
from stayfinite.inspection.probes import headroom


def enlarged() -> nn.Sequential:
    model = small_model()
    with torch.no_grad():
        model[2].weight.mul_(1e6)
    return model


def test_a_module_that_leaves_the_range_is_named_where_the_training_is_in_fp16() -> None:
    found = looked(bench_of(enlarged(), autocast=torch.float16, scaler=GradScaler("cpu")), headroom)
    assert causes(found) == ["fp16-overflow"]
    assert "fp16 overflows in 1 module" in found.findings[0].evidence[0]
    assert found.findings[0].where == "2"
    assert "2" in [row[0] for row in found.tables[0].rows if "overflows" in row[3]]


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_the_same_module_is_only_told_of_where_the_training_is_not(autocast: torch.dtype | None) -> None:
    found = looked(bench_of(enlarged(), autocast=autocast), headroom)
    assert causes(found) == []
    assert "safe in bf16; fp16 would overflow in 1 module, worst 2" in line(found, "range of the format").seen


def test_a_training_that_is_said_to_be_in_fp16_is_judged_so_though_its_forward_pass_is_not() -> None:
    assert causes(looked(bench_of(enlarged(), precision="fp16"), headroom)) == ["fp16-overflow"]
    assert causes(looked(bench_of(enlarged(), precision="bf16-mixed"), headroom)) == []


def test_a_healthy_model_in_fp16_is_quiet_and_its_range_of_scales_is_told() -> None:
    found = looked(bench_of(autocast=torch.float16, scaler=GradScaler("cpu")), headroom)
    assert causes(found) == []
    assert "safe in fp16 and bf16" in line(found, "range of the format").seen
    assert line(found, "loss scale").seen.startswith("for fp16 1 to ")
    assert "in bf16" in line(found, "rounding").seen


def test_an_autocast_that_is_switched_off_by_a_flag_does_not_hide_the_headroom() -> None:
    model = enlarged()

    def forward(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            return functional.cross_entropy(model(batch[0]), batch[1])

    assert "would overflow" in line(looked(bench_of(model, forward=forward), headroom), "range of the format").seen


def test_gradients_that_overflow_at_every_scale_are_a_collapse_to_come() -> None:
    model = small_model()

    def loss(times: float) -> object:
        def forward(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.float16):
                out = model(batch[0])
            return times * functional.cross_entropy(out.float(), batch[1], reduction="sum")

        return forward

    found = looked(bench_of(model, forward=loss(1e6), scaler=GradScaler("cpu")), headroom)  # type: ignore[arg-type]
    assert causes(found) == ["loss-scale-collapse"]
    healthy = looked(bench_of(model, forward=loss(1.0), scaler=GradScaler("cpu")), headroom)  # type: ignore[arg-type]
    assert causes(healthy) == []


def test_gradients_that_fp16_makes_zero_are_found_without_a_scaler_and_not_with_one() -> None:
    model = small_model()

    def forward(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(batch[0])
        return 1e-7 * functional.cross_entropy(out.float(), batch[1])

    assert causes(looked(bench_of(model, forward=forward), headroom)) == ["fp16-underflow"]
    scaled = looked(bench_of(model, forward=forward, scaler=GradScaler("cpu")), headroom)
    assert causes(scaled) == []


def test_a_constant_that_fp16_cannot_hold_is_foreseen() -> None:
    class Masked(nn.Module):
        def __init__(self, least: float | None) -> None:
            super().__init__()
            self.score, self.least = nn.Linear(8, 4), least

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.score(x)
            least = torch.finfo(scores.dtype).min if self.least is None else self.least
            return scores.masked_fill(torch.tensor([False, True, False, False]), least)

    def looked_with(least: float | None) -> list[str]:
        torch.manual_seed(0)
        model = Masked(least)

        def forward(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
            return functional.cross_entropy(model(batch[0]).float(), 0 * batch[1])

        return causes(looked(bench_of(model, forward=forward, precision="fp16"), headroom))

    assert looked_with(-1e9) == ["fp16-overflow"]
    assert looked_with(None) == []


def test_weights_in_half_precision_are_judged_as_such() -> None:
    model = small_model()
    with torch.no_grad():
        model[2].weight.mul_(2.4e5)
    model = model.half()
    batch = (torch.randn(6, 8).half(), torch.arange(6) % 4)
    found = looked(bench_of(model, batch=batch), headroom)
    assert "fp16-overflow" in causes(found)
    healthy = small_model().half()
    assert causes(looked(bench_of(healthy, batch=batch), headroom)) == []
    assert all(p.dtype is torch.float16 for p in healthy.parameters())


def test_a_forward_pass_that_fails_is_no_verdict() -> None:
    def forward(_batch: object) -> torch.Tensor:
        raise RuntimeError("no")

    found = looked(bench_of(forward=forward), headroom)
    assert causes(found) == []
    assert line(found, "range of the format").status == "skip"
