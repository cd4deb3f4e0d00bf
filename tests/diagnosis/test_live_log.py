"""Other people's logs while they are written."""

import json
import math
import os
import time

import pytest

from live_runs import WrittenRun
from planted_runs import plant_run
from stayfinite.core.series import Point
from stayfinite.diagnosis.course import Course
from stayfinite.diagnosis.health import health_of
from stayfinite.diagnosis.judging import Turn
from stayfinite.diagnosis.live_log import LiveLog
from stayfinite.diagnosis.live_run import LiveRun
from stayfinite.diagnosis.watching import WatchedRuns, follow, runs_under, short_names
from stayfinite.report.live.words import progress

GOOD = "".join(
    f"{{'loss': {3 - i / 20:.3f}, 'grad_norm': 1.2, 'learning_rate': 1e-4, 'epoch': {i / 100}}}\n" for i in range(20)
)
BAD = "{'loss': nan, 'grad_norm': nan, 'learning_rate': 1e-4, 'epoch': 0.3}\n"


def test_a_log_that_turns_is_told_once_with_its_cause(tmp_path):
    log = tmp_path / "train.log"
    live = LiveLog(log, "train.log")
    live.look(at_once=True)
    assert (live.status().state, live.status().health.word) == ("waiting", "unknown")
    log.write_text(GOOD)
    live.look(at_once=True)
    assert (live.status().state, live.status().health.word, live.status().loss) == ("running", "healthy", 2.05)
    with log.open("a") as more:
        more.write(BAD * 3)
    live.look(at_once=True)
    assert live.status().health.word == "critical"
    told = [happening.text for happening in live.status().happenings]
    assert any("the loss is NaN or inf" in text for text in told)
    with log.open("a") as more:
        more.write(BAD)
    live.look(at_once=True)
    assert [happening.text for happening in live.status().happenings] == told


def numbered(losses, every=50):
    return "".join(f"step {at * every} | loss {loss:.4f} | grad_norm 1.1\n" for at, loss in enumerate(losses))


FALLING = [2.5 - at / 40 for at in range(40)]
LEAVES = [*FALLING, *(1.6 * 1.5**at for at in range(20))]
FLAT_NAN = [*FALLING, *[math.nan] * 20]


@pytest.mark.parametrize(("losses", "began"), [(LEAVES, 2000 + 50), (FLAT_NAN, 2000), ([*FALLING, *[0.0] * 9], 2000)])
def test_trouble_is_stamped_with_the_step_at_which_it_began(tmp_path, losses, began):
    log = tmp_path / "train.log"
    log.write_text(numbered(losses))
    live = LiveLog(log, "train.log")
    live.look(at_once=True)
    assert {each.step for each in live.status().happenings} == {began}


def test_a_lost_evaluation_is_stamped_with_its_own_step(tmp_path):
    rows = [{"loss": 2.0 - step / 100, "step": step} for step in range(1, 40)]
    rows[20:] = [each for row in rows[20:] for each in (row, {"eval_loss": math.nan, "step": row["step"]})]
    log = tmp_path / "train.jsonl"
    log.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    live = LiveLog(log, "train.jsonl")
    live.look(at_once=True)
    assert [(each.step, each.text[:19]) for each in live.status().happenings] == [(21, "the evaluation loss")]


def test_a_loss_that_leaves_its_course_is_judged_at_the_next_look(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("stayfinite.diagnosis.judging.time.monotonic", lambda: now[0])
    log = tmp_path / "train.log"
    live = LiveLog(log, "train.log")
    log.write_text(numbered(FALLING))
    live.look()
    with log.open("a") as more:
        more.write(numbered(LEAVES).removeprefix(numbered(FALLING)))
    now[0] += 0.1
    live.look()
    assert live.status().health.word == "sick"


def test_a_watcher_looks_again_soon_while_a_log_turns_and_takes_its_time_otherwise(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(numbered(FALLING))
    watched = WatchedRuns([log])
    watched.look(at_once=True)
    assert not watched.turning
    log.write_text(numbered(LEAVES))
    watched.look(at_once=True)
    assert watched.turning
    for _ in range(20):
        with log.open("a") as more:
            more.write(numbered(LEAVES[-1:]))
        watched.look(at_once=True)
    assert not watched.turning


def test_a_noisy_run_is_soon_judged_no_more_often_than_a_calm_one():
    turn, urgent = Turn(), 0
    for at in range(200):
        turn.see(Point(at, at, 1.0 + at % 3))
        urgent += turn.now
        turn.judged(new=False)
    assert urgent < 40


def test_one_measurement_is_not_several(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("loss: 2.25\n")
    live = LiveLog(log, "train.log")
    live.look(at_once=True)
    assert progress(live.status()) == "1 measurement"


def test_a_newest_step_that_is_not_finite_is_said_to_be_in_the_weights():
    health = health_of(None, Course(seen=1, bad_now=True))
    assert health.reason == "the newest step is NaN or inf, and was applied to the weights"


def test_a_finished_log_is_silent_and_healthy(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(GOOD)
    old = time.time() - 86_400
    os.utime(log, (old, old))
    live = LiveLog(log, "train.log")
    live.look(at_once=True)
    assert (live.status().state, live.status().health.word) == ("silent", "healthy")


def test_a_document_that_is_rewritten_is_read_anew(tmp_path):
    state = tmp_path / "trainer_state.json"
    live = LiveLog(state, "state")
    for count in (5, 9):
        history = [{"loss": 3 - step / 10, "step": step, "epoch": 0.1} for step in range(1, count + 1)]
        state.write_text(json.dumps({"log_history": history, "max_steps": 100}))
        os.utime(state, ns=(count, count))
        live.look(at_once=True)
        assert (live.status().seen, live.status().step) == (count, count)


def test_a_path_is_followed_as_what_it_is(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train.log").write_text(GOOD)
    assert isinstance(follow(tmp_path / "run", ""), LiveRun)
    assert isinstance(follow(tmp_path / "other", ""), LiveLog)
    assert isinstance(follow(tmp_path / "other" / "train.log", ""), LiveLog)
    assert isinstance(follow(tmp_path / "later.log", ""), LiveLog)
    assert isinstance(follow(tmp_path / "later", ""), LiveRun)
    assert runs_under(tmp_path) == [tmp_path / "run"]


def test_a_projects_directory_stands_for_the_runs_in_it(tmp_path):
    runs = [plant_run(tmp_path / "runs" / "first"), plant_run(tmp_path / "outputs" / "stayfinite")]
    assert runs_under(tmp_path) == sorted(runs)
    (tmp_path / "train.log").write_text(GOOD)
    assert runs_under(tmp_path) == [tmp_path]  # it has a log of its own


def test_the_refused_steps_of_a_guarded_run_deep_below_are_no_log_of_losses_that_are_nan(tmp_path):
    run = plant_run(tmp_path / "lightning_logs" / "version_0" / "stayfinite")
    os.utime(run / "events.jsonl")  # the newest file: by itself nothing but what was refused
    followed = follow(tmp_path, "project")
    followed.look(at_once=True)
    assert (type(followed), followed.path) == (LiveRun, run)
    assert followed.status().health.word in ("healthy", "warning")


@pytest.mark.parametrize("name", ["train.log", "steps.jsonl", "events.jsonl", "run.json", "not-there-yet.log"])
def test_a_file_of_a_guarded_run_stands_for_the_run(tmp_path, name):
    written = WrittenRun(tmp_path / "first")
    written.accept(30)
    written.refuse()
    written.accept(120)
    (tmp_path / "first" / "train.log").write_text(GOOD + "step 31 loss nan\n")
    assert runs_under(tmp_path / "first" / name) == [tmp_path / "first"]
    watched = WatchedRuns([tmp_path / "first" / name, tmp_path / "first"])
    watched.look(at_once=True)
    (status,) = watched.statuses()
    assert (status.name, status.refused, status.health.word) == ("first", 1, "healthy")


@pytest.mark.parametrize("line", ['{"step": 1, "train_loss": 2.0}\n', "", "[" * 100_000, "{\n", "[1]\n"])
def test_a_log_beside_steps_that_no_guard_wrote_is_followed_itself(tmp_path, line):
    (tmp_path / "steps.jsonl").write_text(line)
    (tmp_path / "train.log").write_text(GOOD)
    assert runs_under(tmp_path / "train.log") == [tmp_path / "train.log"]


def test_a_log_gives_way_at_once_to_the_run_that_begins_around_it(tmp_path, monkeypatch):
    monkeypatch.setattr("stayfinite.diagnosis.watching.FIND_AGAIN", 3600.0)
    log = tmp_path / "first" / "train.log"
    log.parent.mkdir()
    log.write_text(GOOD)
    watched = WatchedRuns([log])
    watched.look(at_once=True)
    assert [status.name for status in watched.statuses()] == ["train.log"]
    written = WrittenRun(tmp_path / "first")
    watched.look(at_once=True)
    assert [(status.name, status.step) for status in watched.statuses()] == [("first", None)]
    written.accept(3)
    watched.look(at_once=True)
    assert [(status.name, status.step) for status in watched.statuses()] == [("first", 3)]


def test_runs_that_begin_later_in_a_directory_of_runs_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr("stayfinite.diagnosis.watching.FIND_AGAIN", 0.0)
    monkeypatch.setattr("stayfinite.diagnosis.watching.FIND_SHARE", 1e9)
    watched = WatchedRuns([tmp_path / "runs"])
    watched.look()
    assert [run.name for run in watched.runs] == ["runs"]
    for name in ("a", "b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "steps.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
        assert watched.look()
    assert [status.name for status in watched.statuses()] == ["a", "b"]
    assert not watched.look() or not watched.look()


def test_names_are_as_short_as_tells_them_apart(tmp_path):
    paths = [tmp_path / "x" / "run", tmp_path / "y" / "run", tmp_path / "z"]
    assert short_names(paths) == ["x/run", "y/run", "z"]
