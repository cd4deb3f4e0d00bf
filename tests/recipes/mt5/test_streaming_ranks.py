"""A stream under torchrun: shared out without overlap, resumed on another number of ranks, and no rank left waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from child_processes import finish, torchrun
from stayfinite.recipes.language.built_in import travel_notes
from tiny_language import write_shards

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def launched(ranks: int, data: Path, model: Path, output: Path, *more: str):
    command = [
        *torchrun(ranks), "-m", "stayfinite", "train", "mt5", "--data", data, "--model-name", model, "--output-dir",
        output, "--stream", "on", "--shuffle-rows", "32", "--block-size", "24", "--train-batch-size", "4",
        "--gradient-accumulation-steps", "1", "--check", "off", "--checkpoint-steps", "4", "--samples", "0", "--device",
        "cpu", "--epochs", "2", *more,
    ]  # fmt: skip
    return finish(command)


@pytest.fixture
def shards(tmp_path):
    return write_shards(tmp_path / "shards")


def test_a_run_of_two_ranks_goes_on_with_one_and_says_what_comes_again(shards, model, tmp_path):
    first = launched(2, shards, model, tmp_path / "run", "--max-steps", "8")
    assert first.returncode == 0, first.stderr[-2000:]
    again = launched(1, shards, model, tmp_path / "run", "--max-steps", "12")
    assert again.returncode == 0, again.stderr[-2000:]
    assert "resumed after step 8" in again.stdout
    assert "the run had 2 ranks x 1 readers, now 1 x 1" in again.stdout
    assert "No row is lost" in again.stdout


def test_a_shard_that_is_cut_stops_every_rank(shards, model, tmp_path):
    path = shards / "part-3.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-100])
    ended = launched(2, shards, model, tmp_path / "run")
    assert ended.returncode != 0
    assert "cannot unpack " in ended.stderr + ended.stdout


def test_a_rank_without_rows_stops_every_rank(model, tmp_path):
    folder = tmp_path / "few"
    folder.mkdir()
    # Of 12 texts one validates; rows that are too short leave one rank without any.
    texts = [text if number % 2 else "short" for number, text in enumerate(travel_notes()[:24])]
    (folder / "few.txt").write_text("\n".join(texts), encoding="utf-8")
    ended = launched(2, folder, model, tmp_path / "run", "--shuffle-rows", "64")
    assert ended.returncode != 0
    assert "has no batch in epoch 0" in ended.stderr + ended.stdout
