from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from image_pairs import small_settings
from recipe_job import quiet
from stayfinite.cli.replay import run as replay
from stayfinite.errors import NotReady
from stayfinite.recipes.compare import Compare, train
from stayfinite.recipes.images.models import load_model, load_processor, save_model, write_base


def _model(directory: Path, *, factor: float) -> str:
    """A model whose first feed-forward layer is so much too large: an outlier as bf16 training leaves behind."""
    torch.manual_seed(0)
    write_base(directory, "tiny", question=Compare.question, answers=Compare.answers, image_size=8)
    model = load_model(str(directory), base="fp32", device=torch.device("cpu"))
    with torch.no_grad():
        layer = model.model.language_model.layers[0].mlp
        layer.up_proj.weight.mul_(factor)
        layer.gate_proj.weight.mul_(factor)
    save_model(model, load_processor(str(directory)), directory)
    return str(directory)


@pytest.mark.slow
def test_a_model_that_fp16_cannot_hold_is_refused_by_the_check_with_its_cause(tmp_path: Path) -> None:
    outlier = _model(tmp_path / "outlier", factor=3000.0)
    with pytest.raises(NotReady, match="fp16-overflow"):
        train(
            small_settings(tmp_path, model=outlier, tuning="full", precision="fp16", check="stop", batch_size=1),
            quiet,
        )
    assert not (tmp_path / "run/steps.jsonl").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_model_that_fp16_holds_is_trained_in_it_with_its_gradients_unscaled_before_clipping(tmp_path: Path) -> None:
    sound = _model(tmp_path / "sound", factor=1.0)
    settings = small_settings(
        tmp_path, model=sound, tuning="full", precision="fp16", check="stop", batch_size=2, learning_rate=1e-4
    )
    result = train(settings, quiet)
    records = [json.loads(line) for line in (result.directory / "steps.jsonl").read_text().splitlines()]
    taken = [record for record in records if record["decision"] in ("accept", "clip")]
    refused = [record for record in records if record not in taken]
    assert {record["code"] for record in refused} <= {"scale-search"}
    assert all(math.isfinite(record["loss"]) for record in records)
    assert all(record["loss_scale"] >= 1024 for record in taken)
    assert all(record["grad_norm"] < 100 for record in taken)  # unscaled: the scaled ones are thousands of times larger


@pytest.mark.slow
@pytest.mark.timeout(2700)
@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed, switching to BLAS:UserWarning")  # a CPU without bf16
def test_an_overflow_during_training_is_explained_and_survived_by_leaving_fp16(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outlier = _model(tmp_path / "outlier", factor=3000.0)
    settings = small_settings(
        tmp_path, model=outlier, tuning="full", precision="fp16", batch_size=2, epochs=3, learning_rate=1e-5
    )
    result = train(settings, quiet)
    autopsy = json.loads((result.directory / "incidents/0001/autopsy.json").read_text())
    assert "fp16-overflow" in json.dumps(autopsy)
    incident = json.loads((result.directory / "incidents/0001/incident.json").read_text())
    assert ".png" in incident["rows"][0]["text"]
    records = [json.loads(line) for line in (result.directory / "steps.jsonl").read_text().splitlines()]
    assert records[0]["decision"] == "veto"
    assert records[-1]["decision"] in ("accept", "clip")
    assert result.scores is not None
    capsys.readouterr()
    assert replay([str(result.directory / "incidents/0001"), "--world", "fp32", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["cause"] == "fp16-overflow"
