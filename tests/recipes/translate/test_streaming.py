"""`train translate --stream on`: the rows of many files, resumed to the bit, shared out, refused in a sentence."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recipe_job import NEVER, check_went_on, play_recipe
from stayfinite.errors import LoaderFailed, UsageError
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq.batching import loading_of
from stayfinite.recipes.seq2seq.built_in import Pair
from stayfinite.recipes.seq2seq.encoding import Encoding
from stayfinite.recipes.seq2seq.pairs import files_of_pairs
from stayfinite.recipes.seq2seq.streaming import PairReader, streamed_pairs
from stayfinite.recipes.seq2seq.tables import Columns
from stayfinite.recipes.seq2seq.tokenizers import load_tokenizer
from stayfinite.recipes.translate import train
from tiny_translations import quick_settings, short_pairs

PAIRS = [Pair(f"{pair.source} {number}", f"{pair.target} {number}") for number, pair in enumerate(short_pairs(96))]
STREAM: dict[str, Any] = {
    "stream": "on", "shuffle_rows": 32, "batch_size": 8, "accumulation": 1, "epochs": 1, "checkpoint_steps": 2,
    "logging_steps": 1, "eval_rows": 2, "samples": 0, "beams": 1, "max_target_length": 32,
}  # fmt: skip


def quiet(_: str) -> None:
    return


def write_rows(path: Path, pairs: list[Pair], opener: Any = gzip.open, **more: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opener(path, "wt", encoding="utf-8") as file:
        rows = ({"source": pair.source, "target": pair.target} | more for pair in pairs)
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    for number in range(4):
        write_rows(folder / f"part-{number}.jsonl.gz", PAIRS[number * 24 : number * 24 + 24])
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where models are, and a run to its end, which nobody cut."""
    return tmp_path_factory.mktemp("translate")


@pytest.fixture(scope="module")
def whole(shards: Path, place: Path) -> Path:
    train(quick_settings(place, train=(str(shards),), output_dir=str(place / "whole"), **STREAM), quiet)
    return place / "whole"


def losses(run: Path) -> list[tuple[int, float]]:
    rows = map(json.loads, (run / "steps.jsonl").read_text().splitlines())
    return sorted({row["step"]: row["loss"] for row in rows}.items())


def sources_of(data: list[str], rank: int = 0, ranks: int = 1, **more: Any) -> tuple[Counter[str], Any]:
    """What a rank is given in a pass, read back from its bytes, and the stream."""
    config = quick_settings(Path(data[0]).parent, train=tuple(data), **(STREAM | more))
    found = streamed_pairs(config, files_of_pairs(data), quiet)
    tokenizer = load_tokenizer("bytes")
    encode = Encoding(tokenizer=tokenizer, prefix="", limits=(200, 200), too_long=config.too_long)
    examples = encode(found.training, quiet)
    loading = loading_of(examples, 0, torch.device("cpu"), batch_size=4, tokens=config.batch_tokens)
    where = Place(device=torch.device("cpu"), rank=rank, count=ranks)
    loader = found.loader(config, encode, loading, where, quiet, rows=len(examples), batch_size=4,
                          tokens=config.batch_tokens)  # fmt: skip
    rows = [row for batch in loader for row in batch["input_ids"].tolist()]
    return Counter(tokenizer.decode(row, skip_special_tokens=True) for row in rows), found


def test_a_run_that_was_cut_takes_the_very_steps_of_one_that_was_not(whole: Path, place: Path, shards: Path) -> None:
    settings = quick_settings(place, train=(str(shards),), output_dir=str(place / "cut"), **STREAM)

    def cut(line: str) -> None:
        if line.startswith("step      5 of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings, cut)
    said: list[str] = []
    train(settings, said.append)
    assert any(line.startswith("resumed after step") for line in said)
    assert losses(place / "cut") == losses(whole)
    ours, theirs = (load_file(run / "best" / "model.safetensors") for run in (place / "cut", whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("tokens", [None, 300])
def test_ranks_share_all_rows_and_no_row_comes_twice(shards: Path, tokens: int | None) -> None:
    seen: Counter[str] = Counter()
    for rank in range(3):
        own, found = sources_of([str(shards)], rank, 3, batch_tokens=tokens)
        assert own
        seen += own
    held = {pair.source for pair in found.validation}
    assert held
    assert seen == Counter(pair.source for pair in PAIRS if pair.source not in held)


def test_a_group_that_validates_is_never_trained_on(tmp_path: Path) -> None:
    for number in range(4):
        write_rows(
            tmp_path / "rows" / f"{number}.jsonl", PAIRS[number * 24 : number * 24 + 24], open, group=f"g{number}"
        )
    seen, found = sources_of([str(tmp_path / "rows")])
    groups = {pair.group for pair in found.validation}
    assert len(groups) == 1
    assert seen == Counter(pair.source for n, pair in enumerate(PAIRS) if f"g{n // 24}" not in groups)


def test_two_aligned_texts_stream_and_of_uneven_length_are_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "left.a", tmp_path / "right.b"
    one.write_text("\n".join(pair.source for pair in PAIRS) + "\n")
    two.write_text("\n".join(pair.target for pair in PAIRS) + "\n")
    seen, found = sources_of([str(one), str(two)])
    assert sum(seen.values()) + len(found.validation) == len(PAIRS)
    two.write_text("\n".join(pair.target for pair in PAIRS[:50]) + "\n")
    with pytest.raises(LoaderFailed, match=r"left.a:51: right.b ends here, the other file has 46 more lines"):
        list(PairReader(columns=Columns())(files_of_pairs([str(one), str(two)])[0]))


def test_rows_that_cannot_be_used_are_passed_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "rows.jsonl", PAIRS[:40], open)
    more = [{"source": "empty", "target": ""}, {"source": "long", "target": "word " * 100_000}]
    path.write_text(path.read_text() + "\n".join([*map(json.dumps, more), "{broken"]) + "\n")
    seen, found = sources_of([str(path)])
    assert sum(seen.values()) + len(found.validation) == 40
    assert "rows.jsonl:43: not JSON" in capfd.readouterr().err


def test_a_shard_that_vanishes_is_named_during_training_and_when_a_run_goes_on(place: Path, shards: Path) -> None:
    mine = place / "shards"
    shutil.copytree(shards, mine)
    settings = quick_settings(place, train=(str(mine),), output_dir=str(place / "gone"), **(STREAM | {"epochs": 2}))

    def remove(line: str) -> None:
        if line.startswith("step      3 of"):
            for path in mine.iterdir():
                path.unlink()

    with pytest.raises(LoaderFailed, match=r"part-\d.jsonl.gz was removed during training"):
        train(settings, remove)
    for path in shards.iterdir():
        if path.name != "part-2.jsonl.gz":
            shutil.copy(path, mine)
    with pytest.raises(UsageError, match="started with other files. gone: .*part-2.jsonl.gz"):
        train(settings, quiet)


@pytest.mark.parametrize("packed", ["jsonl.gz", "jsonl.zst", "parquet"])
def test_a_shard_that_is_cut_is_never_taken_for_a_shorter_one(packed: str, tmp_path: Path) -> None:
    many = [Pair(f"one {n * 7919 % 100_003}", f"two {n}") for n in range(30_000)]
    path = tmp_path / f"rows.{packed}"
    if packed == "parquet":
        arrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        table = arrow.table({"source": [pair.source for pair in many], "target": [pair.target for pair in many]})
        pyarrow.parquet.write_table(table, path)
    else:
        zstandard = pytest.importorskip("zstandard")
        write_rows(path, many, gzip.open if packed == "jsonl.gz" else zstandard.open)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises((LoaderFailed, UsageError), match=rf"rows.{packed}.*(reading stopped|not valid)"):
        list(PairReader(columns=Columns())(files_of_pairs([str(path)])[0]))


def test_a_datasets_object_is_streamed_and_trained_on(place: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"source": [p.source for p in PAIRS], "target": [p.target for p in PAIRS]})
    settings = quick_settings(place, train=(), output_dir=str(place / "object"), **(STREAM | {"max_steps": 3}))
    assert train(settings, quiet, dataset=made).steps == 3


def test_graphs_are_refused_with_a_stream(place: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stayfinite.recipes.translate.refuse_place", lambda *_: None)  # as on a card
    settings = quick_settings(
        place, train=(str(shards),), output_dir=str(place / "graphs"), graphs=True, gradient_checkpointing=False,
        **STREAM,
    )  # fmt: skip
    with pytest.raises(UsageError, match="--graphs with a stream"):
        train(settings, quiet)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_two_ranks_go_on_after_a_kill_and_stop_together_where_one_has_no_row(shards: Path, tmp_path: Path) -> None:
    def settings(output: str, **more: Any) -> dict[str, Any]:
        options = STREAM | {"train": (str(shards),), "batch_size": 4} | more
        return asdict(quick_settings(tmp_path, output_dir=str(tmp_path / output), **options))

    one = write_rows(tmp_path / "one.jsonl", PAIRS[:1], open)
    val = write_rows(tmp_path / "val.jsonl", PAIRS[1:9], open)
    runs = {
        "whole": (settings("whole"), NEVER),
        "killed": (settings("killed"), 7),
        "again": (settings("killed"), NEVER),
        "none": (settings("none", train=(str(one),), val=(str(val),)), NEVER),
    }
    played = play_recipe("translate", runs, tmp_path, ranks=2)
    check_went_on(played, tmp_path, steps=len(losses(tmp_path / "whole")))
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    assert all(played["none"].ends)
    assert "rank 1 of 2 has no batch in epoch 0: too few rows" in played["none"].said
    assert "Traceback" not in played["none"].said
