from __future__ import annotations

from pathlib import Path

import pytest

from stayfinite.recipes.running.directories import mend, write_whole


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
