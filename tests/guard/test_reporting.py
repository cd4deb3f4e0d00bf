"""A guarded run draws its own page, and a page that cannot be drawn is no reason for anything to stop."""

from __future__ import annotations

import time

import pytest

from run_files import events_of, lines_of
from stayfinite import Policy
from stayfinite.guard import reporting
from stayfinite.guard.recorder import Recorder
from stayfinite.report.page import file as page_file
from tiny_training import Lines, Training


def test_the_page_is_there_when_the_run_has_ended(tmp_path):
    training = Training(run_dir=tmp_path)
    training.good(4)
    assert not (tmp_path / "report.html").exists()
    training.guard.close()
    page = (tmp_path / "report.html").read_text()
    assert "Healthy: 4 steps, none refused" in page
    assert "MiB" in page
    assert "report.html shows it" in training.console.lines[-1]


def test_what_else_lies_in_the_directory_is_not_read(tmp_path):
    (tmp_path / "train.log").write_text("".join(f"step {n} loss nan\n" for n in range(100)))
    training = Training(run_dir=tmp_path)
    training.good(4)
    training.guard.close()
    page = (tmp_path / "report.html").read_text()
    assert "Healthy: 4 steps" in page
    assert "train.log" not in page


def test_a_page_that_cannot_be_drawn_is_an_event_and_nothing_else(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("no ink")

    monkeypatch.setattr(page_file, "write_page", fail)
    training = Training(run_dir=tmp_path)
    training.good(3)
    training.guard.close()
    assert events_of(tmp_path) == ["start", "closed", "report-failed"]
    assert lines_of(tmp_path / "events.jsonl")[-1]["reason"] == "RuntimeError: no ink"
    assert any("report.html could not be drawn" in line for line in training.console.lines)


def test_no_page_where_none_is_wanted(tmp_path):
    training = Training(run_dir=tmp_path, policy=Policy(report=False))
    training.good(2)
    training.guard.close()
    assert not (tmp_path / "report.html").exists()
    assert events_of(tmp_path) == ["start", "closed"]


def test_an_incident_draws_the_page_while_training_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "SOON", 0.01)
    recorder = Recorder(tmp_path, Lines())
    recorder.launch(0, dict)
    recorder.trouble("incident", 3, path="incidents/0001")
    for _ in range(400):
        if (tmp_path / "report.html").exists():
            break
        time.sleep(0.02)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_a_failure_beside_training_is_told_at_the_next_step(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "SOON", 0.0)
    monkeypatch.setattr(page_file, "write_page", lambda *_: 1 / 0)
    recorder = Recorder(tmp_path, Lines())
    recorder.launch(0, dict)
    recorder.trouble("autopsy", 3)
    recorder._reporter._thread.join()
    recorder.collect()
    recorder.collect()
    assert events_of(tmp_path) == ["start", "autopsy", "report-failed"]


def test_only_the_first_rank_draws(tmp_path):
    recorder = Recorder(tmp_path, Lines(), rank=1)
    recorder.launch(0, dict)
    recorder.trouble("incident", 3)
    recorder.finish("closed", 3, "the guard was closed")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("bad", [1, "yes", None])
def test_report_is_yes_or_no(bad):
    with pytest.raises(ValueError, match="report"):
        Policy(report=bad)
