from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stayfinite.recipes.compare import Compare, settled, train
from stayfinite.recipes.images.data import Task, draw_pairs, split
from stayfinite.recipes.images.pairs import SIMILAR, read_pairs, sort_out


def _read(path: str) -> np.ndarray:
    return np.asarray(Image.open(path).convert("L"), dtype=float)


def test_the_folds_share_no_image_and_the_classes_are_alike(tmp_path: Path) -> None:
    pairs = sort_out(read_pairs(str(draw_pairs(tmp_path, task="size", seed=0, images=100, pairs=150)))).pairs
    assert len(pairs) == 150
    assert split(pairs, folds=5, fold=3).shared_images == 0
    assert sum(pair.label == SIMILAR for pair in pairs) == 50


@pytest.mark.parametrize("task", ["size", "brightness"])
def test_the_score_is_what_is_drawn(tmp_path: Path, task: Task) -> None:
    pairs = read_pairs(str(draw_pairs(tmp_path, task=task, seed=0, images=60, pairs=60)))
    measured = {
        "size": lambda image: (image > 65).sum(),
        "brightness": lambda image: np.sort(image.flatten())[-20:].mean(),
    }[task]
    scores = {pair.first: pair.score1 for pair in pairs}
    found = np.corrcoef([measured(_read(name)) for name in scores], list(scores.values()))[0, 1]
    assert found > 0.8


def test_it_is_drawn_once_and_the_same_each_time(tmp_path: Path) -> None:
    one, two = (draw_pairs(tmp_path / name, task="size", seed=5, images=20, pairs=20) for name in "ab")
    assert one.read_text() == two.read_text()
    assert (one.parent / "images/0007.png").read_bytes() == (two.parent / "images/0007.png").read_bytes()
    (one.parent / "images/0007.png").write_bytes(b"kept")
    draw_pairs(tmp_path / "a", task="size", seed=5, images=20, pairs=20)
    assert (one.parent / "images/0007.png").read_bytes() == b"kept"


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_without_arguments_it_learns_to_tell_which_of_two_unseen_shapes_is_larger(tmp_path: Path) -> None:
    result = train(settled(Compare(output_dir=str(tmp_path / "run"), device="cpu")), lambda _: None)
    assert result.scores is not None
    assert result.scores.accuracy > 0.8
    assert min(result.scores.per_class.values()) > 0.7
    assert result.scores.swap_consistency > 0.8
    assert result.last_loss < result.first_loss / 2
    steps = [json.loads(line) for line in (tmp_path / "run/steps.jsonl").read_text().splitlines()]
    assert all(np.isfinite(record["loss"]) for record in steps)
    assert {record["decision"] for record in steps} <= {"accept", "clip"}
    assert (tmp_path / "run/result.json").is_file()
    assert (tmp_path / "run/confusion.png").is_file()
