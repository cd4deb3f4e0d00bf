"""A run directory whose incidents were explained: the proof stands before any guess."""

import json

import pytest

from stayfinite import diagnose
from stayfinite.diagnosis.autopsies import proved_causes

LINE = '{"version": 1, "step": %d, "loss": %s, "grad_norm": %s, "lr": 0.001, "decision": "%s"}\n'


@pytest.fixture
def run(tmp_path):
    lines = [LINE % (step, 2.0, 1.0, "accept") for step in range(1, 13)]
    (tmp_path / "steps.jsonl").write_text("".join([*lines, LINE % (13, "NaN", "NaN", "veto")]))
    folder = tmp_path / "incidents" / "0001"
    folder.mkdir(parents=True)
    told = {
        "version": 1,
        "cause": "constant-feature",
        "confidence": 0.9,
        "verdict": "proved.",
        "fix": {"text": "drop it"},
    }
    (folder / "autopsy.json").write_text(json.dumps(told))
    return tmp_path


def test_what_an_autopsy_proved_is_the_first_finding(run):
    cause = diagnose(run).cause
    assert (cause.cause, cause.confidence, cause.fix) == ("constant-feature", 0.9, "drop it")


def test_the_proof_is_heard_where_the_run_lies_below_the_given_directory(run, tmp_path_factory):
    output_dir = tmp_path_factory.mktemp("output_dir")
    run.rename(output_dir / "stayfinite")  # where the guard of a Trainer writes
    found = diagnose(output_dir)
    assert (found.cause.cause, found.cause.confidence) == ("constant-feature", 0.9)
    assert found.refused
    assert not any("no autopsy" in each for each in found.refused)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cause": "no-such-rule"}', '{"cause": null, "confidence": 0}'])
def test_half_an_autopsy_is_passed_over(run, text):
    (run / "incidents" / "0001" / "autopsy.json").write_text(text)
    assert proved_causes(run) == []
    assert [finding.cause for finding in diagnose(run).findings] == ["nan-loss"]
