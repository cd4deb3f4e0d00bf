"""Everything that a person reads is short, plain, and in the words of the field."""

from __future__ import annotations

import re

import pytest

from doc_blocks import ROOT
from doc_voice import Said, other_texts_of_the_package, prose_of_the_docs, said_by_the_package

MOST_WORDS = {"message": 20, "fix": 25, "label": 6, "title": 14, "help": 30}
"""A message has at most 20 words before its fix, a label at most 6."""

MOST_IN_A_SENTENCE = 50
"""Words of a sentence in the docs."""

BANNED = {
    r"stands? (?:by|still|for|in|beside|before|between)": "say what it does: waits, stays, is in",
    r"bears?": "is safe for, tolerates",
    r"is taken (?:at|of|for)": "name the operation",
    r"(?:is|are|was|were) told(?! apart)|told of": "is reported, gets",
    r"at the edge of": "division by zero, log of 0",
    r"a wish": "monitor only",
    r"so many|every so many": "this many, every n",
    r"of its own accord|by itself|for itself": "automatically, alone",
    r"here it lies|lies (?:in|beside|at|on)": "is in",
    r"was seen to|it is said|is said so|says so by": "say what was seen",
    r"comes? twice|one and the same": "is duplicated, the same",
    r"is no (?:reason|multiple|finding|symptom|fault|error|leak|incident|number|JSON|text|training)": "is not a",
    r"wants?": "needs",
    r"mend(?:s|ed)?": "fix",
    r"without a word|in vain|for want of": "silently, without",
    r"(?:and )?its kin": "and similar",
    r"for ever|any more|anew": "forever, no longer, again",
    r"whoever|somebody|nobody": "name the actor, or use the passive",
    r"hangs? on": "depends on",
    r"heard of": "reported",
    r"guilty": "bad",
    r"passed over": "skipped",
    r"cut off": "truncated",
    r"cannot be had|out of reach": "is not possible",
    r"round(?:s|ed)? away": "rounds to zero",
    r"what follows from": "consequences",
    r"goes on|go on|going on": "continues, resumes",
}
"""Coinages, each with what to write instead."""

BRITISH = re.compile(
    r"\b\w*(?:colour|behaviour|favour|neighbour|honour|labell(?:ed|ing)|modelling|cancelled|catalogue|artefact|licence|"
    r"normalis|recognis|initialis|optimis(?!t)|sanitis|serialis|synchronis|quantis|summaris|tokenis|minimis|maximis|"
    r"regularis|generalis|standardis|utilis|randomis|judgement|learnt|centre)\w*",
    re.IGNORECASE,
)

DOUBLE_NEGATION = re.compile(
    r"\b(?:not|never|no|none) (?:\w+ ){0,2}"
    r"(?:un(?:likely|usual|common|known|safe|able)|without|impossible|nothing|none)\b",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def said():
    return said_by_the_package()


@pytest.fixture(scope="module")
def prose():
    return prose_of_the_docs()


@pytest.fixture(scope="module")
def everything(said, prose):
    return [*said, *other_texts_of_the_package(), *prose]


@pytest.mark.parametrize("kind", MOST_WORDS)
def test_what_is_said_is_short(said, kind):
    of_it = [each for each in said if each.kind == kind]
    assert len(of_it) > 50
    assert listed(f"{each.words} words: {each}" for each in of_it if each.words > MOST_WORDS[kind]) == ""


@pytest.mark.parametrize("phrase", BANNED)
def test_no_coinage_is_used(everything, phrase):
    found = re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE)
    assert listed(each for each in everything if found.search(each.bare)) == "", f"write: {BANNED[phrase]}"


def test_spelling_is_american(everything):
    assert listed(each for each in everything if BRITISH.search(each.bare)) == ""


def test_nothing_is_negated_twice(everything):
    assert listed(each for each in everything if DOUBLE_NEGATION.search(each.bare)) == ""


def test_no_sentence_begins_with_what_something_is(said):
    riddle = re.compile(r"^what (?:is|was|has|it|they|the|a) ", re.IGNORECASE)
    assert listed(each for each in said if each.kind != "help" and riddle.match(each.text)) == ""


def test_a_sentence_of_the_docs_is_read_in_one_breath(prose):
    long = [
        f"{Said('prose', sentence, each.place).words} words: {each.place}: {sentence[:120]}"
        for each in prose
        if not each.text.lstrip().startswith("|")
        for sentence in re.split(r"(?<=[.!?:;])\s", each.bare)
        if Said("prose", sentence, "").words > MOST_IN_A_SENTENCE
    ]
    assert listed(long) == ""


def test_no_message_ends_in_a_lone_word(said):
    widow = re.compile(r"[.!?]\s+\w{1,12}[.!]?$")
    assert listed(each for each in said if each.kind in ("message", "title", "help") and widow.search(each.text)) == ""


def test_the_collector_finds_a_string_of_each_sort(said):
    texts = {each.text for each in said}
    assert {"precision for this model", "Never repeat n-grams of this size; 0 to allow repeats."} <= texts
    assert any("rounds to zero" in each for each in texts)
    assert (ROOT / "README.md").is_file()


def listed(found) -> str:
    return "\n".join(map(str, found))
