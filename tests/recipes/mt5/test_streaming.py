"""`train mt5 --stream on`: any file format, in bounded memory, refused in a sentence."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import shutil
from pathlib import Path

import pytest

from recipe_job import quiet
from stayfinite.errors import UsageError
from stayfinite.readers.data.arrow_rows import dataset_source
from stayfinite.recipes import mt5
from stayfinite.recipes.language.built_in import travel_notes
from stayfinite.recipes.language.streaming import LONGEST, TextReader, sample_of, text_files
from stayfinite.recipes.streaming.loader import StreamLoader
from stayfinite.recipes.streaming.loading import streams
from stayfinite.recipes.streaming.stream import Rows, Stream
from tiny_language import settings, write_shards

NOTES = travel_notes()[:120]
STREAM = {"stream": "on", "shuffle_rows": 32, "epochs": 1}


def write_jsonl(path: Path, texts: list[str], opened=open) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    return path


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("shards") / "notes")


def write_as(kind: str, folder: Path, texts: list[str] = NOTES) -> Path:
    """Texts in a format; returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"notes.{kind}"
    if kind == "txt":
        path.write_text("\n".join(texts), encoding="utf-8")
    elif kind == "csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerows([["id", "text"], *([number, text] for number, text in enumerate(texts))])
    elif kind in ("parquet", "arrow"):
        arrow = pytest.importorskip("pyarrow")
        table = arrow.table({"text": texts, "picture": [b"\x00"] * len(texts)})
        if kind == "parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(table, path, row_group_size=50)
        else:
            with arrow.OSFile(str(path), "wb") as sink, arrow.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table, max_chunksize=50)
    else:
        openers = {"jsonl": open, "jsonl.gz": gzip.open, "jsonl.bz2": bz2.open}
        write_jsonl(path, texts, openers.get(kind) or pytest.importorskip("zstandard").open)
    return path


@pytest.mark.parametrize(
    "kind", ["txt", "jsonl", "jsonl.gz", "jsonl.bz2", "jsonl.zst", "csv", "parquet", "arrow"]
)  # fmt: skip
def test_every_format_streams_the_same_texts(kind, tmp_path):
    (source,) = text_files([str(write_as(kind, tmp_path))])
    assert list(TextReader()(source)) == NOTES


def test_a_datasets_object_and_what_it_saved_stream_the_same_texts(tmp_path):
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"text": NOTES})
    assert list(TextReader()(dataset_source(made))) == NOTES
    assert list(TextReader()(dataset_source(made.to_iterable_dataset(num_shards=3)))) == NOTES
    stream = Stream(
        rows=Rows([dataset_source(made.to_iterable_dataset(num_shards=3))], TextReader()), pool=8,
        make=lambda rows, _: iter(rows),
    )  # fmt: skip
    # `datasets` deals its shards to the workers of a loader by itself; dealt twice, rows would be lost.
    assert sorted(StreamLoader(stream, workers=2)) == sorted(NOTES)
    made.save_to_disk(str(tmp_path / "saved"))
    (source,) = text_files([str(tmp_path / "saved")])
    assert list(TextReader()(source)) == NOTES


def test_a_hubs_name_that_cannot_be_had_is_a_sentence(model, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="cannot open hub:nobody/nothing-at-all"):
        mt5.train(settings("hub:nobody/nothing-at-all", model, tmp_path / "run"), quiet)
    with pytest.raises(UsageError, match="expected hub:OWNER/NAME"):
        mt5.train(settings("hub:a b", model, tmp_path / "run"), quiet)


def test_what_validates_is_never_trained_on(model, shards, tmp_path):
    files = text_files([str(shards)])
    held = tmp_path / "val.txt"
    held.write_text("\n".join(NOTES[:30]), encoding="utf-8")
    seen: list[str] = []
    whole = mt5.streamed_corpus

    def watched(*arguments):
        made = whole(*arguments)
        assert not set(made.training) & set(made.validation)
        assert set(made.validation) == set(NOTES[:30])
        seen.append("asked")
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mt5, "streamed_corpus", watched)
        mt5.train(settings(shards, model, tmp_path / "run", val=(str(held),), max_steps=2, **STREAM), quiet)
    assert seen
    assert len(files) == 4


def test_a_shard_that_vanished_changed_or_is_new_is_named(model, shards, tmp_path):
    mine = tmp_path / "shards"
    shutil.copytree(shards, mine)
    run = settings(mine, model, tmp_path / "run", max_steps=4, **STREAM)
    mt5.train(run, quiet)
    kept = (mine / "part-2.jsonl.gz").read_bytes()
    (mine / "part-2.jsonl.gz").unlink()
    with pytest.raises(UsageError, match="started with other files. gone: .*part-2.jsonl.gz"):
        mt5.train(run, quiet)
    (mine / "part-2.jsonl.gz").write_bytes(kept)
    write_jsonl(mine / "part-9.jsonl.gz", NOTES[:3], gzip.open)
    with pytest.raises(UsageError, match="new: .*part-9.jsonl.gz"):
        mt5.train(run, quiet)
    (mine / "part-9.jsonl.gz").unlink()
    write_jsonl(mine / "part-2.jsonl.gz", NOTES[:3], gzip.open)
    with pytest.raises(UsageError, match=r"changed: .*part-2.jsonl.gz \([\d,]+ bytes, now"):
        mt5.train(run, quiet)


def test_a_row_that_is_no_json_is_passed_over_and_told(tmp_path, capsys):
    path = write_jsonl(tmp_path / "rows.jsonl", NOTES[:3])
    path.write_text(path.read_text(encoding="utf-8") + "{broken\n", encoding="utf-8")
    (source,) = text_files([str(path)])
    assert list(TextReader()(source)) == NOTES[:3]
    assert "rows.jsonl:4: not JSON" in capsys.readouterr().err


def test_a_text_that_is_very_long_comes_in_pieces_and_loses_no_word(tmp_path):
    words = [f"word{number}" for number in range(50_000)]
    (source,) = text_files([str(write_jsonl(tmp_path / "long.jsonl", [" ".join(words)]))])
    found = list(TextReader()(source))
    assert max(map(len, found)) <= LONGEST
    assert " ".join(found).split() == words


def test_a_sample_knows_the_size_of_the_whole_without_reading_it(tmp_path):
    texts = [f"{number} {text}" for number in range(200) for text in NOTES]
    write_jsonl(tmp_path / "many.jsonl", texts)
    (source,) = files = text_files([str(tmp_path / "many.jsonl")])
    read: list[int] = []
    chunks = source.chunks
    source.chunks = lambda: (read.append(len(chunk.lines)) or chunk for chunk in chunks())
    _, found = sample_of(files, None, 10, most=50_000)
    assert sum(read) < len(texts) / 3
    assert found.characters == pytest.approx(sum(map(len, texts)), rel=0.1)


def test_auto_streams_what_is_large_or_on_a_hub(tmp_path):
    (source,) = text_files([str(write_jsonl(tmp_path / "a.jsonl.gz", NOTES, gzip.open))])
    assert not streams("auto", [source])
    source.size = 300 << 20
    assert streams("auto", [source])
    assert not streams("off", [source])


def test_a_hubs_data_is_not_held_in_memory_and_the_built_in_text_is_not_streamed(model, tmp_path):
    datasets = pytest.importorskip("datasets")
    source = dataset_source(datasets.Dataset.from_dict({"text": NOTES}), "hub:some/name")
    assert streams("auto", [source])
    with pytest.raises(UsageError, match="hub:some/name can only be streamed"):
        streams("off", [source])
    assert not streams("on", [])
    with pytest.raises(UsageError, match="hub:some/name: no such file"):
        mt5.train(settings(tmp_path, model, tmp_path / "run", val=("hub:some/name",)), quiet)


def test_too_few_rows_are_refused(model, tmp_path):
    write_jsonl(tmp_path / "few" / "a.jsonl", NOTES[:4])
    with pytest.raises(UsageError, match="at least 10 examples"):
        mt5.train(settings(tmp_path / "few", model, tmp_path / "run", **STREAM), quiet)
