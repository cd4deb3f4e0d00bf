from __future__ import annotations

import json
import math

import pytest

from stayfinite.errors import UsageError
from stayfinite.recipes.running.directories import keep_checkpoints_in, remove_checkpoints
from stayfinite.recipes.running.records import finished_result, first_and_last, losses_of, write_result


def test_a_run_is_finished_when_its_result_has_all_steps(tmp_path):
    assert finished_result(tmp_path, 10) is None
    write_result(tmp_path, {"steps": 10, "loss": math.nan})
    assert finished_result(tmp_path, 11) is None
    assert finished_result(tmp_path, 10) == {"version": 1, "steps": 10, "loss": None}


def test_losses_are_those_of_the_last_process_that_took_the_step(tmp_path):
    lines = [{"step": 1, "loss": 4.0}, {"step": 2, "loss": 3.0}, {"step": 2, "loss": 2.0}, {"step": 3, "loss": None}]
    torn = '{"step": 4, "lo'
    (tmp_path / "steps.jsonl").write_text("\n".join([*map(json.dumps, lines), torn]), encoding="utf-8")
    assert losses_of(tmp_path) == [4.0, 2.0]
    assert first_and_last(losses_of(tmp_path)) == (4.0, 3.0)
    assert all(map(math.isnan, first_and_last(losses_of(tmp_path / "nowhere"))))


def test_checkpoints_go_elsewhere_and_are_found_through_the_run(tmp_path):
    output, place = tmp_path / "run", tmp_path / "disk" / "mine"
    keep_checkpoints_in(output, str(place))
    keep_checkpoints_in(output, str(place))
    (output / "checkpoints" / "step-00000001").mkdir()
    assert (place / "step-00000001").is_dir()
    with pytest.raises(UsageError, match="keeps its checkpoints in"):
        keep_checkpoints_in(output, str(tmp_path / "other"))


def test_checkpoints_that_are_there_are_not_left_behind(tmp_path):
    (tmp_path / "checkpoints" / "step-00000001").mkdir(parents=True)
    with pytest.raises(UsageError, match="keeps its checkpoints in"):
        keep_checkpoints_in(tmp_path, str(tmp_path / "other"))
    keep_checkpoints_in(tmp_path, None)
    keep_checkpoints_in(tmp_path, str(tmp_path / "checkpoints"))
    assert (tmp_path / "checkpoints" / "step-00000001").is_dir()


def test_a_checkpoint_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="--checkpoint-dir .*file/inside"):
        keep_checkpoints_in(tmp_path / "run", str(tmp_path / "file" / "inside"))


def test_checkpoints_are_removed_and_other_files_stay(tmp_path):
    (tmp_path / "checkpoints" / "step-00000001").mkdir(parents=True)
    (tmp_path / "checkpoints" / "notes.txt").write_text("mine", encoding="utf-8")
    assert remove_checkpoints(tmp_path) == 1
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["notes.txt"]
    assert remove_checkpoints(tmp_path / "nowhere") == 0
