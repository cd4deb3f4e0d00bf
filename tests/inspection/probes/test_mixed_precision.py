"""Autocast, scaler and weights fit together, or it is said which of them does not."""

import pytest
import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from inspection.probes.on_the_bench import bench_of, causes, line, looked, small_batch, small_model
from stayfinite.inspection.probes import headroom

BOTH = (headroom, headroom.look_at_mixed_precision)


def test_fp16_with_a_scaler_is_as_it_should_be() -> None:
    found = looked(bench_of(autocast=torch.float16, scaler=GradScaler("cpu")), *BOTH)
    assert causes(found) == []
    assert "3 in fp16" in line(found, "autocast").seen


def test_fp16_without_a_scaler_is_a_warning() -> None:
    assert causes(looked(bench_of(autocast=torch.float16), *BOTH)) == ["scaler-missing"]
    off = GradScaler("cpu", enabled=False)
    assert causes(looked(bench_of(autocast=torch.float16, scaler=off), *BOTH)) == ["scaler-missing"]


def test_bf16_wants_no_scaler() -> None:
    assert causes(looked(bench_of(autocast=torch.bfloat16), *BOTH)) == []
    scaled = looked(bench_of(autocast=torch.bfloat16, scaler=GradScaler("cpu")), *BOTH)
    assert causes(scaled) == ["scaler-without-fp16"]


def test_a_scaler_without_autocast_is_found_unless_it_is_entered_elsewhere() -> None:
    assert causes(looked(bench_of(scaler=GradScaler("cpu")), *BOTH)) == ["autocast-missing"]
    assert causes(looked(bench_of(scaler=GradScaler("cpu"), precision="fp16"), *BOTH)) == []
    assert causes(looked(bench_of(), *BOTH)) == []


def test_a_scaler_over_weights_in_fp16_is_found() -> None:
    batch = (small_batch()[0].half(), small_batch()[1])
    found = looked(bench_of(small_model().half(), batch=batch, scaler=GradScaler("cpu")), *BOTH)
    assert "double-fp16" in causes(found)


@pytest.mark.parametrize(("rate", "lost"), [(1e-6, True), (1e-2, False)])
def test_updates_that_round_away_in_bf16_weights_are_counted(rate: float, lost: bool) -> None:
    batch = (small_batch()[0].bfloat16(), small_batch()[1])
    bench = bench_of(small_model().bfloat16(), batch=batch, optimizer=lambda parameters: AdamW(parameters, lr=rate))
    assert causes(looked(bench, *BOTH)) == (["bf16-lost-updates"] if lost else [])


def test_a_warmup_from_zero_does_not_look_like_updates_that_are_lost() -> None:
    batch = (small_batch()[0].bfloat16(), small_batch()[1])
    bench = bench_of(small_model().bfloat16(), batch=batch, optimizer=lambda parameters: AdamW(parameters, lr=1e-2))
    LambdaLR(bench.optimizer, lambda step: step / 100)
    assert bench.optimizer.param_groups[0]["lr"] == 0
    assert causes(looked(bench, *BOTH)) == []
    assert bench.optimizer.param_groups[0]["lr"] == 0
