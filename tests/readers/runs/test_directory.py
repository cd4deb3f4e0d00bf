"""A run directory, read piece by piece."""

import json
import shutil

import pytest

from live_runs import WrittenRun
from stayfinite.readers.runs.directory import GrowingLines, RunDirectory, step_of


def test_steps_and_events_come_once_and_in_order(tmp_path):
    run, reader = WrittenRun(tmp_path / "run"), RunDirectory(tmp_path / "run")
    run.accept(3)
    news = reader.news()
    assert [record["step"] for record in news.steps] == [1, 2, 3]
    assert [record["event"] for record in news.events] == ["start"]
    run.refuse()
    news = reader.news()
    assert [step_of(record).refused for record in news.steps] == [True]
    assert [record["event"] for record in news.events] == ["veto"]
    assert not reader.news().any


def test_an_event_never_comes_before_the_step_that_it_is_about(tmp_path, monkeypatch):
    run, reader = WrittenRun(tmp_path / "run"), RunDirectory(tmp_path / "run")
    look = GrowingLines.look

    def look_and_be_overtaken(lines):
        found = look(lines)
        run.refuse()  # between two files of the same look
        return found

    monkeypatch.setattr(GrowingLines, "look", look_and_be_overtaken)
    known = set()
    for _ in range(3):
        news = reader.news()
        known |= {record["step"] for record in news.steps}
        assert known >= {record["step"] for record in news.events if record["event"] == "veto"}
    assert known


def test_a_directory_that_is_deleted_and_comes_back_is_another_run(tmp_path):
    run, reader = WrittenRun(tmp_path / "run", steps=50), RunDirectory(tmp_path / "run")
    run.accept(5)
    reader.news()
    assert reader.total_steps == 50
    run.journal.close()
    shutil.rmtree(tmp_path / "run")
    assert not reader.news().there
    WrittenRun(tmp_path / "run", steps=70).accept(2, loss=9.0)
    news = reader.news()
    assert news.anew
    assert [record["loss"] for record in news.steps] == [9.0, 9.0]
    assert [record["event"] for record in news.events] == ["start"]
    assert reader.total_steps == 70


def test_what_another_rank_has_to_tell_is_heard(tmp_path):
    run, reader = WrittenRun(tmp_path / "run"), RunDirectory(tmp_path / "run")
    run.journal.line("events-rank00003.jsonl", {"event": "loader-error", "step": 4, "error": "corrupt"})
    heard = [record for record in reader.news().events if record.get("rank")]
    assert [(record["rank"], record["event"]) for record in heard] == [("00003", "loader-error")]


@pytest.mark.parametrize(
    ("record", "total"),
    [
        ({"steps": 100}, 100),
        ({"config": {"max_steps": 200}}, 200),
        ({"launches": [{}, {"steps": 300}]}, 300),
        ({"steps": float("nan")}, None),
        ({"steps": True}, None),
        ({"launches": "none"}, None),
        ([], None),
    ],
)
def test_how_many_steps_there_will_be_is_read_where_it_is_said(tmp_path, record, total):
    (tmp_path / "run.json").write_text(json.dumps(record))
    reader = RunDirectory(tmp_path)
    reader.news()
    assert reader.total_steps == total


def test_lines_that_are_none_of_ours_are_passed_over(tmp_path):
    deep = "[" * 100_000
    (tmp_path / "steps.jsonl").write_text(
        f'nonsense\n[1]\n{deep}\n{{"step": {{}}, "loss": "x", "decision": 7}}\n{{"step": 1e999, "loss": 1}}\n\xff\n'
        f'{{"step": {"9" * 400}, "loss": NaN}}\n{{"step": 2, "loss": 1.5}}\n',
        encoding="latin-1",
    )
    (tmp_path / "events.jsonl").write_text('{"event": {}}\n{"event": "veto", "step": "x"}\n{"event": null}\n')
    news = RunDirectory(tmp_path).news()
    steps = [step_of(record) for record in news.steps]
    assert (steps[-1].step, steps[-1].loss) == (2, 1.5)
    assert [step.step for step in steps[:-1]] == [None, None, None]
    assert len(news.events) == 1
