"""BLEU and chrF++ by sacrebleu, the right way round."""

import pytest
from sacrebleu.metrics.bleu import BLEU

from stayfinite.errors import UsageError
from stayfinite.recipes.seq2seq.evaluating import Scores, score

TRANSLATIONS = [
    "the king gave ten sheep to the temple",
    "the scribe wrote the tablet at night",
    "they built a new gate",
]
REFERENCES = [
    "the king gave ten sheep to the temple",
    "a scribe wrote this tablet in the night",
    "the builders made the old bridge of bricks",
]


def test_the_scores_are_those_of_the_whole_corpus():
    found = score(TRANSLATIONS, REFERENCES)
    assert found.bleu == pytest.approx(BLEU().corpus_score(TRANSLATIONS, [REFERENCES]).score)
    assert found.rows == 3
    assert 0 < found.bleu < 100
    assert found.mean == pytest.approx((found.bleu * found.chrf) ** 0.5)


def test_references_given_the_wrong_way_round_would_be_noticed():
    # One list for each sentence instead of one for each set: sacrebleu then looks at the first sentence alone.
    transposed = BLEU().corpus_score(TRANSLATIONS, [[reference] for reference in REFERENCES]).score
    found = score(TRANSLATIONS, REFERENCES).bleu
    assert transposed == pytest.approx(100)
    assert found < 60
    assert score(TRANSLATIONS, [REFERENCES[0], *TRANSLATIONS[1:]]).bleu == pytest.approx(100)


def test_translations_and_references_are_not_interchangeable():
    assert score(["the king"], ["the king of the land"]).bleu != pytest.approx(
        score(["the king of the land"], ["the king"]).bleu
    )


def test_chrf_counts_words_too():
    # With word_order=0 (chrF) both would be the same.
    assert score(["ab cd"], ["abcd"]).chrf < 90


def test_order_matters():
    assert score(TRANSLATIONS, REFERENCES[::-1]).bleu < score(TRANSLATIONS, REFERENCES).bleu / 2


@pytest.mark.parametrize(("translations", "references"), [([], []), (["a"], []), (["a"], ["a", "b"])])
def test_numbers_that_do_not_match_are_refused(translations, references):
    with pytest.raises(UsageError, match="translations and"):
        score(translations, references)


def test_scores_tell_themselves():
    told = str(Scores(bleu=36.0, chrf=49.0, rows=12))
    assert told == "BLEU 36.00  chrF++ 49.00  geometric mean 42.00  (12 rows)"
