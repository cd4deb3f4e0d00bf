"""How clues become ranked findings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.example import Example
from stayfinite.rules.facts import Facts
from stayfinite.rules.ranking import LEAST, rank
from stayfinite.rules.rule import AGAINST, FAIR, PROOF, STRONG, Clue, Rule, confidence

SICK = Example(log="{'loss': nan, 'grad_norm': nan, 'learning_rate': 1e-4, 'epoch': 0.1}\n").facts()
FINE = Example(
    log="".join(f"{{'loss': {3 - i / 10}, 'grad_norm': 1.0, 'learning_rate': 1e-4}}\n" for i in range(9))
).facts()


def rule(slug, *clues, beats=(), severity="error", code="SF101"):
    return Rule(code=code, slug=slug, severity=severity, fix="f", judge=lambda facts: clues, page="P.", beats=beats)


def test_more_evidence_is_more_confidence_and_contradiction_is_less():
    (weak,) = rank(SICK, [rule("a", Clue("seen", STRONG))])
    (strong,) = rank(SICK, [rule("a", Clue("seen", STRONG), Clue("and this", FAIR))])
    (doubted,) = rank(SICK, [rule("a", Clue("seen", STRONG), Clue("and this", FAIR), Clue("but that", AGAINST))])
    assert weak.confidence < strong.confidence
    assert doubted.confidence < strong.confidence
    assert "against it: but that" in doubted.evidence


def test_a_cause_stands_before_the_symptom_it_explains():
    findings = rank(SICK, [rule("symptom", Clue("nan", PROOF)), rule("cause", Clue("fp16", PROOF), beats=("symptom",))])
    assert [finding.cause for finding in findings] == ["cause", "symptom"]
    assert findings[1].confidence < findings[0].confidence / 2


def test_a_mere_risk_is_no_finding_where_the_run_is_fine():
    risky = rule("a", Clue("fp16 with T5", PROOF, risk=True))
    assert rank(FINE, [risky]) == []
    assert rank(SICK, [risky])
    assert rank(Facts(), [risky]), "without a log a risk is worth saying"


def test_what_only_speaks_against_a_cause_does_not_name_it():
    assert rank(SICK, [rule("a", Clue("no", AGAINST))]) == []


def test_infos_come_last_however_sure_they_are():
    findings = rank(SICK, [rule("info", Clue("x", PROOF), severity="info"), rule("error", Clue("x", STRONG))])
    assert [finding.cause for finding in findings] == ["error", "info"]


def test_what_training_survives_is_a_warning_unless_something_worse_is_seen():
    mild = Clue("the warmup is too long", STRONG, mild=True)
    assert [finding.severity for finding in rank(SICK, [rule("a", mild)])] == ["warning"]
    assert [finding.severity for finding in rank(SICK, [rule("a", mild, Clue("seen", STRONG))])] == ["error"]
    assert [finding.severity for finding in rank(SICK, [rule("a", mild, severity="info")])] == ["info"]


@given(st.lists(st.floats(-12, 12), min_size=1, max_size=6))
def test_confidence_is_a_probability_below_certainty_and_grows_with_every_clue_for_it(weights):
    sure = confidence(sum(weights))
    assert 0.0 <= sure <= 0.99
    assert confidence(sum(weights) + FAIR) >= sure
    found = rank(SICK, [rule("a", *(Clue("c", weight) for weight in weights))])
    assert all(LEAST <= finding.confidence <= 0.99 for finding in found)


@pytest.mark.parametrize("facts", [SICK, FINE, Facts()])
def test_no_rule_at_all_is_no_finding(facts):
    assert rank(facts, []) == []


def test_a_clue_that_knows_what_to_do_says_so_in_place_of_the_rule():
    (plain,) = rank(SICK, [rule("a", Clue("seen", PROOF))])
    (told,) = rank(SICK, [rule("a", Clue("seen", PROOF, fix="lower it"), Clue("and this", FAIR, fix="lower it"))])
    assert (plain.fix, told.fix) == ("f", "lower it")
