"""What cannot be written is refused before long work, and what can be is left as it was."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from stayfinite.cli import main
from stayfinite.errors import UsageError
from stayfinite.recipes.running.directories import mend, require_room, require_writable, write_whole


def test_a_file_that_can_be_written_is_left_as_it_was_and_a_new_one_is_not_made(tmp_path):
    (tmp_path / "old.jsonl").write_text("mine")
    require_writable(str(tmp_path / "old.jsonl"), "--output")
    require_writable(str(tmp_path / "new" / "said.jsonl"), "--output")
    assert (tmp_path / "old.jsonl").read_text() == "mine"
    assert not list((tmp_path / "new").iterdir())


def test_a_directory_that_can_be_written_is_left_as_it_was_and_a_new_one_is_not_made(tmp_path):
    require_room(tmp_path)
    require_room(tmp_path / "a" / "b")
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/run", "file/runs/first"):
        with pytest.raises(UsageError, match="file is a file"):
            require_room(tmp_path / place)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_place_that_only_can_be_read_is_refused_with_the_reason(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(UsageError, match=r"--output-dir .*run: cannot write in .*: Read-only file system"):
        require_room(tmp_path / "run")


@pytest.mark.parametrize("program", ["sft", "grpo", "mmdit", "compare", "translate"])
def test_a_training_into_a_file_is_wrong_use_and_not_a_traceback(tmp_path, capsys, program):
    (tmp_path / "file").write_text("mine")
    assert main(["train", program, "--output-dir", str(tmp_path / "file" / "run")]) == 2
    assert "file is a file" in capsys.readouterr().err


@pytest.mark.parametrize("program", ["sft", "grpo", "mmdit", "compare"])
def test_a_seed_below_0_is_refused_by_its_flag(tmp_path, capsys, program):
    assert main(["train", program, "--seed", "-1", "--output-dir", str(tmp_path / "run")]) == 2
    assert "--seed -1: expected a number of at least 0" in capsys.readouterr().err


def _writer(text: str):
    return lambda into: (into / "weights").write_text(text)


def test_a_directory_is_replaced_as_a_whole_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "best", _writer("first"))
    write_whole(tmp_path / "best", _writer("second"))
    assert (tmp_path / "best/weights").read_text() == "second"
    assert [each.name for each in tmp_path.iterdir()] == ["best"]


def test_a_failed_write_leaves_the_old_one(tmp_path: Path) -> None:
    write_whole(tmp_path / "best", _writer("first"))

    def fail(into: Path) -> None:
        (into / "weights").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(tmp_path / "best", fail)
    assert (tmp_path / "best/weights").read_text() == "first"


def test_a_kill_between_the_two_renamings_loses_nothing(tmp_path: Path) -> None:
    write_whole(tmp_path / "best", _writer("first"))
    (tmp_path / "best").rename(tmp_path / "best.old")  # as far as the killed process had come
    mend(tmp_path / "best")
    assert (tmp_path / "best/weights").read_text() == "first"
