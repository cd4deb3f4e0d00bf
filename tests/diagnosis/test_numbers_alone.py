"""A run that shows numbers alone is sick where they cannot be those of one that learns; its look-alike is healthy."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence

import pytest

from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.diagnosis import Diagnosis
from stayfinite.diagnosis.reading import read_text

Columns = dict[str, Sequence[float]]
LENGTH = 16


def pairs(rows: list[dict[str, float]]) -> str:
    return "".join(", ".join(f"{name}: {value:.6g}" for name, value in row.items()) + "\n" for row in rows)


def table(rows: list[dict[str, float]]) -> str:
    return ",".join(rows[0]) + "\n" + "".join(",".join(f"{value:.6g}" for value in row.values()) + "\n" for row in rows)


def records(rows: list[dict[str, float]]) -> str:
    return "".join(json.dumps({name: float(f"{value:.6g}") for name, value in row.items()}) + "\n" for row in rows)


def falling(draw: random.Random, first: float = 2.3, last: float = 0.4, noise: float = 0.02) -> list[float]:
    return [(last + (first - last) * math.exp(-at / 4)) * (1 + draw.gauss(0, noise)) for at in range(LENGTH)]


def rising(draw: random.Random, first: float, last: float, noise: float = 0.004) -> list[float]:
    return [last - (last - first) * math.exp(-at / 4) - abs(draw.gauss(0, noise)) for at in range(LENGTH)]


def shrinking(share: float, first: float = 1.0) -> list[float]:
    return [first * share**at for at in range(LENGTH)]


def still(value: float) -> list[float]:
    return [value] * LENGTH


def at_first(values: Sequence[float], rest: float) -> list[float]:
    return [*values, *still(rest)][:LENGTH]


Made = Callable[[random.Random], Columns]
CASES: dict[str, tuple[str, Made, Made]] = {
    "a share above 1, and one in percent": (
        "at most 1",
        lambda draw: {"loss": falling(draw), "accuracy": rising(draw, 0.6, 1.9)},
        lambda draw: {"loss": falling(draw, 6.9, 6.1), "accuracy": rising(draw, 0.2, 1.9)},
    ),
    "an area above 1, and one of few positives": (
        "at most 1",
        lambda draw: {"loss": falling(draw), "auc": rising(draw, 1.05, 1.3)},
        lambda draw: {"loss": falling(draw), "pr_auc": rising(draw, 0.01, 0.12)},
    ),
    "an order upside down, and one that begins there": (
        "reversed",
        lambda draw: {"loss": falling(draw, 0.69, 0.3), "auc": rising(draw, 0.4, 0.2)},
        lambda draw: {"loss": falling(draw, 0.69, 0.3), "auc": rising(draw, 0.3, 0.8)},
    ),
    "a distance below 0, and a likelihood": (
        "never negative",
        lambda draw: {"mse": rising(draw, -0.2, -0.9)},
        lambda draw: {"nll": rising(draw, -0.2, -2.1)},
    ),
    "features that are all alike, and a noise that is taken away": (
        "feat_std falls",
        lambda draw: {"loss": falling(draw), "feat_std": shrinking(0.3)},
        lambda draw: {"loss": falling(draw), "noise_std": shrinking(0.3)},
    ),
    "a policy that is sure of nothing, and one that has learned": (
        "entropy falls",
        lambda draw: {"return": rising(draw, 90, 10), "entropy": shrinking(0.4, 1.8)},
        lambda draw: {"return": rising(draw, 10, 90), "entropy": shrinking(0.4, 1.8)},
    ),
    "one code for everything, and a codebook in use": (
        "one code",
        lambda draw: {"recon_error": rising(draw, 0.2, 0.2), "perplexity": at_first([30.0, 9.0, 2.0], 1.0)},
        lambda draw: {"recon_error": falling(draw, 0.3, 0.05), "perplexity": rising(draw, 9.0, 300.0)},
    ),
    "a scale that only shrinks, and one that is found": (
        "loss scale falls",
        lambda draw: {"loss": falling(draw), "loss_scale": shrinking(0.25, 65536.0)},
        lambda draw: {"loss": falling(draw), "loss_scale": at_first([65536.0, 32768.0, 16384.0], 8192.0)},
    ),
    "work that stops, and a pause": (
        "falls from",
        lambda draw: {"loss": falling(draw), "tokens_per_s": at_first([9100.0, 9050.0, 9080.0, 9111.0], 0.0)},
        lambda draw: {"loss": falling(draw), "tokens_per_s": at_first([9100.0, 0.0, 9080.0, 0.0], 9111.0)},
    ),
    "a loss that is back, and a new task": (
        "is back at",
        lambda draw: {"loss": [*falling(draw, 9.0, 2.0)[:10], *(9.0 + draw.gauss(0, 0.02) for _ in range(6))]},
        lambda draw: {"loss": [*falling(draw, 9.0, 2.0)[:10], *falling(draw, 9.0, 2.0)[:6]]},
    ),
    "sureness that helps no accuracy": (
        "needs more correct answers",
        lambda draw: {"loss": falling(draw, 0.7, 0.05), "acc": [0.5 + draw.gauss(0, 0.005) for _ in range(LENGTH)]},
        lambda draw: {"loss": falling(draw, 0.7, 0.05), "acc": rising(draw, 0.5, 0.98)},
    ),
    "an evaluation at chance, and one that begins there": (
        "chance",
        lambda draw: {"train_loss": falling(draw), "val_acc": still(0.1)},
        lambda draw: {"train_loss": falling(draw), "val_acc": [0.1, 0.1, 0.1, *rising(draw, 0.2, 0.7)][:LENGTH]},
    ),
    "pictures that were good, and pictures that get better": (
        "had fallen from",
        lambda draw: {"loss_g": still(1.1), "fid": [*falling(draw, 90, 20)[:8], *rising(draw, 95, 300)[:8]]},
        lambda draw: {"loss_g": rising(draw, 1.0, 1.2), "fid": falling(draw, 300, 9)},
    ),
    "text that is known, and text that is learned": (
        "impossible for real text",
        lambda draw: {"train_loss": falling(draw, 10.8, 0.001), "val_loss": at_first([10.8, 3.0], 0.0004)},
        lambda draw: {"train_loss": falling(draw, 10.8, 3.2), "val_loss": falling(draw, 10.8, 3.4)},
    ),
    "a generator that cannot lose, and two that are even": (
        "the generator's loss is 0",
        lambda draw: {"d_loss": rising(draw, 2, 30), "g_loss": at_first([0.6, 0.1, 0.01], 0.0)},
        lambda draw: {"d_loss": [draw.uniform(0.9, 1.4) for _ in range(LENGTH)],
                      "g_loss": [draw.uniform(0.6, 1.2) for _ in range(LENGTH)]},
    ),
    "a score that is lost, and a hard one that is late": (
        "back where it started",
        lambda draw: {"loss": falling(draw), "val_map": [*rising(draw, 0.1, 0.4)[:10], *still(0.0)][:LENGTH]},
        lambda draw: {"loss": falling(draw), "val_map": [*still(0.0)[:6], *rising(draw, 0.02, 0.3)][:LENGTH]},
    ),
    "an error at its worst, and one that leaves it": (
        "does not change",
        lambda draw: {"loss": falling(draw, 0.8, 0.2), "smape": still(200.0)},
        lambda draw: {"loss": falling(draw, 0.8, 0.2), "smape": [200.0, *falling(draw, 190, 20)][:LENGTH]},
    ),
    "no target at all, and a first batch without": (
        "no target is assigned",
        lambda draw: {"loss": falling(draw, 1.2, 1.1), "num_pos": still(0)},
        lambda draw: {"loss": falling(draw), "num_pos": [0, 0, *(draw.randint(3, 40) for _ in range(14))]},
    ),
}  # fmt: skip


def diagnosed(columns: Columns, shape: Callable[[list[dict[str, float]]], str]) -> Diagnosis:
    steps = {"step": [100.0 * at for at in range(LENGTH)]} | dict(columns)
    rows = [dict(zip(steps, row, strict=True)) for row in zip(*steps.values(), strict=True)]
    return judge_reading(read_text(shape(rows)))


@pytest.mark.parametrize("shape", [pairs, table, records])
@pytest.mark.parametrize("case", CASES)
def test_numbers_that_no_run_that_learns_has_are_told_and_those_of_one_that_does_are_not(
    case: str, shape: Callable[[list[dict[str, float]]], str]
) -> None:
    words, sick, healthy = CASES[case]
    for seed in range(3):
        draw = random.Random(f"{case} {seed}")
        found, fine = diagnosed(sick(draw), shape), diagnosed(healthy(draw), shape)
        assert found.verdict == "sick"
        assert any(words in told for told in found.trouble), found.trouble
        assert fine.verdict == "healthy", fine.trouble


def test_what_is_odd_is_told_with_the_step_from_which_on_it_is() -> None:
    found = diagnosed({"loss": [2.0 / (1 + at) for at in range(LENGTH)], "feat_std": at_first([0.9] * 8, 0.0)}, pairs)
    assert found.trouble == ["feat_std falls from 0.9 to 0, from step 800"]


def test_swings_beside_huge_gradients_are_told_and_those_of_single_rows_are_not() -> None:
    draw = random.Random(0)
    losses = [draw.uniform(3, 14) for _ in range(30)]
    for norm, verdict in ((400.0, "sick"), (4.0, "healthy")):
        rows = [{"step": at, "loss": loss, "grad_norm": norm * draw.uniform(0.5, 2)} for at, loss in enumerate(losses)]
        assert judge_reading(read_text(pairs(rows))).verdict == verdict


def test_a_divergence_of_a_latent_code_is_none_of_a_policy() -> None:
    draw = random.Random(0)
    assert (
        diagnosed({"elbo": rising(draw, -140, -105), "kl": rising(draw, 24.5, 25.5, 0.2)}, pairs).verdict == "healthy"
    )


@pytest.mark.parametrize(
    ("line", "sick", "healthy"),
    [
        ("fit progress: ({0}, {1}, {{'accuracy': 0.3{0}}}, 12.{0})", "nan", "0.9{0}"),
        ("train_loss -0.{0}11\nPseudo dice [{1}, np.float32(0.0)]", "0.0", "0.7{0}"),
        ("Test set: Average loss: 2.{0}, Accuracy: {1}%)", "1000/10000 (10", "9{0}00/10000 (9{0}"),
        ("| AverageEpRet | {1} |", "nan", "12{0}.5"),
    ],
)
def test_rounds_classes_shares_and_boxes_are_read(line: str, sick: str, healthy: str) -> None:
    for value, verdict in ((sick, "sick"), (healthy, "healthy")):
        log = "".join(line.format(at, value.format(at)) + "\n" for at in range(1, 9))
        assert judge_reading(read_text(log)).verdict == verdict


@pytest.mark.parametrize(
    ("line", "sick", "healthy"),
    [
        ("Epoche {0}: loss {1}  acc 0,5{0}", "2,3026", "1,{2}11{0}"),
        ("Epoch {0}: Loss = 1.{2}2, Acc = 0.5{0}, Val Loss = {1}, Val Acc = 0.51", "nan", "1.{2}5"),
        ("epoch {0} train/loss 1.{2}63 val/loss 1.8342 val/acc {1}", "0.3719", "0.37{0}9"),
        ("| train/loss | 1.{2}21 |\n| train/acc | {1} |", "0.3719", "0.37{0}9"),
        ("{0} {1} 0.5{0} 11.5", "{3}.0", "1.{2}1"),
    ],
)
def test_numbers_are_read_however_they_are_written(line: str, sick: str, healthy: str) -> None:
    for value, is_sick in ((sick, True), (healthy, False)):
        rows = [(at, "", 9 - at, 40 * 3**at) for at in range(1, 10)]
        log = "".join(line.format(at, value.format(at, "", left, big), left) + "\n" for at, _, left, big in rows)
        assert (judge_reading(read_text(log)).verdict == "sick") == is_sick, log


def test_what_boosting_says_before_it_begins_is_no_complaint() -> None:
    log = "Training until validation scores don't improve for 50 rounds\n"
    log += "".join(f"[{10 * at}]\ttraining's auc: 0.9{at}12\tvalid_1's auc: 0.8{at}04\n" for at in range(1, 9))
    assert judge_reading(read_text(log)).verdict == "healthy"
