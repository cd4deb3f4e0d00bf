"""A guarded run while it trains: the word for it, and when that word changes."""

import os
import re
import shutil
import time
from datetime import UTC, datetime

import pytest

from guarded_training import NAN as BAD_VALUE
from guarded_training import GuardedTraining
from live_runs import NAN, WrittenRun
from stayfinite.core.run_status import Health, HealthWord
from stayfinite.diagnosis.happenings import happening_of
from stayfinite.diagnosis.live_run import SILENCE, LiveRun
from stayfinite.guard.telling.journal import now
from stayfinite.readers.runs.reader import RunReader
from stayfinite.report.live.words import pace, progress


@pytest.fixture
def written(tmp_path):
    return WrittenRun(tmp_path / "run", steps=1_000)


@pytest.fixture
def live(written):
    return LiveRun(written.directory, "run")


def health(live):
    live.look(at_once=True)
    return live.status().health


def test_before_the_first_step_nothing_is_known(tmp_path):
    live = LiveRun(tmp_path / "not-there", "run")
    assert (health(live).word, live.status().state, live.void) == ("unknown", "waiting", True)


def test_a_healthy_run_is_called_so_with_its_figures(written, live):
    written.accept(50)
    assert health(live).word == "healthy"
    status = live.status()
    assert (status.state, status.step, status.total_steps, status.seen, status.refused) == ("running", 50, 1_000, 50, 0)
    assert len(status.losses) == 50


def ends_in(seconds):
    return datetime.fromtimestamp(time.time() + seconds, UTC).isoformat()


def a_second_later(written):
    """After the launch: many a system's files tell the time in steps of milliseconds, and lag behind its clock."""
    later = time.time() + 1.0
    os.utime(written.directory / "steps.jsonl", (later, later))


def test_the_time_to_go_of_a_run_of_so_many_minutes_is_what_is_left_of_them(tmp_path):
    written = WrittenRun(tmp_path, minutes=5.0, ends=ends_in(120))
    written.accept(3)
    a_second_later(written)
    live = LiveRun(written.directory, "run")
    live.look(at_once=True)
    assert 60 < live.status().eta_seconds <= 120
    assert re.search(r", (?:1 min \d+|2 min 0) s to go$", pace(live.status()))
    written.event("closed")
    live.look(at_once=True)
    assert live.status().eta_seconds is None


@pytest.mark.parametrize(("seconds", "steps"), [(3_600, 10), (2, 1_000_000)])
def test_of_steps_and_minutes_the_end_that_comes_first_counts(tmp_path, seconds, steps):
    written = WrittenRun(tmp_path, steps=steps, ends=ends_in(seconds))
    written.accept(5)
    a_second_later(written)
    for drawn in (None, RunReader(tmp_path)):
        live = LiveRun(tmp_path, "run", source=drawn)
        live.look(at_once=True)
        assert live.status().eta_seconds < 60


def test_the_share_that_is_done_is_that_of_the_time_where_time_ends_the_run(tmp_path):
    written = WrittenRun(tmp_path, steps=1_000_000, minutes=100.0, ends=ends_in(40 * 60 - 30))
    written.accept(3)
    for drawn in (None, RunReader(tmp_path)):
        live = LiveRun(tmp_path, "run", source=drawn)
        live.look(at_once=True)
        assert live.status().done == pytest.approx(0.605, abs=0.02)
        assert re.fullmatch(r"step 3, 6[0-2]% of 100 min", progress(live.status()))
    written.event("closed")
    stood = time.time() - 30 * 60
    os.utime(tmp_path / "steps.jsonl", (stood, stood))
    ended = LiveRun(tmp_path, "run")
    ended.look(at_once=True)
    assert ended.status().done == pytest.approx(0.305, abs=0.02)


def test_the_share_that_is_done_is_that_of_the_steps_where_they_end_first(tmp_path):
    WrittenRun(tmp_path, steps=6, minutes=600.0, ends=ends_in(600 * 60)).accept(3)
    live = LiveRun(tmp_path, "run")
    live.look(at_once=True)
    assert progress(live.status()) == "step 3 of 6 (50%)"


@pytest.mark.parametrize("minutes", ["", "soon", 0, -1, NAN, float("inf"), None, [], True])
def test_minutes_that_are_none_do_no_harm(tmp_path, minutes):
    WrittenRun(tmp_path, minutes=minutes, ends=ends_in(60)).accept(3)
    live = LiveRun(tmp_path, "run")
    live.look(at_once=True)
    assert progress(live.status()).startswith("step 3")
    assert live.status().health.word == "healthy"


@pytest.mark.parametrize("ends", ["", "soon", 7, None, [], "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59"])
def test_an_end_that_is_no_time_does_no_harm(tmp_path, ends):
    WrittenRun(tmp_path, ends=ends).accept(3)
    live = LiveRun(tmp_path, "run")
    live.look(at_once=True)
    assert live.status().health.word == "healthy"


def test_a_refused_step_is_a_warning_until_a_hundred_steps_went_well(written, live):
    written.accept(50)
    written.refuse()
    assert health(live).word == "warning"
    assert "the last at step 51, loss-not-finite" in live.status().health.reason
    written.accept(99)
    assert health(live).word == "warning"
    written.accept(1)
    assert health(live).word == "healthy"
    assert "1 refused" in live.status().health.reason


def test_several_refused_in_a_row_are_sick(written, live):
    written.accept(50)
    written.refuse(2)
    assert health(live).word == "warning"
    written.refuse()
    assert health(live).word == "sick"
    assert "3 steps in a row" in live.status().health.reason


def test_a_rung_is_sick_and_refusals_after_it_are_critical(written, live):
    written.accept(50)
    written.refuse(decision="rollback", code="vetoes-in-a-row")
    assert health(live).word == "sick"
    assert "rollback at step 51" in live.status().health.reason
    written.refuse(3)
    assert health(live).word == "critical"
    written.accept(100)
    assert health(live).word == "healthy"


def test_a_bad_step_that_touched_the_weights_is_critical(written, live):
    written.accept(50)
    written.accept(2, loss=NAN)
    found = health(live)
    assert found.word == "critical"
    assert "NaN or inf from step 51" in found.reason


def test_trouble_that_the_rules_see_is_sick(written, live):
    written.accept(30)
    for step in range(60):
        written.accept(loss=5.0 * 1.15**step)
    assert health(live).word == "sick"
    assert "the loss diverges" in live.status().health.reason


def test_a_loss_of_0_with_gradients_that_live_is_neither_called_healthy_nor_an_alarm(written, live):
    written.accept(50, loss=0.0)
    found = health(live)
    assert (found.word, found.word.alarms) == ("unknown", False)
    assert "the loss is 0" in found.reason


@pytest.mark.parametrize(("event", "word"), [("stopped", "critical"), ("failed", "critical"), ("closed", "healthy")])
def test_how_a_run_ended_is_told(written, live, event, word):
    written.accept(50)
    written.event(event, reason="the budget is spent")
    assert health(live).word == word
    assert (live.status().state, live.status().ended) == ("ended", event)


def test_a_run_that_is_started_again_has_not_ended(written, live):
    written.accept(50)
    written.event("failed", reason="the training loop ended with OSError", error="no space left on device")
    assert health(live).reason == "the training loop ended with OSError: no space left on device"
    written.event("restart")
    written.accept(5)
    assert (health(live).word, live.status().state) == ("healthy", "running")


@pytest.mark.parametrize("start", [16, 32])
def test_the_search_for_a_loss_scale_alarms_nobody_at_any_moment(start, written, live):
    for power in range(start, 12, -1):
        scale = 2.0**power
        written.step += 1
        written.journal.line(
            "steps.jsonl",
            {"step": written.step, "loss": 2.5, "grad_norm": float("inf"), "lr": 1e-4, "loss_scale": scale,
             "decision": "veto", "code": "scale-search"},
        )  # fmt: skip
        assert not health(live).word.alarms
    for _ in range(30):
        written.accept(1, loss_scale=4096.0)
        assert not health(live).word.alarms
    told = f"{start - 12} refused while the loss scale was searched"
    assert health(live) == Health(word=HealthWord.HEALTHY, reason=f"no problem in {start + 18} steps; {told}")
    assert live.status().refused == start - 12


def test_slow_trouble_that_the_guard_reports_is_a_warning_and_passes(written, live):
    written.accept(50)
    finding = {"code": "SF215", "cause": "loss-diverging", "severity": "warning", "confidence": 0.8, "title": "rises",
               "where": "step 50", "evidence": [], "fix": "lower the rate"}  # fmt: skip
    written.event("finding", **finding)
    assert health(live).word == "warning"
    assert "SF215 loss-diverging" in live.status().health.reason
    assert live.status().health.fix == "lower the rate"
    assert [finding.cause for finding in live.diagnosis.findings] == ["loss-diverging"]
    written.accept(500)
    assert health(live).word == "healthy"


def test_a_run_that_says_nothing_any_more_is_a_warning_unless_it_has_ended(written, live):
    written.accept(50)
    old = time.time() - SILENCE - 60
    os.utime(written.directory / "steps.jsonl", (old, old))
    assert (health(live).word, live.status().state) == ("warning", "silent")
    assert "no step for 3 min" in live.status().health.reason
    written.event("closed", reason="the guard is closed")
    assert (health(live).word, live.status().state) == ("healthy", "ended")


def test_files_that_vanish_and_come_back_as_another_run_are_forgotten(written, live, tmp_path):
    written.accept(50)
    written.refuse(5)
    assert health(live).word == "sick"
    written.journal.close()
    shutil.rmtree(written.directory)
    live.look()
    assert (live.status().state, live.status().step) == ("gone", 55)
    WrittenRun(written.directory).accept(20)
    assert health(live).word == "healthy"
    assert (live.status().seen, live.status().refused, live.status().total_steps) == (20, 0, None)


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "RuntimeError"])
def test_a_run_that_somebody_ended_by_hand_is_as_healthy_as_it_was_and_one_that_crashed_is_critical(
    written, live, error
):
    written.accept(50)
    written.event("failed", reason=f"the training loop ended with {error}", error="")
    found = health(live)
    assert live.status().state == "ended"
    if error == "KeyboardInterrupt":
        assert (found.word, found.reason) == ("healthy", "no problem in 50 steps; interrupted")
    else:
        assert found.word == "critical"
        assert error in found.reason


PROVED = {"cause": "bad-data-row", "confidence": 0.95, "verdict": "proved.", "fix": {"text": "look at row 3"}}


def test_what_an_autopsy_proved_is_told_before_its_file_is_there(written, live):
    written.accept(50)
    written.refuse()
    written.event("autopsy", **PROVED, incident="incidents/0001")
    found = health(live)
    assert (found.word, found.fix) == ("warning", "look at row 3")
    assert "SF301 bad-data-row" in found.reason
    assert not (written.directory / "incidents").exists()
    assert live.diagnosis.cause.where == str(written.directory / "incidents" / "0001" / "autopsy.json")


def test_what_the_autopsy_of_another_rank_proved_is_told_as_well(written, live):
    written.accept(50)
    written.refuse()
    told = {"version": 1, "time": now(), "event": "autopsy", "step": 51, **PROVED, "incident": None}
    written.journal.line("events-rank1.jsonl", told)
    assert "SF301 bad-data-row" in health(live).reason
    written.accept(500)
    assert health(live).word == "healthy", "what explains refused steps is history once they are"


@pytest.mark.parametrize("odd", [NAN, float("inf"), 0, -1, "sure", None])
def test_an_autopsy_that_is_not_whole_proves_nothing(written, live, odd):
    written.accept(50)
    written.refuse()
    written.event("autopsy", **PROVED | {"confidence": odd})
    assert "SF301" not in health(live).reason


def test_a_real_guarded_run_is_told_with_the_cause_that_its_autopsy_proved(tmp_path):
    training = GuardedTraining(tmp_path / "run")
    live = LiveRun(tmp_path / "run", "run", source=RunReader(tmp_path / "run"))
    training.steps(20)
    assert health(live).word == "healthy"
    training.steps(1, BAD_VALUE)
    training.steps(1)
    found = health(live)
    assert found.word == "warning"
    assert "SF301 bad-data-row" in found.reason
    assert "row 3" in found.fix
    training.steps(100)
    training.guard.close()
    assert health(live).word == "healthy"
    assert live.diagnosis.verdict == "warning"
    assert {"veto", "autopsy", "closed"} <= {happening.event for happening in live.status().happenings}


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({"path": "runs/first/checkpoints/step-00000050", "bytes": 63312, "seconds": 0.0181},
         "step-00000050, 62 KiB in 0.02 s"),
        ({"path": "step-00000050", "bytes": 5 << 30, "seconds": 12}, "step-00000050, 5,120 MiB in 12.00 s"),
        ({"path": None, "bytes": "much", "seconds": NAN}, ""),
        ({"path": "step-1", "bytes": NAN}, "step-1"),
    ],
)  # fmt: skip
def test_a_checkpoint_is_told_by_its_name_and_size(details, told):
    assert happening_of({"event": "checkpoint", "step": 50, **details}).text == told
