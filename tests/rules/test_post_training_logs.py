"""Logs of trl, verl and OpenRLHF: each failure by its name, and every healthy run healthy."""

from __future__ import annotations

import json
import math
import re

import pytest

from rules.post_training_logs import dpo, growth, grpo, level, lost, openrlhf, ramp, slime, tracked, verl
from stayfinite.core.post_training.signs import CAUSES
from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.reading import read_text

RUNAWAY = {"kl": growth(0.002, 40.0), "entropy": growth(0.5, 0.01), "reward": ramp(0.5, 0.02)}
COLLAPSE = {"entropy": growth(0.6, 0.003), "reward": level(0.4)}
LONGER = {"length": ramp(300, 1000), "cut_off": ramp(0.01, 0.7)}
CUT = {"length": ramp(300, 1000), "cut_off": ramp(0.01, 0.9), "reward": level(0.5)}

SICK = [
    ("kl-runaway", grpo(**RUNAWAY)),
    ("kl-runaway", grpo(8, **RUNAWAY)),
    ("kl-runaway", grpo(text=True, **RUNAWAY)),
    ("kl-runaway", verl(**RUNAWAY)),
    ("kl-runaway", verl(digits=3, **RUNAWAY)),
    ("kl-runaway", openrlhf(**RUNAWAY)),
    ("entropy-collapse", grpo(**COLLAPSE)),
    ("entropy-collapse", verl(**COLLAPSE)),
    ("length-hacking", grpo(**LONGER)),
    ("length-hacking", verl(**LONGER)),
    ("length-hacking", openrlhf(**LONGER)),
    ("reward-on-truncated", grpo(**CUT)),
    ("reward-on-truncated", verl(**CUT)),
    ("reward-on-truncated", openrlhf(**CUT)),
    ("ratio-explosion", grpo(clipped=ramp(0.01, 0.8))),
    ("ratio-explosion", verl(clipped=ramp(0.01, 0.8))),
    ("ratio-explosion", openrlhf(clipped=ramp(0.01, 0.8))),
    ("sampler-mismatch", grpo(mismatch=level(0.4))),
    ("reward-falls", grpo(reward=ramp(0.6, 0.05))),
    ("reward-falls", verl(reward=ramp(0.6, 0.05))),
    ("reward-falls", openrlhf(reward=ramp(0.6, 0.05))),
    ("value-explains-nothing", verl(explained=level(0.001), value_loss=level(0.5))),
    ("grpo-zero-advantage", grpo(equal_groups=level(1.0), reward=level(0.0))),
    ("grpo-zero-advantage", verl(advantage=level(0.0), reward=level(0.906))),
    ("kl-runaway", slime(**RUNAWAY)),
    ("kl-runaway", tracked("OpenRLHF", **RUNAWAY)),
    ("kl-runaway", tracked("SkyRL", **RUNAWAY)),
    ("sampler-mismatch", slime(mismatch=level(0.4))),
    ("entropy-collapse", tracked("AReaL", **COLLAPSE)),
    ("dpo-both-fall", dpo(lambda t: -120 - 300 * t, lambda t: -130 - 700 * t)),
]

HEALTHY = {
    "trl, loss 0.0 and gradient 0.79": grpo(),
    "trl, a few lines": grpo(5),
    "trl, numbers as text": grpo(text=True),
    "verl": verl(),
    "verl, three digits": verl(digits=3),
    "OpenRLHF": openrlhf(),
    "slime": slime(),
    "OpenRLHF in wandb": tracked("OpenRLHF"),
    "SkyRL in wandb": tracked("SkyRL"),
    "AReaL in wandb": tracked("AReaL"),
    "KL to a plateau": grpo(kl=lambda t: 0.7 * min(1.0, 3 * t)),
    "entropy settles": verl(entropy=lambda t: 0.2 + 0.4 * 0.1**t),
    "a solved task": grpo(entropy=growth(0.6, 0.003), reward=ramp(0.1, 0.98)),
    "longer reasoning": openrlhf(length=ramp(200, 900)),
    "an end that is learned": verl(cut_off=ramp(0.95, 0.05), length=ramp(900, 300)),
    "every answer of fixed length": grpo(cut_off=level(0.6), length=level(16.0)),
    "groups partly equal": grpo(equal_groups=level(0.7)),
    "GSPO clips many": verl(clipped=level(0.6)),
    "DPO": dpo(ramp(-120, -140), ramp(-130, -210)),
}


@pytest.mark.parametrize(("cause", "log"), SICK, ids=[cause for cause, _ in SICK])
def test_a_sick_run_has_its_right_name(cause, log):
    diagnosis = judge_reading(read_text(log))
    assert diagnosis.verdict == "sick"
    assert diagnosis.findings[0].cause == cause, [(each.cause, each.confidence) for each in diagnosis.findings]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_healthy(name):
    diagnosis = judge_reading(read_text(HEALTHY[name]))
    assert [each.cause for each in diagnosis.findings] == []
    assert diagnosis.verdict == "healthy"


RUBBISH = {
    "reward": lost(0.5, -1.0),
    "cut_off": lost(0.02, 1.0),
    "length": lost(300, 1024),
    "advantage": lost(1.5, 0.0),
}
NAN = {"kl": lost(0.002), "grad_norm": lost(0.13)}


@pytest.mark.parametrize(
    "log", [verl(entropy=lost(0.5), **NAN, **RUBBISH), openrlhf(**NAN, **RUBBISH)], ids=["verl", "OpenRLHF"]
)
def test_rubbish_after_a_nan_is_no_cause_of_it(log):
    diagnosis = judge_reading(read_text(log))
    assert diagnosis.verdict == "sick"
    assert re.search(r"(?:gradient norm|actor_grad_norm)[^.]* NaN or inf", "; ".join(diagnosis.trouble))
    assert CAUSES.isdisjoint(each.cause for each in diagnosis.findings)
    assert "bad-data-row" not in [each.cause for each in diagnosis.findings]


def test_a_kl_that_alone_is_lost_points_to_its_exponential():
    finding = judge_reading(read_text(verl(**NAN))).findings[0]
    assert finding.cause == "loss-formula-singularity"
    assert "actor/kl_loss is NaN or inf: likely exp() of a difference of log-probabilities" in finding.evidence[0]
    assert "kl_loss_type" in finding.fix


def test_a_gradient_norm_that_is_lost_now_and_then_hides_no_runaway():
    found = judge_reading(read_text(verl(**RUNAWAY, grad_norm=lambda t: math.nan if 0.1 < t < 0.2 else 0.13)))
    assert "kl-runaway" in [each.cause for each in found.findings]


def test_the_steps_of_a_guarded_run_are_judged_alike():
    rows = [
        {"version": 1, "step": step, "loss": 1.0 / step, "grad_norm": 0.5, "decision": "accept", "code": "finite",
         "signals": {"kl": 0.002 * growth**step, "entropy": 0.5, "reward": 0.4 + 0.01 * (step % 3)}}
        for growth in (1.0, 1.35) for step in range(1, 41)
    ]  # fmt: skip
    assert judge_reading(read_text("\n".join(map(json.dumps, rows[:40])))).verdict == "healthy"
    assert [each.cause for each in judge_reading(read_text("\n".join(map(json.dumps, rows[40:])))).findings] == [
        "kl-runaway"
    ]


def test_the_evidence_names_step_figures_and_line():
    diagnosis = judge_reading(read_text(verl(**RUNAWAY)))
    finding = diagnosis.findings[0]
    assert diagnosis.trouble[-1] in finding.evidence[0]
    assert finding.where.startswith("stdin:")
    assert "KL to the reference rose from 0.00" in finding.evidence[0]
    assert finding.evidence[0].startswith(f"{finding.where}: step {finding.where.partition(':')[2]}: ")


def test_what_a_guard_said_on_the_terminal_is_read_again():
    lines = [f"step {step:6d} of 64  loss  -0.0{step % 7}1  lr 2.00e-04" for step in range(1, 60)]
    said = "entropy fell from 0.1 to 0.00027 nats per token and the reward did not rise"
    lines.insert(38, f"stayfinite: step 38: entropy-collapse: {said}. Training continues.")
    found = judge_reading(read_text("\n".join(lines)))
    assert found.findings[0].cause == "entropy-collapse"
    assert said in found.findings[0].evidence[0]
