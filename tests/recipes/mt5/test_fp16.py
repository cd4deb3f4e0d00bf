"""The founding reports' configuration on purpose: a T5 whose activations leave fp16's range, trained in fp16."""

from __future__ import annotations

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import T5ForConditionalGeneration

from stayfinite.cli import main
from stayfinite.recipes import mt5
from tiny_language import settings

GUILTY = "encoder.block.0.layer.1.DenseReluDense.wo"
# A CPU without bf16 falls back to another kernel and says so once.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning")


@pytest.fixture(scope="module")
def overflowing(model, tmp_path_factory):
    """The tiny model with a feed-forward layer that goes beyond 65,504."""
    place = tmp_path_factory.mktemp("overflowing") / "model"
    shutil.copytree(model, place)
    built = T5ForConditionalGeneration.from_pretrained(place)
    with torch.no_grad():
        layer = built.encoder.block[0].layer[1].DenseReluDense
        layer.wi.weight.mul_(300.0)
        layer.wo.weight.mul_(300.0)
    built.save_pretrained(place)
    return place


def test_the_check_refuses_to_start_and_names_module_and_flag(overflowing, texts, tmp_path, capsys):
    flags = ["--data", str(texts), "--model-name", str(overflowing), "--precision", "fp16", "--device", "cpu"]
    code = main(["train", "mt5", *flags, "--block-size", "24", "--output-dir", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert code == 1
    assert "fp16-overflow" in said
    assert GUILTY in said
    assert "--precision bf16" in said
    assert not (tmp_path / "run" / "steps.jsonl").exists()
    assert json.loads((tmp_path / "run" / "check.json").read_text(encoding="utf-8"))["verdict"] == "sick"


@pytest.mark.slow
def test_guarded_fp16_escalates_finishes_and_learns(overflowing, texts, tmp_path):
    said: list[str] = []
    changed = {"precision": "fp16", "check": "warn", "epochs": 20, "max_steps": 50, "schedule": "constant",
               "warmup_steps": 0, "gradient_accumulation_steps": 1, "eval_steps": 50,
               "checkpoint_steps": 50}  # fmt: skip
    result = mt5.train(settings(texts, overflowing, tmp_path / "run", **changed), said.append)
    assert any("check: error:" in line and "--precision bf16" in line for line in said)
    events = (tmp_path / "run" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["event"] for line in events].count("escalate") == 1
    assert result.steps == 50
    assert math.isfinite(result.validation_loss)
    assert result.last_loss < result.first_loss - 0.3
    weights = load_file(tmp_path / "run" / "final" / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())
