"""Which files of a directory are read, and which are not."""

import os

from stayfinite.diagnosis.gathering import gather


def touch(path, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(paths):
    return sorted(path.name for path in paths)


def test_the_log_and_the_config_beside_it_are_read(tmp_path):
    for name in ("train.log", "config.yaml", "ds_config.json", "notes.md", "weights.pt"):
        touch(tmp_path / name)
    found = gather(tmp_path)
    assert names(found.logs) == ["train.log"]
    assert names(found.configs) == ["config.yaml", "ds_config.json"]


def test_of_many_checkpoints_the_newest_history_is_enough(tmp_path):
    for step in (500, 1000, 90):
        touch(tmp_path / f"checkpoint-{step}" / "trainer_state.json")
        touch(tmp_path / f"checkpoint-{step}" / "training_args.bin")
    found = gather(tmp_path)
    assert [path.parent.name for path in found.logs] == ["checkpoint-1000"]
    assert names(found.configs) == ["training_args.bin"]


def test_runs_deeper_down_are_named_and_not_mixed_in(tmp_path):
    touch(tmp_path / "train.log")
    touch(tmp_path / "old" / "run1" / "train.log")
    found = gather(tmp_path)
    assert found.logs == [tmp_path / "train.log"]
    assert found.other_runs == [tmp_path / "old" / "run1"]


def test_of_two_runs_side_by_side_the_newer_is_read(tmp_path):
    older, newer = touch(tmp_path / "a" / "train.log"), touch(tmp_path / "b" / "train.log")
    os.utime(older, (1, 1))
    os.utime(newer, (2, 2))
    assert gather(tmp_path).logs == [newer]


def test_a_library_of_scripts_is_not_taken_for_settings(tmp_path):
    touch(tmp_path / "train.log")
    for number in range(9):
        touch(tmp_path / f"part{number}.py")
    assert gather(tmp_path).configs == []
    (tmp_path / "one").mkdir()
    touch(tmp_path / "one" / "train.log")
    touch(tmp_path / "one" / "train.py")
    assert names(gather(tmp_path / "one").configs) == ["train.py"]


def test_links_in_circles_end(tmp_path):
    touch(tmp_path / "train.log")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "also.log").symlink_to("train.log")
    assert len(gather(tmp_path).logs) == 1


def test_an_empty_directory_holds_nothing(tmp_path):
    found = gather(tmp_path)
    assert (found.logs, found.configs, found.other_runs) == ([], [], [])
