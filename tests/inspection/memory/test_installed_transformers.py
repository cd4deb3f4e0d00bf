"""Which attention T5 gets is read from the installed transformers' files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stayfinite.inspection.memory.estimating import estimate
from stayfinite.inspection.memory.finding_the_model import find_shape
from stayfinite.inspection.memory.inspecting import bias_kernel_in, installed_transformers
from stayfinite.inspection.memory.plan import PRECISIONS, Plan


@pytest.mark.parametrize(
    ("model", "bridge", "kernel"),
    [
        ("class T5PreTrainedModel: pass", "return x", "eager"),
        ("_supports_sdpa = True", "return position_bias_mask", "math"),
        ("_supports_sdpa = True", "return position_bias_mask.contiguous()", "efficient"),
    ],
)
def test_three_generations_are_told_apart(tmp_path: Path, model: str, bridge: str, kernel: str) -> None:
    (tmp_path / "models" / "t5").mkdir(parents=True)
    (tmp_path / "integrations").mkdir()
    (tmp_path / "models" / "t5" / "modeling_t5.py").write_text(model)
    (tmp_path / "integrations" / "sdpa_attention.py").write_text(bridge)
    assert bias_kernel_in(tmp_path) == kernel


def test_files_that_are_not_there_are_no_error(tmp_path: Path) -> None:
    assert bias_kernel_in(tmp_path) == "math"


def test_the_real_one_is_found_without_importing_it() -> None:
    found = installed_transformers()
    assert found.version[0].isdigit()
    assert found.bias_kernel in ("eager", "math", "efficient")


def test_the_efficient_kernel_spares_t5_its_scores() -> None:
    shape = find_shape("t5-base")
    plan = Plan(batch=8, seq=512, target_seq=512, precision=PRECISIONS["bf16"])
    eager, math, efficient = (
        estimate(shape, replace(plan, bias_kernel=kernel)).peak for kernel in ("eager", "math", "efficient")
    )
    assert efficient < 0.75 * math
    assert eager == estimate(shape, replace(plan, attention="eager")).peak
