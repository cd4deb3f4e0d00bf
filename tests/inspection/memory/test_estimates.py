"""The estimate against what CUDA reported, and against what must hold of any estimate."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stayfinite.inspection.memory.columns import largest_batch, needed
from stayfinite.inspection.memory.estimating import estimate
from stayfinite.inspection.memory.finding_the_model import find_shape
from stayfinite.inspection.memory.plan import PRECISIONS, Plan

MEASURED = json.loads(
    (Path(__file__).parents[3] / "benchmarks" / "results" / "memory_h200.json").read_text(encoding="utf-8")
)["cases"]
GIB = 1 << 30


def plan_of(row: dict[str, Any]) -> Plan:
    return Plan(
        batch=row["batch"],
        seq=row["seq"],
        target_seq=row["target"] or row["seq"],
        precision=PRECISIONS[row["precision"]],
        checkpointing=row["checkpointing"],
        attention=row["attention"],
        padded=row["padded"],
        optimizer=row["optimizer"],
        lora=row["lora"] or 0,
    )


def plan(precision: str = "bf16", **more: Any) -> Plan:
    return Plan(**{"batch": 2, "seq": 512, "target_seq": 512, "precision": PRECISIONS[precision], **more})


@pytest.mark.parametrize("shape", sorted({row["shape"] for row in MEASURED}))
def test_every_estimate_is_within_fifteen_percent_of_what_cuda_reported(shape: str) -> None:
    rows = [row for row in MEASURED if row["shape"] == shape]
    assert len(rows) >= 24
    off = {}
    for row in rows:
        found = estimate(find_shape(shape), plan_of(row))
        off[json.dumps(row)] = found.peak / row["peak"] - 1
        assert found.parameters == row["parameters"]
    assert {case: error for case, error in off.items() if abs(error) > 0.15} == {}
    # What is promised is 15 %. What the formulas reach is better, and a change that loses it should be seen.
    assert sum(map(abs, off.values())) / len(off) < 0.02


def test_the_measurements_hold_t5_llama_and_bert_in_every_precision_with_and_without_checkpointing() -> None:
    seen = {(row["shape"], row["precision"], row["checkpointing"]) for row in MEASURED}
    for shape in ("t5-base", "smollm2-135m"):
        for precision in ("fp32", "bf16", "pure-bf16"):
            assert {(shape, precision, False), (shape, precision, True)} <= seen
    assert {("bert-base", "fp32", True), ("bert-base", "bf16", False), ("bert-base", "pure-bf16", True)} <= seen


@pytest.mark.parametrize("moment", ["forward", "backward", "step"])
def test_the_moment_of_the_peak_is_named_rightly(moment: str) -> None:
    said = {"loss": "forward", "forward pass": "forward", "optimizer step": "step"}
    rows = [row for row in MEASURED if max(("forward", "backward", "step"), key=row.__getitem__) == moment]
    assert rows
    clear = [row for row in rows if sorted((row["forward"], row["backward"], row["step"]))[-2] < 0.95 * row["peak"]]
    for row in clear:
        assert said.get(estimate(find_shape(row["shape"]), plan_of(row)).moment, "backward") == moment


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("bert-base-uncased", 109_514_298),
        ("roberta-base", 124_697_433),
        ("gpt2-xl", 1_557_611_200),
        ("llama-2-7b", 6_738_415_616),
        ("llama-3-8b", 8_030_261_248),
        ("llama-3.2-1b", 1_235_814_400),
        ("tinyllama-1.1b", 1_100_048_384),
        ("smollm2-360m", 361_821_120),
        ("mistral-7b", 7_241_732_096),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen3-8b", 8_190_735_360),
        ("vit-base-patch16-224", 86_567_656),
    ],
)
def test_well_known_models_have_as_many_parameters_as_was_published(name: str, count: int) -> None:
    assert estimate(find_shape(name), plan()).parameters == count


@pytest.mark.parametrize("name", ["t5-small", "bert-base", "smollm2-135m", "gpt2", "vit-base"])
@pytest.mark.parametrize("precision", list(PRECISIONS))
def test_more_rows_take_more_and_checkpointing_takes_less_activations(name: str, precision: str) -> None:
    shape = find_shape(name)
    one, many = estimate(shape, plan(precision, batch=1)), estimate(shape, plan(precision, batch=64))
    assert many.peak > 2 * one.peak
    again = estimate(shape, plan(precision, batch=64, checkpointing=True))
    assert again.activations < 0.4 * many.activations
    assert again.peak < many.peak
    assert (again.weights, again.optimizer, again.gradients) == (many.weights, many.optimizer, many.gradients)


def test_the_largest_batch_fits_and_one_more_row_does_not() -> None:
    shape = find_shape("mt5-small")
    most = largest_batch(shape, plan(), 16 * GIB)
    assert needed(estimate(shape, plan(batch=most)).peak) <= 16 * GIB
    assert needed(estimate(shape, plan(batch=most + 1)).peak) > 16 * GIB
    assert largest_batch(find_shape("llama-2-7b"), plan(), 16 * GIB) == 0


def test_adapters_need_gradients_and_moments_for_themselves_alone() -> None:
    shape = find_shape("llama-2-7b")
    whole, adapted = estimate(shape, plan("pure-bf16")), estimate(shape, plan("pure-bf16", lora=16))
    assert adapted.trained == 32 * 2 * 16 * (4096 + 4096)
    assert adapted.gradients == 4 * adapted.trained
    assert adapted.optimizer == 8 * adapted.trained
    assert adapted.activations < whole.activations
    assert adapted.weights == whole.weights + 4 * adapted.trained


def test_quantised_weights_under_adapters_take_a_half_and_a_quarter_of_bf16() -> None:
    shape = find_shape("llama-2-7b")
    full, eight, four = (
        estimate(shape, plan("pure-bf16", lora=16, base=base)).weights for base in ("full", "8bit", "4bit")
    )
    # The embedding and the output layer stay as they are, so it is a little more than that.
    assert 0.5 * full < eight < 0.6 * full
    assert 0.25 * full < four < 0.37 * full


def test_accumulated_gradients_are_there_at_the_peak() -> None:
    shape = find_shape("t5-base")
    alone = estimate(shape, plan(batch=8))
    assert estimate(shape, plan(batch=8, accumulate=True)).peak == alone.peak + alone.gradients


@pytest.mark.parametrize(
    ("optimizer", "bytes_a_weight"),
    [("adamw", 8.0), ("adamw-fused", 8.0), ("sgd", 4.0), ("sgd-plain", 0.0), ("lion", 4.0), ("adafactor", 0.02)],
)
def test_an_optimizer_holds_what_its_states_are(optimizer: str, bytes_a_weight: float) -> None:
    found = estimate(find_shape("bert-base"), plan("fp32", optimizer=optimizer))
    assert found.optimizer / found.parameters == pytest.approx(bytes_a_weight, abs=0.005)


def test_an_eight_bit_optimizer_keeps_two_bytes_for_matrices_and_eight_for_the_embedding() -> None:
    found = estimate(find_shape("llama-2-7b"), plan("fp32", optimizer="adamw-8bit"))
    table = 32000 * 4096
    assert found.optimizer == pytest.approx(2.03 * (found.parameters - table) + 8 * table, rel=0.01)


def test_cards_without_the_flash_kernel_hold_the_scores_of_grouped_queries() -> None:
    shape = find_shape("smollm2-135m")
    long = plan(seq=2048, target_seq=2048)
    assert estimate(shape, replace(long, flash=False)).peak > 1.5 * estimate(shape, long).peak
    alike = find_shape("gpt2")
    assert estimate(alike, plan(flash=False)).peak == estimate(alike, plan()).peak
