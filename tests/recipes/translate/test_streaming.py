"""`train translate --stream on`: the rows of many files, shared out, refused in a sentence."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe_job import quiet
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


def test_a_datasets_object_is_streamed_and_trained_on(folder: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"source": [p.source for p in PAIRS], "target": [p.target for p in PAIRS]})
    settings = quick_settings(folder, train=(), output_dir=str(folder / "object"), **(STREAM | {"max_steps": 3}))
    assert train(settings, quiet, dataset=made).steps == 3


def test_graphs_are_refused_with_a_stream(folder: Path, shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stayfinite.recipes.translate.refuse_place", lambda *_: None)  # as on a card
    settings = quick_settings(
        folder, train=(str(shards),), output_dir=str(folder / "graphs"), graphs=True, gradient_checkpointing=False,
        **STREAM,
    )  # fmt: skip
    with pytest.raises(UsageError, match="--graphs with a stream"):
        train(settings, quiet)
