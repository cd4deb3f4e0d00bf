"""The autopsy of every planted fault finds what is on record; healthy look-alikes give no incident."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from rich.console import Console
from torch import nn

from faults.autopsies.campaign import FAULTS, LOOK_ALIKES, Finding, examine
from quick_ones import quick_ones
from stayfinite import Guard
from stayfinite.autopsy.autopsy import perform
from stayfinite.autopsy.steps.batch_parts import batch_items
from stayfinite.autopsy.steps.step import Step
from stayfinite.autopsy.steps.trace import trace_step
from stayfinite.autopsy.worlds.worlds import Materials

STEPS = 6
"""Steps that a look-alike is trained for under a guard."""

# A CPU without bf16 says so, once in a process.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")


@cache
def found(name: str) -> Finding:
    return examine(FAULTS[name])


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", FAULTS)
def test_an_autopsy_finds_the_planted_fault(name):
    finding = found(name)
    print(finding)
    assert finding.wrong == {}, f"{finding}\n{finding.said['verdict']}"


@pytest.mark.parametrize(
    "name",
    quick_ones(
        [
            "t5_feed_forward",
            "distance_of_two_equal_points",
            "attention_by_hand_without_any_key",
            "nan_in_a_picture_of_llava",
            "nan_in_the_row_of_a_rare_word",
            "labels_popped_from_the_batch",
        ],
        "nan_in_the_row_of_a_rare_word",
        "labels_popped_from_the_batch",
    ),
)
def test_a_guard_explains_the_step_that_it_refused(name, tmp_path):
    planted = FAULTS[name]()
    step = planted.step

    def forward(batch):
        with step.autocast():
            return step.forward(batch)

    optimizer = torch.optim.SGD(step.model.parameters(), lr=1e-3)
    with Guard(step.model, optimizer, forward=forward, run_dir=tmp_path, console=Console(quiet=True)) as guard:
        guard.step(guard.forward(step.batch))
    (path,) = tmp_path.glob("incidents/*/autopsy.json")
    said = json.loads(path.read_text())
    assert said["cause"] in planted.cause, said["verdict"]
    assert said["origin"]["operator"] in planted.operator
    assert said["origin"]["module"] in planted.module
    if planted.rows is not None:
        assert said["rows"] == list(planted.rows)


def test_the_list_is_long_and_varied():
    assert len(FAULTS) >= 36
    assert len(LOOK_ALIKES) >= 18
    causes = {cause for entry in FAULTS.values() for cause in entry().cause[:1]}
    assert len(causes) >= 15


@pytest.mark.parametrize(
    "name",
    quick_ones(
        [
            "t5_feed_forward",
            "llama_in_pure_fp16",
            "attention_of_bert_that_is_right_in_eager_only",
            "dropout_that_takes_everything",
            "one_huge_step_of_adam",
            "nan_in_the_buffers_of_a_frozen_batch_norm",
            "row_among_others_of_a_batch_norm",
            "root_inside_of_a_reentrant_checkpoint",
            "labels_popped_from_the_batch",
        ],
        "row_among_others_of_a_batch_norm",
        "root_inside_of_a_reentrant_checkpoint",
        "labels_popped_from_the_batch",
    ),
)
def test_an_autopsy_changes_nothing(name):
    planted = FAULTS[name]()
    before = _everything(planted.step)
    perform(planted.step, Materials(**planted.materials))
    assert _everything(planted.step) == before


def _everything(step: Step) -> dict[str, object]:
    """Every bit that an autopsy could have left changed."""
    model = step.model
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers()), **batch_items(step.batch)}
    return {
        **{name: value.detach().reshape(-1).view(torch.uint8).tolist() for name, value in tensors.items()},
        **{f"{name}.grad": parameter.grad for name, parameter in model.named_parameters()},
        **{f"{name}.mode": (module.training, *_hooks(module)) for name, module in model.named_modules()},
        "attention": getattr(getattr(model, "config", None), "_attn_implementation", None),
        "kernels": (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()),
        "generator": torch.get_rng_state().tolist(),
        "functions": (torch.nn.functional.dropout, torch.amp.autocast.__enter__, torch.Tensor.half),
    }


def _hooks(module: nn.Module) -> tuple[int, int, bool]:
    return len(module._forward_hooks), len(module._forward_pre_hooks), "forward" in vars(module)


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_healthy_look_alike_has_no_origin(name):
    step = LOOK_ALIKES[name]().step
    assert step.run().finite
    trace = trace_step(step)
    assert trace.finite
    assert trace.origins == []


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_healthy_look_alike_is_called_healthy(name):
    autopsy = perform(LOOK_ALIKES[name]().step)
    assert autopsy.healthy, autopsy.verdict


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_guard_refuses_no_step_of_a_healthy_look_alike(name, tmp_path):
    step = LOOK_ALIKES[name]().step

    def forward(batch):
        with step.autocast():
            return step.forward(batch)

    scaler = torch.amp.GradScaler("cpu", init_scale=step.scale) if step.scale != 1.0 else None
    optimizer = torch.optim.SGD(step.model.parameters(), lr=1e-3)
    with Guard(step.model, optimizer, scaler=scaler, forward=forward, run_dir=tmp_path) as guard:
        for _ in range(STEPS):
            guard.step(guard.forward(step.batch))
        guard.flush()
        assert [decision for decision in guard.decisions if decision.action not in ("accept", "clip")] == []
    assert not (tmp_path / "incidents").exists()
