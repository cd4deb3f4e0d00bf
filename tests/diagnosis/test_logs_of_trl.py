"""What trl itself prints while it trains: planted failures by their names, and healthy runs healthy."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.reading import read_text

pytestmark = pytest.mark.slow

STEADY = {"max_steps": 60, "lr_scheduler_type": "constant"}


DRAW = random.Random(1)


def paid_at_random(completions: list[str], **_: object) -> list[float]:
    return [DRAW.random() for _ in completions]


def paid_by_length(completions: list[str], **_: object) -> list[float]:
    return [len(text.split()) / 24 for text in completions]


def paid_nothing(completions: list[str], **_: object) -> list[float]:
    return [0.0] * len(completions)


RUNS = [
    ("healthy", "grpo", {"max_steps": 60, "learning_rate": 1e-3}),
    ("healthy", "rloo", {"max_steps": 60, "learning_rate": 1e-3}),
    ("healthy", "dpo", {"max_steps": 60, "learning_rate": 1e-4}),
    ("healthy", "kto", {"max_steps": 60, "learning_rate": 1e-3}),
    ("grpo-zero-advantage", "grpo", {"max_steps": 20, "reward_funcs": [paid_nothing]}),
    (
        "kl-runaway",
        "grpo",
        STEADY | {"learning_rate": 0.1, "beta": 1e-4, "max_grad_norm": 0.0, "reward_funcs": [paid_at_random]},
    ),
    (
        "length-hacking",
        "grpo",
        STEADY
        | {"max_completion_length": 24, "per_device_train_batch_size": 16, "num_generations": 8}
        | {"reward_funcs": [paid_by_length]},
    ),
    ("dpo-both-fall", "dpo", STEADY | {"learning_rate": 3e-2, "beta": 0.01}),
]


@pytest.mark.parametrize(("cause", "kind", "settings"), RUNS, ids=[f"{kind}-{cause}" for cause, kind, _ in RUNS])
def test_a_run_of_trl_has_its_right_name(cause, kind, settings, tmp_path: Path, capsys):
    pytest.importorskip("trl")
    from tiny_trl import trl_trainer

    trainer = trl_trainer(kind, tmp_path, **settings)
    capsys.readouterr()
    trainer.train()
    diagnosis = judge_reading(read_text(capsys.readouterr().out))
    found = [each.cause for each in diagnosis.findings]
    assert (diagnosis.verdict, *found[:1]) == (("healthy",) if cause == "healthy" else ("sick", cause))
