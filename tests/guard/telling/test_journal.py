"""The run directory: run.json, a line a step, a line an event."""

from __future__ import annotations

import json

import pytest
import torch

from run_files import events_of, lines_of
from stayfinite import Policy, TrainingDiverged
from tiny_training import Training


def test_a_run_writes_a_line_a_step_and_a_line_an_event(tmp_path):
    training = Training(
        "AdamW-plain", "fp16-autocast", run_dir=tmp_path / "deep" / "run", policy=Policy(sample_every=2)
    )
    training.good(3)
    loss = training.loss() * float("nan")
    training.guard.step(loss, parts={"fit": loss, "penalty": 0.25})
    training.good()
    training.guard.close()
    run = tmp_path / "deep" / "run"
    written = ["events.jsonl", "layers.npz", "report.html", "run.json", "steps.jsonl"]
    assert sorted(path.name for path in run.iterdir()) == written

    steps = lines_of(run / "steps.jsonl")
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5]
    assert [line["decision"] == "veto" for line in steps] == [False, False, False, True, False]
    assert list(steps[0]) == ["version", "step", "loss", "grad_norm", "lr", "loss_scale", "decision", "code"]
    assert steps[3]["loss"] != steps[3]["loss"]
    assert steps[3]["parts"] == {"fit": pytest.approx(float("nan"), nan_ok=True), "penalty": 0.25}
    assert steps[0]["lr"] == 1e-3 > steps[1]["lr"]
    assert (steps[3]["loss_scale"], steps[4]["loss_scale"]) == (512, 256)

    events = lines_of(run / "events.jsonl")
    assert [event["event"] for event in events] == ["start", "veto", "closed"]
    assert all(event["version"] == 1 and event["time"].endswith("+00:00") for event in events)
    veto = events[1]
    assert (veto["step"], veto["code"], veto["batch"], veto["bad_count"]) == (4, "loss-not-finite", 4, 6)
    assert veto["bad_parameters"][0] == "up.weight"
    assert "its part fit nan" in veto["reason"]


def test_run_json_says_what_was_launched(tmp_path):
    training = Training(run_dir=tmp_path, max_norm=0.5)
    training.good()
    record = json.loads((tmp_path / "run.json").read_text())
    launch = record["launches"][0]
    assert record["version"] == 1
    assert (
        launch["versions"]["torch"] == torch.__version__.split("+")[0]
        or launch["versions"]["torch"] == torch.__version__
    )
    assert launch["model"] == {"class": "TinyNet", "parameters": 484, "trainable": 484, "dtypes": {"float32": 6}}
    assert launch["optimizer"]["class"] == "AdamW"
    assert (launch["optimizer"]["groups"][0]["lr"], launch["optimizer"]["groups"][0]["tensors"]) == (1e-3, 6)
    assert (launch["max_norm"], launch["policy"]["window"], launch["devices"]) == (0.5, 128, ["cpu"])


def test_run_json_collects_the_launches_and_the_lines_go_on(tmp_path):
    state = None
    for _ in range(3):
        training = Training(run_dir=tmp_path)
        if state is not None:
            training.guard.load_state_dict(state)
        training.good(2)
        state = training.guard.state_dict()
        training.guard.close()
    assert len(json.loads((tmp_path / "run.json").read_text())["launches"]) == 3
    assert [line["step"] for line in lines_of(tmp_path / "steps.jsonl")] == [1, 2, 3, 4, 5, 6]
    assert events_of(tmp_path) == ["start", "closed", "restart", "closed", "restart", "closed"]


def test_a_guard_that_takes_no_step_writes_nothing(tmp_path):
    training = Training(run_dir=tmp_path / "run")
    training.guard.close()
    assert not (tmp_path / "run").exists()
    assert training.console.lines == []


def test_the_end_of_a_run_is_written_down_whatever_it_was(tmp_path):
    stopped = Training(run_dir=tmp_path / "stopped", policy=Policy(max_vetoes_in_a_row=1, max_cuts=0))
    with pytest.raises(TrainingDiverged), stopped.guard:
        stopped.bad_ones(3 * ["nan-loss"])
    assert events_of(tmp_path / "stopped") == ["start", "veto", "stop", "stopped"]
    failed = Training(run_dir=tmp_path / "failed")
    failed.good()
    with pytest.raises(KeyError), failed.guard:
        raise KeyError("batch")
    last = lines_of(tmp_path / "failed" / "events.jsonl")[-1]
    assert (last["event"], last["step"], last["error"]) == ("failed", 1, "'batch'")
