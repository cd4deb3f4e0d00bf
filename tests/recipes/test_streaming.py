"""`--stream on` in every recipe that has it: resumed to the bit, no shard lost unseen, ranks that stop together."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from quick_ones import quick_ones
from recipe_job import NEVER, check_same_weights, check_went_on, play_recipe, quiet, steps_of
from stayfinite.errors import LoaderFailed, UsageError
from stayfinite.readers.data.opening import open_data
from stayfinite.recipes import mt5, sft, translate
from stayfinite.recipes.chat.questions import Columns as QuestionColumns
from stayfinite.recipes.chat.streaming import QuestionReader
from stayfinite.recipes.language.built_in import travel_notes
from stayfinite.recipes.language.streaming import TextReader, text_files
from stayfinite.recipes.seq2seq.pairs import files_of_pairs
from stayfinite.recipes.seq2seq.streaming import PairReader
from stayfinite.recipes.seq2seq.tables import Columns as PairColumns
from tiny_language import settings as mt5_settings
from tiny_language import tiny_model
from tiny_translations import quick_settings

from .sft.conftest import small as small_sft

STREAM: dict[str, Any] = {"stream": "on", "shuffle_rows": 32, "epochs": 1, "checkpoint_steps": 2, "logging_steps": 1}
NOTES = travel_notes()


@dataclass(frozen=True)
class Program:
    train: Callable[..., Any]
    row: Callable[[int], dict[str, str]]
    """Row of a number, as a file has it."""
    read: Callable[[Path], Iterable[Any]]
    """The rows of a file, as training streams them."""
    config: Callable[..., Any]
    """Settings, given a folder for models, data, output and more."""


def of_mt5(folder: Path, data: Path, output: Path, **more: Any) -> mt5.Mt5:
    if not (folder / "model").exists():
        tiny_model(folder / "model")
    return mt5_settings(data, folder / "model", output, **(STREAM | more))


def of_sft(_: Path, data: Path, output: Path, **more: Any) -> sft.Sft:
    chosen = {"train": (str(data),), "batch_size": 8, "dropout": 0.1, "base_score": False}
    return small_sft(output, **(STREAM | chosen | more))


def of_translate(folder: Path, data: Path, output: Path, **more: Any) -> translate.Translate:
    chosen = {"eval_rows": 2, "samples": 0, "max_target_length": 32}
    return quick_settings(folder, train=(str(data),), output_dir=str(output), **(STREAM | chosen | more))


PROGRAMS = {
    "mt5": Program(
        mt5.train, lambda n: {"text": f"{n} {NOTES[n % 120]}"},
        lambda path: TextReader()(text_files([str(path)])[0]), of_mt5,
    ),
    "sft": Program(
        sft.train, lambda n: {"question": f"How many g are {n * 7919 % 100_003} kg?", "answer": f"{n}000"},
        lambda path: QuestionReader(columns=QuestionColumns())(open_data([path])[0]), of_sft,
    ),
    "translate": Program(
        translate.train, lambda n: {"source": f"one {n * 7919 % 100_003}", "target": f"two {n}"},
        lambda path: PairReader(columns=PairColumns())(files_of_pairs([str(path)])[0]), of_translate,
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    return PROGRAMS[request.param]


def write_rows(path: Path, rows: Iterable[dict[str, str]], opener: Any = gzip.open) -> Path:
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.fixture(scope="module")
def folder(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streamed")


@pytest.fixture(scope="module")
def shards(program: Program, folder: Path) -> Path:
    (shards := folder / "shards").mkdir()
    for part in range(4):
        write_rows(shards / f"part-{part}.jsonl.gz", map(program.row, range(part * 30, part * 30 + 30)))
    return shards


@pytest.mark.parametrize("workers", quick_ones([0, 1], 0))
def test_a_run_that_was_cut_ends_with_the_bits_of_one_that_was_not(program, folder, shards, tmp_path, workers):
    whole, again = (program.config(folder, shards, tmp_path / name, workers=workers) for name in ("whole", "cut"))

    def cut(line: str) -> None:
        if line.startswith("step      5 of"):
            raise KeyboardInterrupt

    program.train(whole, quiet)
    with pytest.raises(KeyboardInterrupt):
        program.train(again, cut)
    said: list[str] = []
    program.train(again, said.append)
    assert any(line.startswith("resumed after step") for line in said)
    assert steps_of(tmp_path / "cut") == steps_of(tmp_path / "whole")
    check_same_weights(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.parametrize("workers", quick_ones([0, 1], 0))
def test_a_shard_that_vanishes_is_named_during_training_and_when_a_run_goes_on(
    program, folder, shards, tmp_path, workers
):
    mine = shutil.copytree(shards, tmp_path / "shards")
    config = program.config(folder, mine, tmp_path / "run", epochs=2, workers=workers)

    def remove(line: str) -> None:
        if line.startswith("step      3 of"):
            for path in mine.iterdir():
                path.unlink()

    with pytest.raises(LoaderFailed, match=r"part-\d.jsonl.gz was removed during training") as caught:
        program.train(config, remove)
    assert "Traceback" not in str(caught.value)
    for path in shards.iterdir():
        if path.name != "part-2.jsonl.gz":
            shutil.copy(path, mine)
    with pytest.raises(UsageError, match="started with other files. gone: .*part-2.jsonl.gz"):
        program.train(config, quiet)


@pytest.mark.parametrize("packed", ["jsonl.gz", "jsonl.zst", "parquet"])
def test_a_shard_that_is_cut_is_never_taken_for_a_shorter_one(program, tmp_path, packed):
    rows = [*map(program.row, range(30_000))]
    path = tmp_path / f"rows.{packed}"
    if packed == "parquet":
        arrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(arrow.Table.from_pylist(rows), path)
    else:
        write_rows(path, rows, gzip.open if packed == "jsonl.gz" else pytest.importorskip("zstandard").open)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises((LoaderFailed, UsageError), match=rf"rows.{packed}.*(reading stopped|not valid)"):
        list(program.read(path))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("program", ["sft", "translate"], indirect=True)
def test_two_ranks_go_on_after_a_kill_and_stop_together_where_one_has_no_row(program, folder, shards, tmp_path):
    def settings(output: str, data: Path = shards, **more: Any) -> dict[str, Any]:
        return asdict(program.config(folder, data, tmp_path / output, batch_size=4, **more))

    one = write_rows(tmp_path / "one.jsonl", map(program.row, [0]), open)
    val = write_rows(tmp_path / "val.jsonl", map(program.row, range(1, 9)), open)
    runs = {
        "whole": (settings("whole"), NEVER),
        "killed": (settings("killed"), 7),
        "again": (settings("killed"), NEVER),
        "none": (settings("none", one, val=(str(val),)), NEVER),
    }
    played = play_recipe(program.train.__module__.rpartition(".")[2], runs, tmp_path, ranks=2)
    check_went_on(played, tmp_path, steps=len(steps_of(tmp_path / "whole")))
    assert all(played["none"].ends)
    assert "rank 1 of 2 has no batch in epoch 0: too few rows" in played["none"].said
    assert "Traceback" not in played["none"].said
