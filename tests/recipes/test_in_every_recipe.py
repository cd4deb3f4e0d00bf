"""In every recipe: a killed run ends with the bits of one that was left alone, and no finite step is no training."""

from __future__ import annotations

import csv
import json
import math
import re
import signal
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration

from image_pairs import small_settings
from mmdit_runs import RESUMABLE, SMALL, write_data
from recipe_job import NEVER, check_same_weights, play_recipe, quiet, steps_of, weights_of_ranks
from stayfinite.errors import TrainingDiverged
from stayfinite.guard.guard import Guard
from tiny_language import settings, tiny_model, write_shards, write_texts
from tiny_translations import quick_settings

from .grpo.test_training import small as small_grpo
from .grpo.test_training import start  # noqa: F401
from .sft.conftest import small as small_sft

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.usefixtures("one_thread")]


def compare(folder: Path) -> dict[str, Any]:
    return asdict(small_settings(folder, epochs=2, tuning="lora", lora_dropout=0.1, checkpoint_steps=2))


def mmdit(folder: Path) -> dict[str, Any]:
    return SMALL | RESUMABLE | {"data": str(write_data(folder / "pairs"))}


def mt5(folder: Path) -> dict[str, Any]:
    return asdict(settings(write_texts(folder / "texts"), tiny_model(folder / "model"), folder))


def mt5_stream(folder: Path) -> dict[str, Any]:
    shards, model = write_shards(folder / "shards"), tiny_model(folder / "model")
    return asdict(settings(shards, model, folder, stream="on", shuffle_rows=32, epochs=1))


def sft(folder: Path) -> dict[str, Any]:
    return asdict(
        small_sft(
            folder, rows=64, epochs=3, batch_size=8, dropout=0.1, checkpoint_steps=5, eval_epochs=1, base_score=False
        )
    )


def translate(folder: Path) -> dict[str, Any]:
    chosen = quick_settings(
        folder, epochs=3, batch_tokens=220, accumulation=2, checkpoint_steps=2, eval_rows=3, label_smoothing=0.1,
        ema=0.9, samples=0,
    )  # fmt: skip
    config = T5Config.from_pretrained(folder / "model")
    config.dropout_rate = 0.1  # so that random numbers matter
    torch.manual_seed(0)
    T5ForConditionalGeneration(config).save_pretrained(folder / "model")
    return asdict(chosen)


@pytest.mark.parametrize("make", [compare, mmdit, sft])
def test_a_run_in_which_no_step_was_finite_is_not_called_a_training(make, tmp_path, monkeypatch):
    forward = Guard.forward
    monkeypatch.setattr(Guard, "forward", lambda self, batch: forward(self, batch) * math.nan)
    module = import_module(f"stayfinite.recipes.{make.__name__}")
    steps = {"steps" if make is mmdit else "max_steps": 3, "checkpoint_steps": 9, "output_dir": str(tmp_path / "run")}
    config = getattr(module, make.__name__.capitalize())(**(make(tmp_path) | steps))
    with pytest.raises(TrainingDiverged, match="all 3 steps had a NaN or inf loss"):
        module.train(config, quiet)
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize(
    ("make", "steps", "kills"),
    [
        (compare, 12, (4, 10)),
        (mmdit, 16, (14,)),
        (mt5, 10, (7,)),
        (mt5_stream, 11, (7,)),
        (sft, 24, (11,)),
        (translate, 12, (5, 12)),
    ],
)
def test_a_killed_run_ends_with_the_same_bits(
    make: Callable[[Path], dict[str, Any]], steps: int, kills: tuple[int, ...], tmp_path: Path
) -> None:
    check_kills(make.__name__.partition("_")[0], make(tmp_path), steps, kills, tmp_path)


def test_one_that_is_killed_between_samplings_does_so_too(start: Path, tmp_path: Path) -> None:  # noqa: F811
    """The checkpoint before it is at the end of a sampling."""
    config = small_grpo(start, tmp_path, steps=10, checkpoint_steps=3, logging_steps=1, kl=0.02, learning_rate=1e-3)
    check_kills("grpo", asdict(config), 10, (7,), tmp_path)


def check_kills(recipe: str, config: dict[str, Any], steps: int, kills: tuple[int, ...], folder: Path) -> None:
    runs = {"whole": (config | {"output_dir": str(folder / "whole")}, NEVER)}
    for at in kills:
        own = config | {"output_dir": str(folder / f"killed-{at}")}
        runs |= {f"killed-{at}": (own, at), f"again-{at}": (own, NEVER)}
    played = play_recipe(recipe, runs, folder, ranks=None)
    played["whole"].check()
    whole = folder / "whole"
    assert max(steps_of(whole)) == steps
    for at in kills:
        killed = folder / f"killed-{at}"
        assert played[f"killed-{at}"].ends == [-signal.SIGKILL]
        played[f"again-{at}"].check()
        assert "resumed after step" in played[f"again-{at}"].said
        assert steps_of(whole) == steps_of(killed)
        assert weights_of_ranks(whole, 1) == weights_of_ranks(killed, 1)
        check_same_weights(whole, killed)
        assert told(whole) == told(killed)


def told(run: Path) -> list[Any]:
    """What a run has written of its scores, but for what belongs to one process alone."""
    result = json.loads((run / "result.json").read_text())
    log = (run / "training_log.csv").read_text().splitlines() if (run / "training_log.csv").exists() else []
    return [
        {name: json.dumps(part) for name, part in row.items() if not re.search("second|memory|last_loss", name)}
        for row in (result, *csv.DictReader(log))
    ]
