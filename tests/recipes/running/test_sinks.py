"""A program's curves and evaluations, as a logger has them."""

from __future__ import annotations

import json

import pytest

from stayfinite.integrations.loggers.live import SinkFailed
from stayfinite.recipes.running import sinks
from stayfinite.recipes.running.sinks import telling


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

        def scalars(self, step, values):
            Full.told += 1
            raise OSError("the disk is full")

        def close(self):
            return

    monkeypatch.setattr(sinks, "WandbSink", Full)
    with telling(["wandb"], tmp_path / "run") as tell:
        with pytest.warns(SinkFailed, match="the disk is full"):
            tell(1, {"bleu": 1.0})
        tell(2, {"bleu": 2.0})
    assert Full.told == 1
