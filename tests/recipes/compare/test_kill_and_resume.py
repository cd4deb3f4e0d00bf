from __future__ import annotations

import csv
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stage import Played, play

UNLIKE = ("seconds", "memory_peak_mib")


NEVER, KILLS = 0, (4, 10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def played(folder: Path) -> dict[str, Played]:
    acts: dict[str, tuple[Path, int]] = {"whole": (folder / "whole", NEVER)}
    for kill_at in KILLS:
        acts[f"killed-{kill_at}"] = (folder / f"{kill_at}", kill_at)
        acts[f"again-{kill_at}"] = (folder / f"{kill_at}", NEVER)
    loads = ["peft", "transformers.models.llava.modeling_llava"]
    return play("compare_job", acts, folder / "stage", loads=loads, timeout=1000)


def _log(directory: Path) -> list[dict[str, Any]]:
    with (directory / "run/training_log.csv").open() as file:
        return [{name: value for name, value in row.items() if name not in UNLIKE} for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kill_at", KILLS)
def test_a_killed_run_ends_with_the_same_bits_and_the_same_log(played: Any, folder: Path, kill_at: int) -> None:
    assert played[f"killed-{kill_at}"].ends == [-signal.SIGKILL]
    for name in ("whole", f"again-{kill_at}"):
        played[name].check()
    assert "resumed after step" in played[f"again-{kill_at}"].said
    places = folder / "whole", folder / f"{kill_at}"
    for part in ("best", "last"):
        whole, killed = (load_file(place / f"run/{part}/adapter_model.safetensors") for place in places)
        assert set(whole) == set(killed)
        assert all(torch.equal(whole[name], killed[name]) for name in whole)
    assert _log(places[0]) == _log(places[1])
    results = [json.loads((place / "run/result.json").read_text()) for place in places]
    assert results[0]["scores"] == results[1]["scores"]
    assert results[0]["evaluations"] == results[1]["evaluations"]
