"""A pair may train more than once: the other way round, and with its words split otherwise."""

from pathlib import Path

import pytest

from stayfinite.errors import UsageError
from stayfinite.recipes.seq2seq.built_in import store_records
from stayfinite.recipes.seq2seq.encoding import BACK, Encoding, Segmenter
from stayfinite.recipes.seq2seq.models import build_t5
from stayfinite.recipes.seq2seq.streaming import refuse_recorded_stream
from stayfinite.recipes.seq2seq.tokenizers import train_sentencepiece
from stayfinite.recipes.translate import Translate, refuse_impossible

PAIRS = store_records(200)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("tokenizer")


@pytest.fixture(scope="module")
def tokenizer(directory):
    return train_sentencepiece([text for pair in PAIRS for text in (pair.source, pair.target)], directory, 300)


def rows_of(tokenizer, **options):
    encode = Encoding(tokenizer=tokenizer, prefix="to English: ", limits=(99, 99), **options)
    return encode(PAIRS, lambda _: None)


def text_of(tokenizer, ids):
    return tokenizer.decode(ids, skip_special_tokens=True)


def test_two_ways_give_each_pair_back_to_front_as_well_behind_a_mark(tokenizer):
    plain, both = rows_of(tokenizer), rows_of(tokenizer, two_way=True)
    assert both[: len(plain)] == plain
    assert len(both) == 2 * len(plain)
    back = both[len(plain)]
    assert back.source == tokenizer(BACK + PAIRS[0].target).input_ids
    assert back.source[0] == tokenizer.convert_tokens_to_ids(BACK)
    assert text_of(tokenizer, back.target) == PAIRS[0].source


def test_sampled_segmentations_spell_the_same_texts_in_other_pieces(tokenizer, directory):
    segment = Segmenter(tokenizer, directory / "spiece.model", seed=0)
    rows = rows_of(tokenizer, segment=segment, segmentations=2, two_way=True)
    assert len(rows) == 6 * len(PAIRS)
    usual, sampled = rows[: len(PAIRS)], rows[len(PAIRS) : 2 * len(PAIRS)]
    assert [text_of(tokenizer, row.source) for row in sampled] == [text_of(tokenizer, row.source) for row in usual]
    assert [text_of(tokenizer, row.target) for row in sampled] == [text_of(tokenizer, row.target) for row in usual]
    assert sum(one.target != other.target for one, other in zip(usual, sampled, strict=True)) > 20
    assert all(row.source[-1] == row.target[-1] == tokenizer.eos_token_id for row in rows)
    back = rows[3 * len(PAIRS) :]
    assert all(row.source[0] == tokenizer.convert_tokens_to_ids(BACK) for row in back)


def test_it_is_said_how_many_pairs_there_are_to_train_on(tokenizer, directory):
    segment = Segmenter(tokenizer, directory / "spiece.model", seed=0)
    encode = Encoding(
        tokenizer=tokenizer, prefix="", limits=(99, 99), two_way=True, segment=segment, segmentations=2
    )  # fmt: skip
    said = []
    encode(PAIRS, said.append)
    assert said[0] == "200 pairs become 1,200: both directions and 3 segmentations of each"


def test_a_resumed_run_samples_the_same_segmentations(tokenizer, directory):
    first, again = (
        rows_of(tokenizer, segment=Segmenter(tokenizer, directory / "spiece.model", seed=7), segmentations=1)
        for _ in range(2)
    )
    assert first == again


def test_bytes_have_no_segmentations_to_sample(tokenizer, tmp_path):
    with pytest.raises(UsageError, match="SentencePiece"):
        Segmenter(tokenizer, tmp_path / "spiece.model", seed=0)


def test_a_stream_and_sampled_segmentations_are_refused_together():
    with pytest.raises(UsageError, match="--segmentations with a stream"):
        refuse_recorded_stream(Translate(segmentations=1))


def test_depths_of_encoder_and_decoder_are_for_models_built_here(tokenizer, tmp_path):
    config = build_t5("tiny", tokenizer, encoder_layers=3, decoder_layers=1).config
    assert (config.num_layers, config.num_decoder_layers) == (3, 1)
    with pytest.raises(UsageError, match="--decoder-layers"):
        refuse_impossible(Translate(model=str(Path("some/model")), decoder_layers=1, output_dir=str(tmp_path)))


def test_a_decoder_deeper_than_the_encoder_is_refused_before_training(tmp_path):
    refuse_impossible(Translate(model="tiny", encoder_layers=3, decoder_layers=3, output_dir=str(tmp_path)))
    with pytest.raises(UsageError, match="3 decoder layers but 2 encoder layers"):
        refuse_impossible(Translate(model="tiny", decoder_layers=3, output_dir=str(tmp_path)))
