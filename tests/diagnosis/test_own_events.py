"""The events of a guarded run are no second log of it."""

from __future__ import annotations

import json

from planted_runs import event, plant_run
from stayfinite import diagnose


def test_refused_steps_are_not_taken_for_a_run_in_which_every_step_failed(tmp_path):
    run = plant_run(tmp_path, steps=400, vetoes=tuple(range(50, 400, 40)))
    found = diagnose(run).to_json()
    assert "loss-scale-collapse" not in [finding["cause"] for finding in found["findings"]]
    assert not any("from the first logged step" in each for each in found["trouble"])
    assert {"events of a guarded run"} < {source["said"] for source in found["sources"]}


def test_a_healthy_guarded_run_is_healthy(tmp_path):
    found = diagnose(plant_run(tmp_path, vetoes=()))
    assert (found.verdict, list(found.findings)) == ("healthy", [])


def test_what_the_guard_recognised_is_a_finding(tmp_path):
    run = plant_run(tmp_path, vetoes=())
    told = {
        "code": "SF202", "cause": "lr-zero", "severity": "error", "confidence": 0.9, "where": "step 30",
        "title": "The learning rate is 0.", "evidence": ["10 steps with a learning rate of 0"], "fix": "raise it",
    }  # fmt: skip
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(event("finding", 30, **told)) + "\n")
    first = diagnose(run).cause
    assert first is not None
    assert (first.cause, first.confidence) == ("lr-zero", 0.9)
    assert first.where.endswith("events.jsonl:5")


def test_the_words_of_an_error_are_read(tmp_path):
    run = plant_run(tmp_path, vetoes=())
    error = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB"
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(event("failed", 120, reason="the loop ended with OutOfMemoryError", error=error)) + "\n")
    assert "out-of-memory" in [finding.cause for finding in diagnose(run).findings]


def test_a_page_that_could_not_be_drawn_is_no_crash_of_the_run(tmp_path):
    run = plant_run(tmp_path, vetoes=())
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(event("report-failed", 120, reason="OSError: [Errno 13] Permission denied")) + "\n")
    found = diagnose(run)
    assert (found.verdict, list(found.trouble)) == ("healthy", [])


def test_somebody_elses_events_are_still_a_log(tmp_path):
    lines = [{"step": step, "loss": 5.0 - step / 20} for step in range(50)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert sum(run.points_seen for run in diagnose(tmp_path).runs) == 50
