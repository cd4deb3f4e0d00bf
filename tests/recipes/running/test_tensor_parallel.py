"""Ranks that compute each layer together: they learn what one does, and a run goes on with and without them."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recipe_job import NEVER, check_alike, play_recipe, steps_of, weights_of
from stage import Played
from stayfinite.recipes import mt5, sft, translate
from stayfinite.recipes.exporting.exporting import export
from tiny_language import settings as mt5_settings
from tiny_language import tiny_model, write_texts
from tiny_translations import quick_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200), pytest.mark.usefixtures("one_thread")]

SHORT: dict[str, Any] = {"max_steps": 6, "accumulation": 2, "checkpoint_steps": 2, "eval_rows": 3, "samples": 0}
TOGETHER = SHORT | {"tensor_parallel": 2}
TWICE: dict[str, Any] = {
    "rows": 48, "held_out": 8, "epochs": 2, "batch_size": 8, "eval_epochs": 2, "samples": 0, "rank": 4, "check": "off",
    "device": "cpu", "base_score": False, "checkpoint_steps": 2, "dropout": 0.0, "gradient_checkpointing": True,
}  # fmt: skip
"""A fine-tuning whose activations are computed twice, in parts too."""


def played(recipe: str, folder: Path, ranks: int | None, **runs: tuple[Any, int]) -> dict[str, Played]:
    (stage := folder / f"{recipe}-on-{ranks}").mkdir()
    acts = {name.replace("_", "-"): (asdict(config), kill_at) for name, (config, kill_at) in runs.items()}
    return play_recipe(recipe, acts, folder, ranks=ranks, stage=stage)


# -- translate: a T5, all weights ------------------------------------------------------------------------------------


def translation(folder: Path, output: str, **more: Any) -> translate.Translate:
    return quick_settings(folder, output_dir=str(folder / output), **more)


@pytest.fixture(scope="module")
def translations(folder: Path) -> dict[str, Played]:
    of = partial(translation, folder)
    alone = played("translate", folder, None, alone=(of("alone", **SHORT), NEVER), to_four=(of("to-four", **SHORT), 3))
    two = played(
        "translate", folder, 2, together=(of("together", **TOGETHER), NEVER), to_one=(of("to-one", **TOGETHER), 3),
        heads=(of("heads", **(TOGETHER | {"model": "tiny", "tensor_parallel": 8})), NEVER),
    )  # fmt: skip
    assert alone["to-four"].ends == [-signal.SIGKILL]
    four = played(
        "translate", folder, 4, square=(of("square", **(TOGETHER | {"batch_size": 4})), NEVER),
        to_four=(of("to-four", **TOGETHER), NEVER),
        three_heads=(of("three-heads", **(TOGETHER | {"tensor_parallel": 4})), NEVER),
    )  # fmt: skip
    return {"alone": alone["alone"], **two, **four}


def test_two_ranks_that_translate_together_learn_what_one_does(translations, folder):
    translations["together"].check()
    assert translations["together"].said.count("Saved the best model to") == 1, "one rank speaks"
    check_alike(folder / "together", folder / "alone", steps=1e-4, weights=1e-3)


def test_two_groups_of_two_share_the_rows(translations, folder):
    translations["square"].check()
    assert "redistributing" not in translations["square"].said, "torch's remarks are not for the user"
    assert json.loads((folder / "square" / "run.json").read_text())["ranks_in_batch"] == 2
    check_alike(folder / "square", folder / "alone", steps=1e-4, weights=1e-3)


def test_a_run_of_ranks_that_compute_together_goes_on_on_one_and_the_other_way_round(translations, folder):
    assert translations["to-one"].ends == [-signal.SIGKILL] * 2
    said: list[str] = []
    translate.train(translation(folder, "to-one", **SHORT), said.append)
    assert any(line.startswith("resumed after step") for line in said), said
    translations["to-four"].check()
    assert "resumed after step" in translations["to-four"].said
    for name in ("to-one", "to-four"):
        assert steps_of(folder / name) == pytest.approx(steps_of(folder / "alone"), rel=1e-4)


def test_what_ranks_trained_together_is_exported(translations, folder, tmp_path):
    export(folder / "together", tmp_path / "out", say=lambda _: None)
    theirs = load_file(tmp_path / "out" / "model.safetensors")
    mine = weights_of(folder / "together")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


def test_ranks_that_make_no_whole_groups_and_heads_that_cannot_be_shared_out_are_refused_on_every_rank(translations):
    assert translations["heads"].ends == [2, 2]
    assert translations["heads"].said.count("--tensor-parallel 8 needs a multiple of 8 ranks, not 2") == 2
    assert translations["three-heads"].ends == [2] * 4
    assert translations["three-heads"].said.count("--tensor-parallel 4: 2 attention heads cannot be shared out") == 4


# -- mt5: a T5 with adapters -----------------------------------------------------------------------------------------


def test_two_ranks_train_the_adapters_of_a_t5_together(folder):
    model = tiny_model(folder / "t5")
    shape = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(shape | {"dropout_rate": 0.0}))

    def of(output: str, **more: Any) -> mt5.Mt5:
        chosen = {"max_steps": 5, "lora_rank": 4, "lora_dropout": 0.0, "lora_targets": ("q", "o", "wi")}
        return mt5_settings(write_texts(folder / "texts"), model, folder / output, **(chosen | more))

    (done,) = played("mt5", folder, 2, mt5=(of("mt5-together", tensor_parallel=2), NEVER)).values()
    done.check()
    mt5.train(of("mt5-alone"), lambda _: None)
    assert steps_of(folder / "mt5-together") == pytest.approx(steps_of(folder / "mt5-alone"), rel=1e-4)
    files = [json.loads((folder / name / "result.json").read_text()) for name in ("mt5-together", "mt5-alone")]
    assert files[0]["validation_loss"] == pytest.approx(files[1]["validation_loss"], rel=1e-4)


# -- sft: a Llama with adapters --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tunings(folder: Path) -> dict[str, Played]:
    of = partial(tuning, folder)
    sft.train(tuning(folder, "sft-base", model="tiny", epochs=1), lambda _: None)
    played("sft", folder, None, sft_alone=(of("sft-alone"), NEVER))
    two = played(
        "sft", folder, 2, sft_together=(of("sft-together", tensor_parallel=2), NEVER),
        sft_to_one=(of("sft-to-one", tensor_parallel=2), 3), shard_to_one=(of("shard-to-one", shard=True), 3),
    )  # fmt: skip
    four = played("sft", folder, 4, sft_square=(of("sft-square", batch_size=4, tensor_parallel=2), NEVER))
    return {**two, **four}


def tuning(folder: Path, output: str, **more: Any) -> sft.Sft:
    base = {"model": str(folder / "sft-base" / "base"), "task": "metric", "output_dir": str(folder / output)}
    settings = sft.settled(sft.Sft(model="tiny"))
    return replace(settings, **(TWICE | base | more))


@pytest.mark.parametrize("name", ["sft-together", "sft-square"])
def test_ranks_train_the_adapters_of_a_llama_together(tunings, folder, name):
    tunings[name].check()
    check_alike(folder / name, folder / "sft-alone", steps=1e-4, weights=1e-3)


def test_a_fine_tuning_in_parts_goes_on_in_one_process(tunings, folder):
    """The frozen base is in parts as well, and in no checkpoint."""
    assert tunings["sft-to-one"].ends == tunings["shard-to-one"].ends == [-signal.SIGKILL] * 2
    sft.train(tuning(folder, "sft-to-one"), lambda _: None)
    assert steps_of(folder / "sft-to-one") == pytest.approx(steps_of(folder / "sft-alone"), rel=1e-4)
    sft.train(tuning(folder, "shard-to-one"), lambda _: None)
    assert max(steps_of(folder / "shard-to-one")) == 6
