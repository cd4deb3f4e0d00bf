"""A file that others write: nothing twice, nothing lost, whatever happens to it."""

import os

from stayfinite.readers.runs.directory import LONGEST, GrowingFile, GrowingLines


def test_only_what_is_new_is_read(tmp_path):
    path = tmp_path / "steps.jsonl"
    file = GrowingFile(path)
    assert not file.look().there
    path.write_bytes(b"one\n")
    assert file.look().content == b"one\n"
    assert file.look().content == b""
    with path.open("ab") as more:
        more.write(b"two\n")
    assert (piece := file.look()).content == b"two\n"
    assert not piece.anew


def test_a_line_without_its_end_waits_for_it(tmp_path):
    path = tmp_path / "steps.jsonl"
    lines = GrowingLines(path)
    path.write_bytes(b'{"a": 1}\n{"b"')
    assert lines.look()[1] == [b'{"a": 1}']
    with path.open("ab") as more:
        more.write(b": 2}\n")
    assert lines.look()[1] == [b'{"b": 2}']


def test_an_endless_line_is_passed_over(tmp_path):
    path = tmp_path / "steps.jsonl"
    lines = GrowingLines(path)
    path.write_bytes(b"x" * (LONGEST + 1))
    assert lines.look()[1] == []
    with path.open("ab") as more:
        more.write(b"\nnext\n")
    assert lines.look()[1][-1] == b"next"


def test_a_file_that_was_cut_is_read_from_its_beginning(tmp_path):
    path = tmp_path / "steps.jsonl"
    file = GrowingFile(path)
    path.write_bytes(b"one\ntwo\n")
    file.look()
    path.write_bytes(b"new\n")
    assert (piece := file.look()).anew
    assert piece.content == b"new\n"


def test_a_file_that_was_emptied_and_has_grown_past_the_old_place_is_told_apart(tmp_path):
    path = tmp_path / "steps.jsonl"
    file = GrowingFile(path)
    path.write_bytes(b"one\ntwo\n")
    file.look()
    path.write_bytes(b"another run altogether\nand on\n")
    assert (piece := file.look()).anew
    assert piece.content.startswith(b"another")


def test_a_rotated_file_starts_anew(tmp_path):
    path = tmp_path / "steps.jsonl"
    file = GrowingFile(path)
    path.write_bytes(b"one\n")
    file.look()
    path.rename(tmp_path / "steps.jsonl.1")
    assert not file.look().there
    path.write_bytes(b"uno\n")
    assert (piece := file.look()).anew
    assert piece.content == b"uno\n"


def test_a_file_that_was_moved_away_and_back_goes_on_where_it_was(tmp_path):
    path, aside = tmp_path / "steps.jsonl", tmp_path / "aside"
    file = GrowingFile(path)
    path.write_bytes(b"one\n")
    file.look()
    path.rename(aside)
    assert not file.look().there
    with aside.open("ab") as more:
        more.write(b"two\n")
    aside.rename(path)
    assert (piece := file.look()).content == b"two\n"
    assert not piece.anew


def test_a_document_that_is_rewritten_is_void_each_time(tmp_path):
    path = tmp_path / "run.json"
    file = GrowingFile(path, rewritten=True)
    path.write_bytes(b'{"a": 1}')
    assert file.look().content == b'{"a": 1}'
    path.write_bytes(b'{"a": 1, "b": 2}')
    os.utime(path, ns=(1, 1))
    assert (piece := file.look()).anew
    assert piece.content == b'{"a": 1, "b": 2}'


def test_a_pipe_or_a_directory_makes_nobody_wait(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert not GrowingFile(tmp_path / "pipe").look().there
    assert not GrowingFile(tmp_path).look().there
