"""One spelling for what is the same."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stayfinite.recipes.seq2seq import normalising
from stayfinite.recipes.seq2seq.normalising import EXAMPLES, FORMS, normaliser, self_test


@pytest.mark.parametrize(("form", "text", "expected"), EXAMPLES)
def test_each_form_does_what_its_example_says(form, text, expected):
    assert normaliser([form])(text) == expected


def test_every_form_has_an_example():
    assert {form for form, _, _ in EXAMPLES} == set(FORMS)


def test_every_set_of_forms_passes_its_self_test():
    for size in range(len(FORMS) + 1):
        for forms in itertools.combinations(FORMS, size):
            assert self_test(forms) == [], forms


def test_the_self_test_finds_a_form_that_does_nothing(monkeypatch):
    monkeypatch.setitem(normalising._STEPS, "quotes", lambda text: text)
    assert any(line.startswith("quotes: ") for line in self_test(["quotes"]))


def test_the_self_test_finds_a_form_that_is_never_done(monkeypatch):
    monkeypatch.setitem(normalising._STEPS, "gaps", lambda text: text + "x")
    assert any("twice" in line for line in self_test(["gaps"]))


@given(st.text(max_size=40), st.sets(st.sampled_from(FORMS)))
def test_normalising_twice_is_normalising_once(text, forms):
    normalise = normaliser(sorted(forms))
    assert normalise(normalise(text)) == normalise(text)


def test_without_a_form_a_text_stays_as_it_is():
    assert normaliser([])(" a  b ") == " a  b "
