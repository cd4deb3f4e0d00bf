"""`train sft --stream on`: the rows of many files, shared out, refused in a sentence."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe_job import quiet
from stayfinite.errors import UsageError
from stayfinite.readers.data.arrow_rows import dataset_source
from stayfinite.readers.data.opening import open_data
from stayfinite.recipes.chat.data import conversions
from stayfinite.recipes.chat.prompts import Prompting
from stayfinite.recipes.chat.questions import Columns, Question, key_of
from stayfinite.recipes.chat.streaming import QuestionReader, streamed_questions
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.sft import Sft, quick, train
from stayfinite.recipes.streaming.loading import opened
from stayfinite.recipes.streaming.stream import Bounds, Rows, Spot, Stream, Stripe

from .conftest import small

ASKED = conversions("metric", 96, held_out=False)


def write_rows(path: Path, questions: list[Question], opener: Any = gzip.open) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"question": each.text, "answer": each.answer}) + "\n" for each in questions)
    return path


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    for number in range(4):
        write_rows(folder / f"part-{number}.jsonl.gz", ASKED[number * 24 : number * 24 + 24])
    return folder


def streamed(data: Path | str, output: Path, **more: Any) -> Sft:
    settings = {"train": (str(data),), "stream": "on", "shuffle_rows": 32, "batch_size": 8, "dropout": 0.1, "epochs": 1,
                "checkpoint_steps": 2, "logging_steps": 1, "base_score": False}  # fmt: skip
    return small(output, **(settings | more))


class Words:
    """A tokenizer whose tokens are characters, enough for a pool."""

    pad_token_id, eos_token_id, bos_token_id, chat_template = 0, 1, None, None

    def __call__(self, texts: list[str], **_: Any) -> Any:
        return type("Rows", (), {"input_ids": [[ord(each) for each in text] for text in texts]})()


def asked_in(batches: Any) -> Counter[str]:
    """The questions of batches whose tokens are characters."""
    texts = ("".join(map(chr, row)) for batch in batches for row in batch["input_ids"].tolist())
    return Counter(text.split("Question: ")[1].split("\nAnswer")[0] for text in texts)


def loader_for(data: Path, rank: int = 0, ranks: int = 1, say: Any = quiet, **more: Any) -> Any:
    config = streamed(data, data / "never", **({"max_length": 200} | more))
    found = streamed_questions(config, open_data([data]), say)
    place = Place(device=torch.device("cpu"), rank=rank, count=ranks)
    loader = found.loader(config, Prompting(tokenizer=Words()), place, say, batch_size=4)
    return loader, found


@pytest.mark.parametrize("workers", [0, 1])
def test_ranks_share_all_rows_and_no_row_comes_twice(shards: Path, workers: int) -> None:
    seen = [Counter[str](), Counter[str](), Counter[str]()]
    for rank in range(3):
        loader, found = loader_for(shards, rank, 3, workers=workers)
        seen[rank] = asked_in(loader)
    held = {question.text for question in found.validation}
    assert held
    assert sum(seen, Counter()) == Counter(question.text for question in ASKED if question.text not in held)


def test_rows_that_cannot_be_used_are_passed_over_and_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_rows(tmp_path / "rows.jsonl", ASKED[:40], open)
    bad = ['{"question": "empty?", "answer": ""}', "{broken", '{"question": "tags?", "answer": "<answer>1"}']
    long = json.dumps({"question": "long?", "answer": "9" * 500})
    path.write_text(path.read_text() + "\n".join([*bad, long]) + "\n")
    loader, found = loader_for(tmp_path)
    seen = asked_in(loader)
    assert len(seen) + len(found.validation) == 40
    said = capfd.readouterr().err
    assert "rows.jsonl:41: answer is empty: row skipped" in said
    assert "rows.jsonl:42: not JSON" in said
    assert "rows.jsonl:43: answer contains answer tags" in said
    assert "rows.jsonl:44: its answer of 518 tokens does not fit into --max-length 200" in said


def test_what_is_held_out_is_never_trained_on_and_is_not_much(tmp_path: Path) -> None:
    many = [Question(text=f"What is {n}?", answer=str(n)) for n in range(5000)]
    write_rows(tmp_path / "many.jsonl.gz", many)
    _, found = loader_for(tmp_path, val_share=0.3)
    assert len(found.validation) == 1000
    val = write_rows(tmp_path / "val" / "val.jsonl", many[:50], open)
    (tmp_path / "val").rename(tmp_path.parent / f"{tmp_path.name}-val")
    loader, found = loader_for(tmp_path, val=(str(tmp_path.parent / f"{tmp_path.name}-val" / val.name),))
    assert {question.text for question in found.validation} == {question.text for question in many[:50]}
    assert asked_in(loader) == Counter(question.text for question in many[50:])


def test_memory_holds_one_window_however_many_rows_there_are(tmp_path: Path) -> None:
    def peak(rows: int) -> int:
        folder = tmp_path / str(rows)
        asked = [
            Question(text=f"What is {n} and then some more words to fill the row?", answer="1") for n in range(rows)
        ]
        for start in range(0, rows, 500):
            write_rows(folder / f"{start:06}.jsonl.gz", asked[start : start + 500])
        del asked
        config = streamed(folder, folder / "never")
        reader = QuestionReader(columns=Columns.of(config))
        stream = Stream(
            rows=Rows(open_data([folder]), reader), make=lambda rows, _: [len(rows)], pool=64,
            bounds=Bounds(rows=250), size=lambda row: len(row.text),
        )  # fmt: skip
        tracemalloc.start()
        assert sum(count for _, count in stream.batches(Stripe(0, 1), Spot())) == rows
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(6000) < 1.3 * peak(1500)


def test_a_quick_look_takes_a_stream(shards: Path, tmp_path: Path) -> None:
    flags = ["--train", str(shards), "--stream", "on", "--device", "cpu", "--output-dir", str(tmp_path)]
    assert quick(flags).verdict == "healthy"


def test_a_pattern_stands_for_its_files_in_order(shards: Path) -> None:
    files = opened([str(shards / "part-[12]*.gz")], open_data)
    assert [file.path.name for file in files] == ["part-1.jsonl.gz", "part-2.jsonl.gz"]
    with pytest.raises(UsageError, match="no such file"):
        opened([str(shards / "nothing-*.gz")], open_data)


def test_a_datasets_object_is_streamed_and_trained_on(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"question": [q.text for q in ASKED], "answer": [q.answer for q in ASKED]})
    reader = QuestionReader(columns=Columns())
    for each in (made, made.to_iterable_dataset(num_shards=3)):
        assert [key_of(q.text) for q in reader(dataset_source(each))] == [key_of(q.text) for q in ASKED]
    config = small(tmp_path, shuffle_rows=32, batch_size=8, base_score=False, max_steps=3)
    assert train(config, quiet, dataset=made).steps == 3


def test_a_hubs_data_of_unknown_size_needs_a_number_of_steps(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = [{"question": q.text, "answer": q.answer} for q in ASKED]
    endless = datasets.IterableDataset.from_generator(lambda: iter(rows))
    with pytest.raises(UsageError, match="does not say how large") as caught:
        train(small(tmp_path, batch_size=8, base_score=False), quiet, dataset=endless)
    assert "--max-steps" in str(caught.value.fix)
