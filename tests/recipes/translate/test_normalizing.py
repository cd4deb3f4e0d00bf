"""One spelling for what is the same."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stayfinite.recipes.seq2seq import normalizing
from stayfinite.recipes.seq2seq.normalizing import EXAMPLES, FORMS, normalizer, self_test


@pytest.mark.parametrize(("form", "text", "expected"), EXAMPLES)
def test_each_form_does_what_its_example_says(form, text, expected):
    assert normalizer([form])(text) == expected


def test_every_form_has_an_example():
    assert {form for form, _, _ in EXAMPLES} == set(FORMS)


def test_every_set_of_forms_passes_its_self_test():
    for size in range(len(FORMS) + 1):
        for forms in itertools.combinations(FORMS, size):
            assert self_test(forms) == [], forms


def test_the_self_test_finds_a_form_that_does_nothing(monkeypatch):
    monkeypatch.setitem(normalizing._STEPS, "quotes", lambda text: text)
    assert any(line.startswith("quotes: ") for line in self_test(["quotes"]))


def test_the_self_test_finds_a_form_that_is_never_done(monkeypatch):
    monkeypatch.setitem(normalizing._STEPS, "gaps", lambda text: text + "x")
    assert any("twice" in line for line in self_test(["gaps"]))


@given(st.text(max_size=40), st.sets(st.sampled_from(FORMS)))
def test_normalizing_twice_is_normalizing_once(text, forms):
    normalize = normalizer(sorted(forms))
    assert normalize(normalize(text)) == normalize(text)


def test_without_a_form_a_text_stays_as_it_is():
    assert normalizer([])(" a  b ") == " a  b "
