from __future__ import annotations

import json
from pathlib import Path

import pytest

from image_pairs import small_settings, small_table
from recipe_job import quiet
from stayfinite.errors import LoaderFailed, NotReady, UsageError
from stayfinite.recipes.compare import train
from stayfinite.recipes.images.data import split
from stayfinite.recipes.images.pairs import read_pairs


def _cut(path: str) -> None:
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[: len(whole) // 2])


def _sides(table: Path) -> tuple[list[str], list[str]]:
    made = split(read_pairs(str(table)), folds=5, fold=0)
    return [pair.first for pair in made.training], [pair.first for pair in made.validation]


def test_a_corrupt_image_is_named_before_the_start_and_nothing_is_written(tmp_path: Path) -> None:
    table = small_table(tmp_path / "data")
    _cut(_sides(table)[0][3])
    with pytest.raises(UsageError, match=r"1 of \d+ images .*cannot read image .*\d{4}.png"):
        train(small_settings(tmp_path, train=str(table)), quiet)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_with_drop_the_training_goes_on_without_its_pairs(tmp_path: Path) -> None:
    table = small_table(tmp_path / "data")
    _cut(_sides(table)[0][3])
    said: list[str] = []
    train(small_settings(tmp_path, train=str(table), bad_images="drop"), said.append)
    assert any("cannot read image" in line for line in said)
    assert any("pairs with 1 unreadable images" in line for line in said)
    assert not any('"loader-error"' in line for line in (tmp_path / "run/events.jsonl").read_text().splitlines())


def test_an_image_that_fails_during_training_is_named_and_passed_over(tmp_path: Path) -> None:
    table = small_table(tmp_path / "data")
    training, held_out = _sides(table)
    _cut(training[10])
    _cut(held_out[0])
    said: list[str] = []
    result = train(small_settings(tmp_path, train=str(table), look_at_images=0), said.append)
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    failed = [event for event in events if event["event"] == "loader-error"]
    assert failed
    assert all(Path(training[10]).name in event["error"] for event in failed)
    assert result.scores is not None
    assert 0 < result.scores.pairs < len(held_out)
    assert any("not evaluated: " in line and str(held_out[0]) in line for line in said)


def test_a_directory_full_of_broken_images_stops_the_training(tmp_path: Path) -> None:
    table = small_table(tmp_path / "data", images=60, pairs=120)
    training, _ = _sides(table)
    good = set(training[:2])
    for pair in read_pairs(str(table)):
        for path in (pair.first, pair.second):
            if path not in good and Path(path).stat().st_size > 100:
                Path(path).write_bytes(b"gone")
    with pytest.raises((LoaderFailed, NotReady), match=r"cannot be read|failed to load"):
        train(small_settings(tmp_path, train=str(table), look_at_images=0), quiet)


def test_a_label_out_of_range_stops_before_anything_is_written(tmp_path: Path) -> None:
    table = small_table(tmp_path / "data")
    lines = table.read_text().splitlines()
    lines[4] = lines[4].replace("First", "7").replace("Second", "7").replace("Similar", "7")
    table.write_text("\n".join(lines))
    with pytest.raises(UsageError, match=r"pairs.csv:5: the label is '7'"):
        train(small_settings(tmp_path, train=str(table)), quiet)
    assert not (tmp_path / "run").exists()
