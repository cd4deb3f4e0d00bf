"""A guarded run draws its own page, and a page that cannot be drawn is no reason for anything to stop."""

from __future__ import annotations

import json
import re
import threading

import pytest

from guarded_training import GuardedTraining
from run_files import events_of, eventually, lines_of
from stayfinite import Policy
from stayfinite.autopsy.incidents import incident_files
from stayfinite.guard.telling import reporting, showing
from stayfinite.guard.telling.recorder import Recorder
from stayfinite.report.page import html as page_html
from tiny_training import Lines, Training


def test_the_page_is_there_when_the_run_has_ended(tmp_path):
    training = Training(run_dir=tmp_path)
    training.good(4)
    assert not (tmp_path / "report.html").exists()
    training.guard.close()
    page = (tmp_path / "report.html").read_text()
    assert "Healthy: 4 steps, none refused" in page
    assert "MiB" in page
    assert "see report.html" in training.console.lines[-1]


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

    monkeypatch.setattr(page_html, "write_page", fail)
    training = Training(run_dir=tmp_path)
    training.good(3)
    training.guard.close()
    assert events_of(tmp_path) == ["start", "closed", "report-failed"]
    assert lines_of(tmp_path / "events.jsonl")[-1]["reason"] == "RuntimeError: no ink"
    assert any("cannot write report.html" in line for line in training.console.lines)


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
    eventually((tmp_path / "report.html").exists)
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")


def test_what_is_asked_for_while_a_page_is_drawn_is_on_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "SOON", 0.0)
    drawing, go_on, pages = threading.Event(), threading.Event(), []

    def draw(*_):
        pages.append((tmp_path / "events.jsonl").read_text().count("incident"))
        drawing.set()
        assert go_on.wait(60)

    monkeypatch.setattr(page_html, "write_page", draw)
    recorder = Recorder(tmp_path, Lines())
    recorder.launch(0, dict)
    recorder.trouble("incident", 3)
    assert drawing.wait(60)
    recorder.trouble("incident", 4)
    go_on.set()
    recorder._reporter._thread.join()
    assert pages == [1, 2]


def test_the_worlds_are_on_the_page_however_long_the_incident_takes_to_be_written(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "SOON", 0.0)
    arrived = threading.Event()
    write = incident_files.write_autopsy

    def write_late(path, autopsy):
        assert arrived.wait(60)
        write(path, autopsy)

    monkeypatch.setattr(incident_files, "write_autopsy", write_late)
    training = GuardedTraining(tmp_path)
    training.until_nan(5)
    page = tmp_path / "report.html"
    eventually(page.exists)
    assert worlds_on(page) == []
    arrived.set()
    eventually(lambda: worlds_on(page))
    training.guard.close()


def worlds_on(page):
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    return [world for run in json.loads(data)["runs"] for incident in run["incidents"] for world in incident["worlds"]]


def test_a_failure_beside_training_is_told_at_the_next_step(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "SOON", 0.0)
    monkeypatch.setattr(page_html, "write_page", lambda *_: 1 / 0)
    recorder = Recorder(tmp_path, Lines())
    recorder.launch(0, dict)
    recorder.trouble("autopsy", 3)
    recorder._reporter._thread.join()
    recorder.collect()
    recorder.collect()
    assert events_of(tmp_path) == ["start", "autopsy", "report-failed"]


def test_a_page_that_was_begun_before_the_end_does_not_replace_the_last_one(tmp_path, monkeypatch):
    begun, go_on, read = threading.Event(), threading.Event(), showing.guarded_run

    def slowly(directory):
        found = read(directory)
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            go_on.wait()
        return found

    monkeypatch.setattr(showing, "guarded_run", slowly)
    monkeypatch.setattr(reporting, "SOON", 0.0)
    monkeypatch.setattr(reporting, "LONGEST_WAIT", 0.01)
    recorder = Recorder(tmp_path, Lines())
    recorder.launch(0, dict)
    recorder.trouble("incident", 3, path="incidents/0001")
    assert begun.wait(100)
    recorder.finish("stopped", 3, "the last word of this run")
    go_on.set()
    recorder._reporter._thread.join()
    assert "the last word of this run" in (tmp_path / "report.html").read_text()
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


def test_the_end_waits_for_no_page_that_was_still_to_come(tmp_path, monkeypatch):
    pages, write = [], page_html.write_page
    monkeypatch.setattr(page_html, "write_page", lambda *given: (pages.append(given), write(*given)))
    monkeypatch.setattr(reporting, "SOON", 600.0)
    monkeypatch.setattr(reporting, "LONGEST_WAIT", 100.0)
    recorder = Recorder(tmp_path, Lines())
    recorder.launch(0, dict)
    recorder.trouble("incident", 3)
    recorder.finish("closed", 3, "the guard was closed")
    assert not recorder._reporter._thread.is_alive()
    assert len(pages) == 1


def test_only_the_first_rank_draws(tmp_path):
    recorder = Recorder(tmp_path, Lines(), rank=1)
    recorder.launch(0, dict)
    recorder.trouble("incident", 3)
    recorder.finish("closed", 3, "the guard is closed")
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("bad", [1, "yes", None])
def test_report_is_yes_or_no(bad):
    with pytest.raises(ValueError, match="report"):
        Policy(report=bad)
