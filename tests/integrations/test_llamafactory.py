"""LLaMA-Factory's ``run_exp`` with the callback of transformers."""

from __future__ import annotations

import json
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from stage import Played, play

pytest.importorskip("llamafactory", reason="wants its own venv, with transformers 5.6")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
STEPS, BAD = 10, 6


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Played]]:
    folder = tmp_path_factory.mktemp("trainings")
    acts = [*product(["full", "lora"], ["bare", "healthy", "nan"]), ("full", "bare-nan")]
    lines = {f"{method}-{act}": (method, act, folder / f"{method}-{act}") for method, act in acts}
    loads = ["peft.tuners.lora.bnb", "transformers.models.llama.modeling_llama"]
    return folder, play("llamafactory_job", lines, folder / "stage", loads=loads, timeout=1200)


def of(trainings: tuple[Path, dict[str, Played]], name: str) -> tuple[list[str], bool]:
    """Digests of what each step began with and of the end; whether what was trained is finite."""
    folder, played = trainings
    played[name].check()
    seen: dict[str, Any] = json.loads((folder / name / "seen.json").read_text())
    return seen["digests"], seen["finite"]


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_healthy_run_has_the_bits_of_one_without(trainings, method):
    digests, finite = of(trainings, f"{method}-healthy")
    assert digests == of(trainings, f"{method}-bare")[0]
    assert len(set(digests)) == STEPS + 1
    assert finite


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_nan_step_is_refused_with_nothing_moved(trainings, method):
    folder, _ = trainings
    digests, finite = of(trainings, f"{method}-nan")
    still = [before == after for before, after in pairwise(digests)]
    assert still == [step == BAD for step in range(1, STEPS + 1)]
    assert finite
    lines = (folder / f"{method}-nan" / "out" / "stayfinite" / "events.jsonl").read_text().splitlines()
    assert [event["step"] for event in map(json.loads, lines) if event["event"] == "veto"] == [BAD]


def test_without_the_callback_a_nan_step_ends_in_the_weights(trainings):
    assert not of(trainings, "full-bare-nan")[1]
