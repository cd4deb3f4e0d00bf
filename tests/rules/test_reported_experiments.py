"""Remarks on re-runs: what was changed, and whether it went well."""

from __future__ import annotations

import pytest

from rules.example import Example
from stayfinite.rules.experiments import EXPERIMENTS, MEANS
from stayfinite.rules.registry import all_rules
from stayfinite.rules.reported_experiments import SUBJECTS


def told(remark: str) -> dict[str, bool]:
    facts = Example(log="loss: nan\n", config=f"{remark}\n").facts()
    return {world.subject: world.good for world in facts.reported_experiments}


@pytest.mark.parametrize(
    ("remark", "subject", "good"),
    [
        ("fp32: trains", "fp32", True),
        ("turning off amp solves it", "fp32", True),
        ("in bf16 it still becomes nan", "bf16", False),
        ("bf16: nan from step 3", "bf16", False),
        ("lr reduced to one tenth, no change", "a lower rate", False),
        ("lr lowered to 0.001: same", "a lower rate", False),
        ("smaller learning rate: converges", "a lower rate", True),
        ("without the mask: finite", "no mask", True),
        ("with eager attention the loss is normal", "eager attention", True),
        ("torch 2.0.1: fine", "another version", True),
        ("batch size 1 works", "a batch of one", True),
        ("other seeds: sometimes fine", "another seed", True),
        ("with gradient clipping it falls, then nan", "clipping", False),
        ("softmax in float32 solves it", "one part in fp32", True),
    ],
)
def test_a_remark_is_a_world_with_an_outcome(remark: str, subject: str, good: bool) -> None:
    assert told(remark).get(subject) is good


def test_each_clause_of_a_remark_has_its_own_outcome() -> None:
    worlds = told("single GPU is fine, but with a lower learning rate still nan")
    assert worlds["one process"] is True
    assert worlds["a lower rate"] is False


@pytest.mark.parametrize("remark", ["torch_dtype: float32", "precision: bf16", "batch size: 15", "optimizer: sgd"])
def test_a_setting_is_no_remark(remark: str) -> None:
    assert told(remark) == {}


def test_worlds_speak_of_causes_that_there_are() -> None:
    slugs = {rule.slug for rule in all_rules()}
    for causes in MEANS.values():
        assert set(causes) <= slugs


def test_what_is_recognised_in_a_remark_is_an_experiment() -> None:
    assert set(SUBJECTS) <= {experiment.subject for experiment in EXPERIMENTS}
