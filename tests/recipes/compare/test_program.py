from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from image_pairs import small_settings, small_table
from recipe_job import quiet
from stayfinite.cli.train import run
from stayfinite.errors import BadStep, LossError, NotReady, UsageError
from stayfinite.recipes.compare import build, train
from stayfinite.recipes.images.losses import Comparison


def _steps(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory: Path = tmp_path_factory.mktemp("trained")
    train(small_settings(directory, epochs=2, max_grad_norm=0.5), quiet)
    return directory / "run"


def test_a_training_leaves_everything_that_was_promised(trained: Path) -> None:
    for name in ("run.json", "run_meta.json", "result.json", "training_log.csv", "steps.jsonl", "confusion.png",
                 "best/model.safetensors", "last/model.safetensors", "best/processor_config.json"):  # fmt: skip
        assert (trained / name).is_file(), name
    result = json.loads((trained / "result.json").read_text())
    assert result["steps"] == 12
    assert sum(map(sum, result["confusion"])) == 2 * result["scores"]["pairs"]
    assert json.loads((trained / "run.json").read_text())["steps"] == 12


def test_the_training_log_has_a_line_an_epoch_with_what_people_ask_for(trained: Path) -> None:
    with (trained / "training_log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["epoch"], row["step"]) for row in rows] == [("1", "6"), ("2", "12")]
    for name in ("train_loss", "answer_loss", "consistency_loss", "grad_norm", "lr", "projector_lr", "accuracy",
                 "accuracy_first", "accuracy_similar", "swap_consistency", "val_loss", "memory_peak_mib"):  # fmt: skip
        assert rows[1][name], name
    losses = [record["loss"] for record in _steps(trained)[6:]]
    assert float(rows[1]["train_loss"]) == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_both_parts_of_the_loss_are_logged_apart_and_the_ramp_starts_at_nothing(trained: Path) -> None:
    records = _steps(trained)
    assert all(set(record["parts"]) == {"answer", "consistency"} for record in records)
    assert records[0]["loss"] == pytest.approx(records[0]["parts"]["answer"])
    last = records[-1]
    assert last["loss"] == pytest.approx(last["parts"]["answer"] + 0.5 * last["parts"]["consistency"], rel=1e-5)


def test_the_norm_is_clipped_and_the_raw_one_is_written_down(trained: Path) -> None:
    records = _steps(trained)
    assert any(record["decision"] == "clip" for record in records)
    assert all((record["decision"] == "clip") == (record["grad_norm"] > 0.5) for record in records)


def test_the_answers_that_were_looked_up_are_in_the_meta_file(trained: Path) -> None:
    meta = json.loads((trained / "run_meta.json").read_text())
    assert list(meta["answers"]) == ["First", "Second", "Similar"]
    assert len(set(meta["answers"].values())) == 3
    assert (meta["training_pairs"], meta["validation_pairs"]) == (24, 6)


def test_a_finished_run_that_is_started_again_says_the_same(trained: Path) -> None:
    before = json.loads((trained / "result.json").read_text())
    train(small_settings(trained.parent, epochs=2, max_grad_norm=0.5), quiet)
    after = json.loads((trained / "result.json").read_text())
    assert after["scores"] == before["scores"]
    assert after["evaluations"] == before["evaluations"]


def test_a_directory_of_another_run_is_left_alone(trained: Path) -> None:
    with pytest.raises(UsageError, match="other settings: batch_size 4 -> 8"):
        train(small_settings(trained.parent, epochs=2, batch_size=8), quiet)


def test_the_run_can_be_built_again_from_its_directory_alone(trained: Path) -> None:
    model, forward = build(trained)
    weights = load_file(trained / "best/model.safetensors")
    assert sum(p.numel() for p in model.parameters()) == sum(tensor.numel() for tensor in weights.values())
    batch = {
        "images": torch.zeros(2, 2, 3, 16, 16), "labels": torch.tensor([0, 2]), "rows": torch.arange(2),
        "consistency": torch.ones(2),
    }  # fmt: skip
    assert bool(forward(batch).isfinite())


def test_a_dry_run_shows_every_check_and_writes_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    table = small_table(tmp_path / "data")
    train(small_settings(tmp_path, train=str(table), dry_run=True), said.append)
    text = "\n".join(said)
    for check in ("model, batch and optimizer devices", "parameter coverage",
                  "training mode", "graph of the loss", "gradient coverage",
                  "labels", "6 steps planned"):  # fmt: skip
        assert check in text, check
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_max_steps_ends_in_the_middle_of_an_epoch_with_an_evaluation(tmp_path: Path) -> None:
    result = train(small_settings(tmp_path, epochs=5, max_steps=8), quiet)
    assert result.steps == 8
    with (tmp_path / "run/training_log.csv").open() as file:
        assert [(row["epoch"], row["step"]) for row in csv.DictReader(file)] == [("1", "6"), ("2", "8")]
    assert _steps(tmp_path / "run")[-1]["lr"] < 1e-4  # the schedule ends where the training does


def test_accumulation_takes_the_mean_of_its_batches(tmp_path: Path) -> None:
    settings = {"max_steps": 1, "consistency": 0.0, "class_weights": "none", "epochs": 1}
    train(small_settings(tmp_path / "one", batch_size=8, **settings), quiet)
    train(small_settings(tmp_path / "two", batch_size=4, accumulation=2, **settings), quiet)
    one, two = (_steps(tmp_path / name / "run")[0] for name in ("one", "two"))
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"learning_rate": 0.0}, "--learning-rate 0.0"),
        ({"projector_learning_rate": float("nan")}, "--projector-learning-rate nan"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"max_steps": 0}, "--max-steps 0"),
        ({"warmup_ratio": 1.5}, "--warmup-ratio 1.5: expected a number from 0 to 1"),
        ({"lora_dropout": 1.0}, "--lora-dropout 1.0"),
        ({"workers": -1}, "--workers -1"),
        ({"base": "4bit", "tuning": "full"}, "--base 4bit with --tuning full"),
        ({"device": "abacus"}, "--device abacus"),
        ({"max_grad_norm": float("inf")}, "--max-grad-norm inf"),
        ({"image_dir": "nowhere"}, "nowhere"),
        ({"answers": ("Yes", "Yes", "No")}, "three different words"),
        ({"answers": ("Yes", "No", "No idea")}, "share a first token"),
        ({"model": "./no-such-model"}, "cannot load the processor of './no-such-model'"),
    ],
)
def test_a_setting_that_cannot_work_is_named_before_anything_is_written(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        train(small_settings(tmp_path, **changed), quiet)
    assert not (tmp_path / "run/run.json").exists()


def test_a_fold_that_there_is_not_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--fold 9: expected 0 to 4"):
        train(small_settings(tmp_path, fold=9), quiet)
    assert not (tmp_path / "run").exists()


def test_a_file_in_the_place_of_the_directory_is_named_and_stays(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(UsageError, match="run is a file"):
        train(small_settings(tmp_path), quiet)
    assert (tmp_path / "run").read_text() == "mine"


def test_the_command_names_a_missing_table_and_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "--train", str(tmp_path / "gone.csv"), "--output-dir", str(tmp_path / "run")]) == 2
    assert "gone.csv: no such file" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_deterministic_holds_for_the_training_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    plain = Comparison.loss

    def noting(self: Comparison, batch: Any) -> Any:
        seen.append(torch.are_deterministic_algorithms_enabled())
        return plain(self, batch)

    monkeypatch.setattr(Comparison, "loss", noting)
    train(small_settings(tmp_path, deterministic=True, max_steps=1), quiet)
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_detached_loss_is_named_by_the_check_and_by_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Comparison.logits
    monkeypatch.setattr(Comparison, "logits", lambda self, batch: plain(self, batch).detach())
    with pytest.raises(NotReady, match="the check before step 1 found"):
        train(small_settings(tmp_path, check="stop", batch_size=2), quiet)
    assert not (tmp_path / "run/steps.jsonl").exists()
    with pytest.raises(LossError, match="grad"):
        train(small_settings(tmp_path, check="off", batch_size=2), quiet)


@pytest.mark.filterwarnings("ignore:Error detected in:UserWarning")
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")
@pytest.mark.slow
def test_detect_anomaly_stops_at_the_operator_whose_gradient_is_not_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Comparison.loss

    def edged(self: Comparison, batch: Any) -> Any:
        loss = plain(self, batch)
        return loss + (loss - loss.detach()).sqrt() * 0  # the root of 0 has an infinite slope, and 0 x inf is NaN

    monkeypatch.setattr(Comparison, "loss", edged)
    with pytest.raises(BadStep, match=r"SqrtBackward0.*returned nan values"):
        train(small_settings(tmp_path, detect_anomaly=True), quiet)
    assert not torch.is_anomaly_enabled()
    # Without it the guard refuses the step and training goes on.
    result = train(replace(small_settings(tmp_path), output_dir=str(tmp_path / "guarded"), max_steps=2), quiet)
    assert {record["decision"] for record in _steps(result.directory)} == {"veto"}
