from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

from mmdit_runs import SMALL, events_of, run, spoil, steps_of, write_data
from quick_ones import quick_ones
from recipe_job import weights_of
from stayfinite.cli import train as command
from stayfinite.errors import LoaderFailed, NotReady, UsageError
from stayfinite.recipes.diffusion.toy import write_toy_set
from stayfinite.recipes.mmdit import Mmdit


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "pairs")


@pytest.mark.parametrize("mode", ["unconditional", "l2t", "t2l", "sequential", "random"])
def test_every_mode_trains_and_logs_its_losses_apart(data, tmp_path, mode):
    said: list[str] = []
    result = run(data, tmp_path / "run", said, mode=mode, steps=3, eval_steps=3)
    wanted = {"l2t": {"text"}, "t2l": {"latent"}}.get(mode, {"text", "latent"})
    lines = steps_of(tmp_path / "run")
    assert all(set(line["parts"]) == wanted for line in lines)
    for line in lines:
        parts = line["parts"]
        assert line["loss"] == pytest.approx(parts.get("text", 0.0) + 0.1 * parts.get("latent", 0.0), rel=1e-5)
    assert np.isfinite(result.last_loss)
    frozen = [line for line in said if "are frozen" in line]
    assert bool(frozen) == (mode in ("l2t", "t2l"))
    assert np.isfinite(result.scores.token_accuracy) == (mode != "t2l")
    assert np.isfinite(result.scores.latent_correlation) == (mode != "l2t")


@pytest.mark.parametrize("schedule", quick_ones(["linear", "cosine", "sigmoid"], "linear"))
@pytest.mark.parametrize("prediction", ["epsilon", "x0", "v"])
def test_every_schedule_and_prediction_trains(data, tmp_path, schedule, prediction):
    result = run(data, tmp_path / "run", noise_schedule=schedule, prediction=prediction, steps=2, eval_steps=2)
    assert np.isfinite(result.last_loss)


def test_what_a_run_writes_can_be_found(data, tmp_path):
    output = tmp_path / "run"
    said: list[str] = []
    run(data, output, said, logging_steps=2, check="stop")
    launch = json.loads((output / "run.json").read_text())
    assert (launch["recipe"], launch["steps"]) == ("mmdit", 6)
    result = json.loads((output / "result.json").read_text())
    assert result["flops_per_second"] > 0
    assert result["tokens_per_second"] > 0
    assert {"loss", "token_accuracy", "token_chance", "latent_correlation"} <= set(result["scores"])
    assert json.loads((output / "check.json").read_text())["verdict"] == "healthy"
    assert (output / "best" / "model.safetensors").exists()
    line = next(line for line in said if line.startswith("step      2"))
    assert all(word in line for word in ("text", "latent", "tokens/s", "FLOP/s"))


def test_accumulated_batches_take_the_step_of_one_large_batch(data, tmp_path):
    run(data, tmp_path / "one", batch_size=8)
    run(data, tmp_path / "two", batch_size=4, accumulation=2)
    for one, two in zip(steps_of(tmp_path / "one"), steps_of(tmp_path / "two"), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=1e-4)
        assert one["grad_norm"] == pytest.approx(two["grad_norm"], rel=1e-3)


def test_gradients_are_clipped_to_the_norm_that_was_asked_for(data, tmp_path):
    run(data, tmp_path / "run", max_grad_norm=1e-3)
    assert {line["decision"] for line in steps_of(tmp_path / "run")} == {"clip"}


def test_the_learning_rate_rises_then_falls_as_asked(data, tmp_path):
    for schedule in ("constant", "linear", "cosine"):
        output = tmp_path / schedule
        run(data, output, schedule=schedule, steps=20, eval_steps=20, warmup_steps=2, batch_size=2)
        rates = [line["lr"] for line in steps_of(output)]
        assert rates[0] < rates[1] < rates[2]
        assert rates[2] == pytest.approx(1e-3)
        assert (rates[-1] < 2e-4) == (schedule != "constant")


def test_a_row_with_nan_stops_the_start_and_is_named(data, tmp_path):
    spoil(data)
    with pytest.raises(NotReady, match=r"scenes-001.npy row 3: 8 of 324 values are NaN or inf"):
        run(data, tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_row_with_nan_can_be_left_out(data, tmp_path):
    spoil(data)
    result = run(data, tmp_path / "run", bad_rows="skip")
    assert np.isfinite(result.last_loss)


def test_a_row_with_nan_that_is_kept_is_refused_by_the_guard_and_its_file_is_named(data, tmp_path):
    spoil(data)
    output = tmp_path / "run"
    result = run(data, output, bad_rows="keep", steps=12, eval_steps=12)
    refused = [event for event in events_of(output) if event["event"] == "veto"]
    assert len(refused) == 1  # 12 steps are an epoch, and one of them has the row
    incident = json.loads((output / "incidents" / "0001" / "incident.json").read_text())
    assert any("scenes-001.npy row 3" in row["text"] for row in incident["rows"])
    autopsy = json.loads((output / "incidents" / "0001" / "autopsy.json").read_text())
    assert "bad-data-row" in json.dumps(autopsy)
    assert all(torch.isfinite(tensor).all() for tensor in weights_of(output).values())
    assert np.isfinite(result.scores.loss)


def test_the_incident_of_a_run_can_be_replayed_from_its_directory_alone(data, tmp_path, capsys):
    from stayfinite.cli import main

    spoil(data)
    output = tmp_path / "run"
    run(data, output, bad_rows="keep", steps=14, eval_steps=14, mode="l2t")
    data.rename(tmp_path / "away")
    code = main(["replay", str(output / "incidents" / "0001")])
    told = capsys.readouterr().out
    assert code == 1
    assert "bad-data-row" in told


def break_after_start(monkeypatch, harm):
    from stayfinite.recipes import mmdit

    monkeypatch.setattr("stayfinite.recipes.diffusion.corpus.MEMORY", 0)
    real = mmdit.read_supply

    def read_then_break(*args, **kwargs):
        supply = real(*args, **kwargs)
        harm()
        return supply

    monkeypatch.setattr(mmdit, "read_supply", read_then_break)


def test_a_row_that_breaks_after_the_start_is_passed_over_by_name(data, tmp_path, monkeypatch):
    break_after_start(monkeypatch, lambda: spoil(data))
    run(data, tmp_path / "run", steps=11, eval_steps=11)
    errors = [event for event in events_of(tmp_path / "run") if event["event"] == "loader-error"]
    assert len(errors) == 1
    assert "scenes-001.npy row 3 is now NaN or inf" in errors[0]["error"]


def test_a_file_that_vanishes_after_the_start_stops_the_training_by_name(data, tmp_path, monkeypatch):
    break_after_start(monkeypatch, (data / "latents" / "scenes-001.npy").unlink)
    with pytest.raises(LoaderFailed, match="scenes-001.npy is missing"):
        run(data, tmp_path / "run", steps=60, eval_steps=60, batch_size=2)


@pytest.mark.slow
def test_an_overflow_in_fp16_is_found_before_the_first_step(data, tmp_path):
    spoil(data, row=3, value=3e5, file="scenes-000")
    spoil(data, row=3, value=3e5)
    with pytest.raises(NotReady, match="fp16-overflow"):
        run(data, tmp_path / "run", bad_rows="keep", precision="fp16", check="stop", batch_size=64)


@pytest.mark.slow
def test_an_overflow_in_fp16_while_training_is_refused_and_explained(data, tmp_path):
    spoil(data, row=3, value=3e5)
    output = tmp_path / "run"
    result = run(data, output, bad_rows="keep", precision="fp16", steps=14, eval_steps=14)
    autopsy = json.loads((output / "incidents" / "0001" / "autopsy.json").read_text())
    assert autopsy["cause"] == "fp16-overflow"
    assert all(torch.isfinite(tensor).all() for tensor in weights_of(output).values())
    assert np.isfinite(result.scores.loss)


def test_the_same_data_in_fp32_is_ready(data, tmp_path):
    run(data, tmp_path / "run", check="stop", batch_size=64, steps=1)


def test_an_unreadable_file_is_wrong_use_and_nothing_is_written(data, tmp_path, capsys):
    (data / "latents" / "scenes-002.npy").write_bytes(b"not numpy")
    code = command.run(["mmdit", "--data", str(data), "--output-dir", str(tmp_path / "run"), "--device", "cpu"])
    assert code == 2
    assert re.search("cannot read .*scenes-002.npy", capsys.readouterr().err)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learning_rate": 0.0}, "--learning-rate 0.0: expected a number above 0"),
        ({"learning_rate": float("nan")}, "--learning-rate nan"),
        ({"loss_bound": -1.0}, "--loss-bound -1.0: expected a number of at least 0"),
        ({"val_share": 1.0}, "--val-share 1.0"),
        ({"mode": "l2t", "text_weight": 0.0}, "all of its losses have weight 0"),
        ({"vocab_size": 5}, "the data has token id"),
        ({"batch_size": 1000}, "a batch of 1000 rows exceeds the 96 training rows"),
        ({"heads": 3}, "the heads dividing the width"),
        ({"patch": 2}, "--patch 2 does not divide"),
        ({"start_from": "nowhere"}, "model.safetensors is missing in nowhere"),
        ({"val": "nowhere"}, "nowhere is not a directory"),
    ],
)
def test_settings_that_cannot_work_are_refused(data, tmp_path, settings, words):
    with pytest.raises(UsageError, match=words):
        run(data, tmp_path / "run", **settings)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_model_can_be_trained_further_with_one_side_frozen(data, tmp_path):
    run(data, tmp_path / "joint")
    before = weights_of(tmp_path / "joint")
    run(data, tmp_path / "further", mode="l2t", freeze="stream", start_from=str(tmp_path / "joint"))
    after = weights_of(tmp_path / "further")
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {name for name in before if "latent" in name}


def test_validation_can_be_a_directory_of_its_own(data, tmp_path):
    other = tmp_path / "other"
    write_toy_set(other, rows=40, seed=1)
    said: list[str] = []
    run(data, tmp_path / "run", said, val=str(other), steps=1)
    assert any("training on 120 rows" in line for line in said)


@pytest.mark.parametrize("mode", ["sequential", "random"])
def test_one_row_is_enough_to_tell_which_model_is_the_best(tmp_path, mode):
    write_toy_set(tmp_path / "pairs", rows=40)
    for part, ending in (("tokens", "npz"), ("latents", "npy")):
        (tmp_path / "val" / part).mkdir(parents=True)
        source = next((tmp_path / "pairs" / part).glob(f"*.{ending}"))
        held = np.load(source)
        if part == "tokens":
            np.savez(tmp_path / "val" / part / "one.npz", **{name: held[name][::-1][:1] for name in held.files})
        else:
            np.save(tmp_path / "val" / part / "one.npy", held[:1])
    result = run(tmp_path / "pairs", tmp_path / "run", mode=mode, val=str(tmp_path / "val"), steps=4, eval_steps=2)
    assert all(np.isfinite([result.scores.loss, result.scores.text_loss, result.scores.latent_loss]))
    assert result.scores.loss == pytest.approx(result.scores.text_loss + 0.1 * result.scores.latent_loss)


def test_an_evaluation_changes_nothing_of_the_training(data, tmp_path):
    run(data, tmp_path / "often", eval_steps=1, dropout=0.1)
    run(data, tmp_path / "once", eval_steps=6, dropout=0.1)
    often, once = (steps_of(tmp_path / name) for name in ("often", "once"))
    assert [line["loss"] for line in often] == [line["loss"] for line in once]


def test_workers_change_no_number(data, tmp_path):
    run(data, tmp_path / "none", steps=2, eval_steps=2)
    run(data, tmp_path / "some", steps=2, eval_steps=2, workers=1)
    none, some = (steps_of(tmp_path / name) for name in ("none", "some"))
    assert [line["loss"] for line in none] == [line["loss"] for line in some]


def test_the_usual_settings_are_those_of_the_reports():
    assert (Mmdit().learning_rate, Mmdit().max_grad_norm, Mmdit().text_weight, Mmdit().latent_weight) == (
        5e-5, 0.5, 1.0, 0.1,
    )  # fmt: skip
    assert SMALL["check"] == "off"
