"""A run directory is read piece by piece, whatever becomes of its files meanwhile."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest

from planted_runs import an_autopsy, an_incident, event, plant_layers, plant_run
from stayfinite.readers.runs.directory import RunDirectory
from stayfinite.readers.runs.reader import RunReader, is_run_directory, read_layers


def line(step: int, loss: object = 1.0, **more: object) -> str:
    return json.dumps({"version": 1, "step": step, "loss": loss, "decision": "accept", **more}) + "\n"


def test_reading_in_pieces_gives_the_same_as_reading_at_once(tmp_path):
    whole = plant_run(tmp_path / "whole")
    text = (whole / "steps.jsonl").read_bytes()
    grown = tmp_path / "grown"
    grown.mkdir()
    reader = RunReader(grown)
    for start in range(0, len(text), 997):
        with (grown / "steps.jsonl").open("ab") as file:
            file.write(text[start : start + 997])
        reader.refresh()
    at_once = RunReader(whole)
    at_once.refresh()
    assert reader.steps.count == at_once.steps.count == 120
    assert reader.steps.decisions == at_once.steps.decisions == {"accept": 117, "veto": 3}
    assert {name: c.points() for name, c in reader.steps.curves.items()} == {
        name: c.points() for name, c in at_once.steps.curves.items()
    }


def test_a_refresh_says_whether_anything_is_new(tmp_path):
    run = plant_run(tmp_path)
    reader = RunReader(run)
    assert reader.refresh()
    assert not reader.refresh()
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(event("rollback", 121, reason="back")) + "\n")
    assert reader.refresh()
    assert [span.first for span in reader.events.marks["rollback"]] == [121]


def test_a_launch_that_is_written_while_the_directory_is_read_is_not_missed(tmp_path, monkeypatch):
    run = plant_run(tmp_path)
    reader, news = RunReader(run), RunDirectory.news
    launches = json.loads((run / "run.json").read_text())["launches"]

    def read_and_be_overtaken(directory):
        found = news(directory)
        (run / "aside").write_text(json.dumps({"version": 1, "launches": [*launches, {"time": "later"}]}))
        (run / "aside").replace(run / "run.json")
        return found

    monkeypatch.setattr(RunDirectory, "news", read_and_be_overtaken)
    reader.refresh()
    monkeypatch.undo()
    reader.refresh()
    assert reader.launches[-1] == {"time": "later"}


def test_half_a_line_is_waited_for(tmp_path):
    path = tmp_path / "steps.jsonl"
    reader = RunReader(tmp_path)
    path.write_text(line(1) + line(2)[:20])
    reader.refresh()
    assert reader.steps.count == 1
    path.write_text(line(1) + line(2))
    reader.refresh()
    assert reader.steps.count == 2


@pytest.mark.parametrize("harm", ["cut", "replaced"])
def test_a_file_that_was_begun_anew_is_read_anew(tmp_path, harm):
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(line(step) for step in range(1, 51)))
    reader = RunReader(tmp_path)
    reader.refresh()
    if harm == "cut":
        path.write_text(line(1))
    else:
        other = tmp_path / "other"
        other.write_text("".join(line(step, 2.0) for step in range(1, 61)))
        other.replace(path)
    assert reader.refresh()
    assert reader.steps.count == {"cut": 1, "replaced": 60}[harm]


def test_a_directory_that_is_deleted_and_comes_back_is_read_again(tmp_path):
    run = plant_run(tmp_path / "run", incident=an_incident())
    reader = RunReader(run)
    reader.refresh()
    shutil.rmtree(run)
    reader.refresh()
    assert reader.steps.count == 120  # until there is another one, the last is shown
    plant_run(run, steps=30)
    reader.refresh()
    assert reader.steps.count == 30


def test_an_autopsy_that_arrives_later_is_seen(tmp_path):
    run = plant_run(tmp_path, incident=an_incident())
    reader = RunReader(run)
    reader.refresh()
    assert reader.incidents[0]["autopsy"] is None
    (run / "incidents" / "0001" / "autopsy.json").write_text(json.dumps(an_autopsy()))
    assert reader.refresh()
    assert reader.incidents[0]["autopsy"]["cause"] == "fp16-overflow"


def test_nothing_that_stands_in_the_files_raises(tmp_path):
    lines = [
        "", "null", "[]", "{", "\x00", '{"step": "x", "loss": {}}', '{"step": 1e400, "loss": 1}', line(10**400),
        line(3, 10**400), line(4, True), line(5, "NaN"), line(6, None), line(7, [1]), "[" * 100_000,
        '{"step": 8, "parts": {"a": 1, "b": "x"}, "decision": 5}', '{"event": 5}',
    ]  # fmt: skip
    for name in ("steps.jsonl", "events.jsonl"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    (tmp_path / "run.json").write_text('{"launches": [5, {"model": 3}]}')
    (tmp_path / "layers.npz").write_bytes(b"PK\x03\x04 nothing")
    (tmp_path / "ledger.json").write_text("[1]")
    (tmp_path / "incidents").write_text("no directory")
    reader = RunReader(tmp_path)
    reader.refresh()
    assert reader.steps.curves["loss"].points()
    assert reader.steps.curves["loss"].bad.total == 1
    assert reader.launches == [{"model": 3}]


def test_layers_are_read_back_as_numpy_reads_them(tmp_path):
    names = ("encoder.wi.weight", "encoder.wö.weight", "silent.weight")
    plant_layers(tmp_path / "layers.npz", names, looks=7)
    table = read_layers(tmp_path / "layers.npz")
    held = np.load(tmp_path / "layers.npz")
    assert table.names == names == tuple(held["names"])
    assert table.steps == tuple(held["steps"])
    for field, values in table.tables.items():
        np.testing.assert_array_equal(np.array(values).reshape(7, 3), held[field])
    assert all(map(math.isnan, table.column("norm", 2)))


def test_layers_that_are_cut_off_are_none(tmp_path):
    path = tmp_path / "layers.npz"
    plant_layers(path, ("a.weight", "b.weight"), looks=5)
    content = path.read_bytes()
    for length in (0, 10, len(content) // 2, len(content) - 3):
        path.write_bytes(content[:length])
        assert read_layers(path) is None


def test_a_run_directory_is_told_from_another_one(tmp_path):
    assert not is_run_directory(tmp_path)
    (tmp_path / "train.log").write_text("loss 1.0")
    assert not is_run_directory(tmp_path)
    assert is_run_directory(plant_run(tmp_path / "run"))
