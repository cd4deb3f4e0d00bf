"""A program's curves and evaluations, as a logger has them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from stayfinite.errors import MissingExtra
from stayfinite.integrations.loggers.live import SinkFailed
from stayfinite.recipes.running import logbook
from stayfinite.recipes.running.logbook import sinks_of, telling


def write_steps(run, steps):
    run.mkdir(exist_ok=True)
    with (run / "steps.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"step": step, "loss": 1.0 / step, "grad_norm": 1.0}) + "\n" for step in steps)


def curves_in(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = accumulator.EventAccumulator(str(folder))
    board.Reload()
    return {tag: [(event.step, event.value) for event in board.Scalars(tag)] for tag in board.Tags()["scalars"]}


def test_tensorboard_has_the_loss_of_every_step_and_the_evaluations(tmp_path):
    run = tmp_path / "run"
    with telling(["tensorboard", "tensorboard"], run) as tell:
        write_steps(run, range(1, 5))
        tell(4, {"bleu": 50.0})
    curves = curves_in(run / "tensorboard")
    assert [step for step, _ in curves["stayfinite/loss"]] == [1, 2, 3, 4]
    assert curves["stayfinite/loss"][3][1] == pytest.approx(0.25)
    assert curves["evaluation/bleu"] == [(4, 50.0)]


def test_a_run_that_goes_on_does_not_tell_its_first_steps_again(tmp_path):
    write_steps(tmp_path / "run", range(1, 3))
    with telling(["tensorboard"], tmp_path / "run"):
        write_steps(tmp_path / "run", range(3, 5))
    curves = curves_in(tmp_path / "run" / "tensorboard")
    assert [step for step, _ in curves["stayfinite/loss"]] == [3, 4]


def test_without_a_logger_nothing_is_written(tmp_path):
    with telling([], tmp_path / "run") as tell:
        tell(1, {"bleu": 50.0})
    assert not (tmp_path / "run").exists()


def test_a_logger_that_fails_is_told_nothing_any_more_and_training_goes_on(tmp_path, monkeypatch):
    class Full:
        told = 0

        def __init__(self, **settings):
            return

        def scalars(self, step, values):
            Full.told += 1
            raise OSError("the disk is full")

        def close(self):
            return

    monkeypatch.setattr(logbook, "WandbSink", Full)
    with telling(["wandb"], tmp_path / "run") as tell:
        with pytest.warns(SinkFailed, match="the disk is full"):
            tell(1, {"bleu": 1.0})
        tell(2, {"bleu": 2.0})
    assert Full.told == 1


def test_a_logger_that_cannot_be_opened_costs_its_curves_and_not_the_training(tmp_path, monkeypatch):
    def refuse(**settings):
        raise RuntimeError("no API key configured")

    monkeypatch.setattr(logbook, "WandbSink", refuse)
    with pytest.warns(SinkFailed, match="wandb gets no records: RuntimeError: no API key"):
        opened = sinks_of(["wandb", "tensorboard"], tmp_path)
    assert [type(each).__name__ for each in opened] == ["TensorBoardSink"]
    opened[0].close()


def test_a_logger_that_is_not_installed_is_an_error_with_the_line_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtra, match="loggers"):
        sinks_of(["wandb"], tmp_path)


def test_wandb_writes_into_the_run_and_lists_it_by_its_directory_unless_its_variables_say_otherwise(
    tmp_path, monkeypatch
):
    asked = []
    monkeypatch.setattr(logbook, "WandbSink", lambda **settings: asked.append(settings))
    for variable in ("WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(variable, raising=False)
    sinks_of(["wandb"], tmp_path / "first")
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    monkeypatch.setenv("WANDB_DIR", "elsewhere")
    sinks_of(["wandb"], tmp_path / "first")
    assert asked == [
        {"name": "first", "project": "stayfinite", "dir": str(tmp_path / "first")},
        {"name": "first"},
    ]


IN_TRACKIO = """
import json, sys
from pathlib import Path
from stayfinite.recipes.running.logbook import telling
run = Path(sys.argv[1])
run.mkdir()
with telling(["trackio"], run) as tell:
    (run / "steps.jsonl").write_text(json.dumps({"step": 1, "loss": 0.5, "grad_norm": 1.0}) + "\\n")
    tell(1, {"accuracy": 0.75})
from trackio.sqlite_storage import SQLiteStorage
logs = SQLiteStorage.get_logs("stayfinite", "first")
print(sorted({name: value for line in logs for name, value in line.items() if "/" in name}.items()))
"""


@pytest.mark.timeout(400)
def test_trackio_has_the_curves_and_evaluations_of_a_run_by_the_name_of_its_directory(tmp_path, monkeypatch):
    # It decides where it writes when it is loaded, so in a process of its own.
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    done = subprocess.run(
        [sys.executable, "-c", IN_TRACKIO, str(tmp_path / "first")],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert "('evaluation/accuracy', 0.75)" in done.stdout, done.stderr[-2000:]
    assert "('stayfinite/loss', 0.5)" in done.stdout
