"""A diagnosis on the terminal."""

import io

import pytest
from rich.console import Console

from stayfinite import diagnose
from stayfinite.report.diagnosis import show_diagnosis

LOST = "".join(f"{{'loss': {loss}, 'learning_rate': 5e-05, 'epoch': {at}}}\n" for at, loss in
               ((0.1, 2.31), (0.2, 2.12), (0.3, "nan")))  # fmt: skip


@pytest.fixture
def undecided(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(LOST)
    found = diagnose(log).to_json()
    return found | {"sources": [*found["sources"], {"path": "train.py", "read_as": "code", "said": "a script"}]}


def shown(diagnosis, **how):
    console = Console(file=io.StringIO(), width=120)
    show_diagnosis(diagnosis, console, **how)
    return console.file.getvalue()


def test_an_open_question_names_the_doctor_as_the_next_step(undecided):
    assert "Or prove it: stayfinite doctor train.py" in shown(undecided)


def test_the_doctor_does_not_advise_itself(undecided):
    said = shown(undecided, by_doctor=True)
    assert "Cause not certain. Next:" in said
    assert "stayfinite doctor" not in said


def a_guess(cause, confidence):
    evidence = ["a guess from similar runs ('lr'): nothing in the files points to one cause"]
    return {"code": "SF201", "cause": cause, "severity": "error", "confidence": confidence, "where": "",
            "title": "A title.", "evidence": evidence, "fix": "divide the rate"}  # fmt: skip


def test_a_weak_guess_is_no_answer_and_its_fix_no_advice(undecided):
    found = undecided | {"findings": [a_guess("lr-too-high", 0.09), a_guess("upstream-bug", 0.08)]}
    said = shown(found)
    assert "Cause not certain. Similar runs had: SF201 lr-too-high (9%), SF201 upstream-bug (8%)" in said
    assert said.count("Cause not certain.") == 1
    assert "Next: " in said
    assert "divide the rate" not in said
    assert "divide the rate" in shown(found, everything=True)


def test_a_cause_with_a_clue_or_a_likely_guess_is_shown_in_full(undecided):
    clue = a_guess("lr-too-high", 0.09) | {"evidence": ["train.log:3: the loss climbs"]}
    for finding in (clue, a_guess("lr-too-high", 0.3)):
        assert "fix  divide the rate" in shown(undecided | {"findings": [finding]})
