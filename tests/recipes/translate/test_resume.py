"""A run that is killed and started again ends with the same bits, its evaluations included."""

import json
import signal
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import T5Config, T5ForConditionalGeneration

from child_processes import finish
from tiny_translations import quick_settings

JOB = Path(__file__).parents[2] / "translation_job.py"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The directories of the three runs, after all of them have ended, and how each process did."""
    folder = tmp_path_factory.mktemp("resumed")
    quick_settings(folder)
    # With dropout, so that random numbers matter.
    config = T5Config.from_pretrained(folder / "model")
    config.dropout_rate = 0.1
    torch.manual_seed(0)
    T5ForConditionalGeneration(config).save_pretrained(folder / "model")
    done = finish([sys.executable, JOB, folder], timeout=1500)
    assert done.returncode == 0, done.stderr
    return folder, json.loads((folder / "ends.json").read_text()), done.stdout


def outcome(folder, name):
    return json.loads((folder / name / "result.json").read_text())


@pytest.mark.parametrize("name", ["middle", "late"])
def test_a_killed_and_resumed_run_ends_with_the_same_bits(runs, name):
    folder, ends, said = runs
    assert ends[f"{name} killed"] == -signal.SIGKILL
    assert ends[f"{name} unfinished"]
    assert ends[f"{name} again"] == 0, said
    assert "resumed after step" in said
    ours, theirs = (load_file(folder / run / "best" / "model.safetensors") for run in (name, "whole"))
    assert all(torch.equal(ours[weight], theirs[weight]) for weight in theirs)


@pytest.mark.parametrize("name", ["middle", "late"])
def test_its_evaluations_and_scores_are_those_of_the_run_that_was_left_alone(runs, name):
    folder, _, _ = runs
    ours, theirs = outcome(folder, name), outcome(folder, "whole")
    for part in ("scores", "steps", "first_loss", "evaluations"):
        assert ours[part] == theirs[part], part
    assert len(theirs["evaluations"]) == 3
