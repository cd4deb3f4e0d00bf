"""Every kind of tokenizer is met from disk alone, and what it does to the text is told."""

import json
import random

import pytest

from inspection.data.healthy_sets import AKKADIAN, ENGLISH, words, write_csv
from inspection.data.tiny_tokenizers import byte_pairs, letters, pieces
from stayfinite.errors import UsageError
from stayfinite.inspection.data.inspecting import inspect_data
from stayfinite.inspection.data.tokenizers import tokenizer_of

TEXTS = [words(ENGLISH, 5, 12, random.Random(n)) for n in range(200)]


@pytest.fixture
def data(tmp_path):
    rows = [[words(AKKADIAN, 5, 12, random.Random(n)), TEXTS[n]] for n in range(100)]
    return write_csv(tmp_path / "pairs.csv", ["source", "target"], rows)


def table(inspection, title):
    return next(table for table in inspection.tables if table.title.startswith(title))


def fates(inspection):
    return {row[0]: row[-1] for row in table(inspection, "Characters").rows}


def test_bytes_are_counted_with_the_end_token():
    assert tokenizer_of("bytes").measure.encoded(["abc", "šu₂", ""]).lengths == [4, 7, 1]


@pytest.mark.parametrize("name", ["bytes", "google/byt5-small"])
def test_a_byte_model_keeps_every_character(data, name):
    inspection = inspect_data([data], tokenizer=name)
    assert set(fates(inspection).values()) == {"kept"}
    assert inspection.verdict == "healthy"


def test_a_byte_level_tokenizer_knows_everything(data, tmp_path):
    inspection = inspect_data([data], tokenizer=byte_pairs(tmp_path, TEXTS), max_length=4000)
    assert set(fates(inspection).values()) == {"kept"}
    assert inspection.verdict == "healthy"


def test_a_sentencepiece_model_loses_what_it_was_not_trained_on(data, tmp_path):
    inspection = inspect_data([data], tokenizer=pieces(tmp_path, TEXTS))
    assert fates(inspection)["š"] == "unknown"
    assert "tokenizer-mismatch" in [finding.cause for finding in inspection.findings]


def test_a_character_that_the_tokenizer_rewrites_is_shown_as_what_it_becomes(data, tmp_path):
    alphabet = "".join({c for words in (AKKADIAN, ENGLISH) for word in words for c in word}) + " 2"
    inspection = inspect_data([data], tokenizer=letters(tmp_path / "model", alphabet))
    assert fates(inspection)["₂"] == "becomes 2"
    assert fates(inspection)["š"] == "kept"
    assert inspection.verdict == "healthy"


def test_the_length_limit_of_the_tokenizer_is_used_when_none_is_given(data, tmp_path):
    model = letters(tmp_path / "model", "abc")
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 20}))
    assert ("limit", "20 tokens") in inspect_data([data], tokenizer=model).banner


def test_a_tokenizer_that_truncates_by_itself_does_not_hide_the_true_length(tmp_path):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{letters(tmp_path / 'model', 'abc')}/tokenizer.json")
    tokenizer.enable_truncation(8)
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    assert tokenizer_of(str(tmp_path / "model")).measure.encoded(["a" * 30]).lengths == [31]


@pytest.mark.slow
def test_a_vocabulary_file_is_loaded_through_transformers(data, tmp_path):
    model = tmp_path / "bert"
    model.mkdir()
    (model / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *ENGLISH]))
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (model / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 64}))
    inspection = inspect_data([data], tokenizer=str(model))
    assert "tokenizer-mismatch" in [finding.cause for finding in inspection.findings]


def test_a_name_is_found_in_the_local_cache(data, tmp_path, monkeypatch):
    snapshot = tmp_path / "hub" / "models--somebody--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    letters(snapshot, "abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert tokenizer_of("somebody/model").rows == 5


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("{}")])
def test_what_is_no_tokenizer_is_told_in_one_sentence(tmp_path, make, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    make(tmp_path / "model.json")
    with pytest.raises(UsageError, match="model.json"):
        tokenizer_of(str(tmp_path / "model.json"))


def test_of_many_rows_a_part_is_tokenised_and_that_is_said(data, tmp_path, monkeypatch):
    monkeypatch.setattr("stayfinite.inspection.data.split.MOST_ROWS", 25)
    inspection = inspect_data([data], tokenizer=byte_pairs(tmp_path, TEXTS), max_length=4000)
    assert any("from every 4th row" in line.seen for line in inspection.lines)


def test_mixed_forms_and_quotes_are_shown_and_are_no_finding(tmp_path):
    texts = [f"e\u0301te\u0301 {n} \u201cso\u201d" if n % 3 else f"été {n} «so» non\u00a0breaking" for n in range(60)]
    inspection = inspect_data([write_csv(tmp_path / "a.csv", ["text"], [[text] for text in texts])])
    shown = dict(table(inspection, "Mixed").rows)
    assert "20 texts composed (NFC), 40 not: a.csv:3" in shown["accents"]
    assert "« 20" in shown["quote characters"]
    assert shown["invisible characters"] == "U+00A0 20"
    assert inspection.findings == []
