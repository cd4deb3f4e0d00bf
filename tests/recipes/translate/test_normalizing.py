"""One spelling for what is the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stayfinite.recipes.seq2seq.pairs import FORMS, normalizer

EXAMPLES = (
    ("nfc", "s\u030cu", "\u0161u"),
    ("nfkc", "u\u2082 \ufb01n", "u2 fin"),
    ("diacritics", "\u0161arrum \u1e6d\u0101bu", "sarrum tabu"),
    ("quotes", "\u201clord\u201d of \u2018gods\u2019", "\"lord\" of 'gods'"),
    ("subscripts", "u\u2082-\u0161a\u2083", "u2-\u0161a3"),
    ("gaps", "a-na [...] LUGAL \u2026 x", "a-na ... LUGAL ... x"),
    ("spaces", " a\u00a0 b\t c ", "a b c"),
)


@pytest.mark.parametrize(("form", "text", "expected"), EXAMPLES)
def test_each_form_does_what_its_example_says(form, text, expected):
    assert normalizer([form])(text) == expected


def test_every_form_has_an_example():
    assert {form for form, _, _ in EXAMPLES} == set(FORMS)


@given(st.text(max_size=40), st.sets(st.sampled_from(FORMS)))
def test_normalizing_twice_is_normalizing_once(text, forms):
    normalize = normalizer(sorted(forms))
    assert normalize(normalize(text)) == normalize(text)


def test_without_a_form_a_text_stays_as_it_is():
    assert normalizer([])(" a  b ") == " a  b "
