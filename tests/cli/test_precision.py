"""``stayfinite precision``: a table, a file, and a last line that is the plan."""

import json

import pytest
from jsonschema import Draft202012Validator

from stayfinite.cli import main
from stayfinite.precision.plan import PrecisionPlan
from stayfinite.schemas import schema

BUILD = """
import torch
from torch import nn

torch.set_num_threads(1)


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
    with torch.no_grad():
        model[0].weight.mul_(3e5)
        model[2].weight.mul_(1e-5)
    batch = torch.randn(8, 16), torch.randn(8, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
    return {"model": model, "optimizer": optimizer, "batch": batch,
            "forward": lambda batch: nn.functional.mse_loss(model(batch[0]), batch[1])}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "planned_training.py").write_text(BUILD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_modules_that_break_are_named_and_the_plan_is_saved(here, capsys):
    arguments = ["--build", "planned_training:build", "--gpu", "T4", "--formats", "fp16", "-o", "precision.json"]
    assert main(["precision", *arguments]) == 0
    said = capsys.readouterr().out
    assert "0: fp16 breaks: " in said
    assert "fp16 autocast; 0, 2 in fp32" in said
    assert "Saved the plan to precision.json" in said
    assert PrecisionPlan.load(here / "precision.json").formats == {"0": "fp32", "2": "fp32"}


def test_json_is_the_plan_and_nothing_else(here, capsys):
    assert main(["precision", "--build", "planned_training:build", "--steps", "0", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    Draft202012Validator(schema("precision")).validate(record)
    assert record["card"] == "an H100"
    assert PrecisionPlan.from_json(record).sentence() == record["sentence"]


def test_a_card_that_is_not_known_ends_with_2(here, capsys):
    assert main(["precision", "--build", "planned_training:build", "--gpu", "G7"]) == 2
    assert "unknown GPU" in capsys.readouterr().err


def test_updates_tells_what_weights_in_bf16_lose(here, capsys):
    assert main(["precision", "--build", "planned_training:build", "--updates", "bf16"]) == 0
    said = capsys.readouterr().out
    assert "Kahan sum" in said
    assert "4 steps: bf16 weights without an fp32 copy round" in said
    assert "Keep them in fp32 under autocast" in said
