from __future__ import annotations

import json
import random
import sys

import pytest

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.recipes.seq2seq.models import build_t5, fit_vocabulary, load_seq2seq
from stayfinite.recipes.seq2seq.tokenizers import (
    LONGEST,
    check_ids,
    has_tokenizer,
    load_tokenizer,
    pieces,
    sentinel_ids,
    train_sentencepiece,
    with_sentinels,
)

TEXTS = [f"the {colour} {beast} runs over hill {number}" for number in range(20) for colour in ("red", "blue")
         for beast in ("fox", "hare", "stag")]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return train_sentencepiece(TEXTS, tmp_path_factory.mktemp("tokenizer"), 128)


def test_a_trained_tokenizer_keeps_its_pieces_and_has_the_sentinels_last(tokenizer):
    ids = sentinel_ids(tokenizer)
    assert len(ids) == 100
    assert ids[0] == len(tokenizer) - 1  # <extra_id_0> is the last id
    assert ids == sorted(ids, reverse=True)
    assert tokenizer.decode(tokenizer(TEXTS[0]).input_ids, skip_special_tokens=True) == TEXTS[0]


def test_without_protobuf_it_is_named_and_not_a_package_that_would_not_help(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)  # as if it were not installed
    with pytest.raises(MissingExtra, match="protobuf") as raised:
        train_sentencepiece(TEXTS, tmp_path, 128)
    assert "pip install protobuf" in str(raised.value)
    assert "tiktoken" not in str(raised.value)


def test_a_text_longer_than_sentencepiece_takes_is_still_learnt_from(tmp_path):
    chance = random.Random(0)
    words = " ".join(chance.choice(("quux", "zebra", "lamp", "fig")) for _ in range(20_000))  # 100,000 characters
    found = train_sentencepiece([words], tmp_path, 64)
    assert found.unk_token_id not in found("quux zebra").input_ids
    unspaced = "".join(chr(0x4E00 + chance.randrange(60)) for _ in range(30_000))
    found = train_sentencepiece([unspaced], tmp_path / "no-spaces", 64)
    assert found.unk_token_id not in found(unspaced[:50], add_special_tokens=False).input_ids


def test_a_text_that_says_the_same_twenty_thousand_times_does_not_take_for_ever(tmp_path):
    found = train_sentencepiece(["The old town stands on a hill by the river. " * 20_000], tmp_path, 64)
    assert found.unk_token_id not in found("the hill town").input_ids


def test_a_line_is_cut_at_spaces_and_loses_no_word():
    words = [f"word{number}" for number in range(2000)]
    cut = list(pieces(" ".join(words), LONGEST))
    assert max(map(len, cut)) <= LONGEST
    assert " ".join(cut).split() == words
    assert "".join(pieces("x" * 1000, LONGEST)) == "x" * 1000


def test_sentinels_that_begin_a_word_are_found(tmp_path):
    # mT5's vocabulary has them as ordinary pieces: `▁<extra_id_0>`.
    pytest.importorskip("tokenizers")
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    pieces = {"<pad>": 0, "</s>": 1, "<unk>": 2, "a": 3, "\u2581<extra_id_1>": 4, "\u2581<extra_id_0>": 5}
    made = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(pieces, unk_token="<unk>")), unk_token="<unk>", pad_token="<pad>",
        eos_token="</s>",
    )  # fmt: skip
    assert sentinel_ids(made) == with_sentinels(made) == [5, 4]


def test_a_tokenizer_without_sentinels_is_given_them(tmp_path):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    pieces = {"<pad>": 0, "</s>": 1, "<unk>": 2, "a": 3}
    made = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(pieces, unk_token="<unk>")), unk_token="<unk>", pad_token="<pad>",
        eos_token="</s>",
    )  # fmt: skip
    assert sentinel_ids(made) == []
    assert with_sentinels(made) == list(range(4, 104))


def test_embeddings_are_made_to_fit_the_tokenizer(tokenizer):
    model = build_t5("tiny", tokenizer)
    rows = model.get_input_embeddings().num_embeddings
    assert rows % 64 == 0
    assert fit_vocabulary(model, tokenizer) == 0
    model.resize_token_embeddings(len(tokenizer) - 50)
    with pytest.raises(UsageError, match="ids go up to"):
        check_ids(tokenizer, model)
    assert fit_vocabulary(model, tokenizer) == 50
    check_ids(tokenizer, model)
    model.resize_token_embeddings(4096)
    assert fit_vocabulary(model, tokenizer) == 0
    assert fit_vocabulary(model, tokenizer, shrink=True) == rows - 4096
    assert model.lm_head.weight.shape[0] == rows
    check_ids(tokenizer, model)


def test_a_tokenizer_that_is_not_there_or_damaged_is_refused_by_name(tmp_path):
    assert not has_tokenizer(tmp_path)
    with pytest.raises(UsageError, match="cannot load"):
        load_tokenizer(str(tmp_path))
    (tmp_path / "spiece.model").write_bytes(b"this is no model")
    assert has_tokenizer(tmp_path)
    with pytest.raises(UsageError, match="cannot load"):
        load_tokenizer(str(tmp_path))


def test_a_model_that_is_damaged_is_refused_by_name(tmp_path, tokenizer):
    build_t5("tiny", tokenizer).save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UsageError, match="cannot load the model"):
        load_seq2seq(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}), encoding="utf-8")
    with pytest.raises(UsageError, match="cannot load the model"):
        load_seq2seq(str(tmp_path))
