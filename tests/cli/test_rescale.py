"""``stayfinite rescale``: a directory of transformers in, an equivalent one out, with the proof beside it."""

from __future__ import annotations

import json

import pytest
import torch
from jsonschema import Draft202012Validator

import oversized_models
from quick_ones import quick_ones
from stayfinite.cli import main
from stayfinite.precision.surgery import matching_groups
from stayfinite.schemas import schema

transformers = pytest.importorskip("transformers")
SMALL = ("--batches", "2", "--rows", "2", "--length", "8")


@pytest.mark.parametrize("kind", quick_ones(["t5 gated", "gemma"], "gemma"))
def test_the_written_directory_loads_with_plain_transformers_and_is_the_same_function(tmp_path, capsys, kind):
    model = oversized_models.plant(oversized_models.build(kind), "branch")
    model.save_pretrained(tmp_path / "model")
    out = tmp_path / "out"
    assert main(["rescale", str(tmp_path / "model"), "-o", str(out), "--steps", "2", *SMALL]) == 0
    said = capsys.readouterr().out
    assert "random tokens" in said
    assert "Rescaled: largest activation" in said
    assert "original in fp16: 0 steps, 2 overflowed in the forward pass" in said
    loaded = type(model).from_pretrained(out)
    given = oversized_models.batches(model)[0]
    with torch.no_grad():
        torch.testing.assert_close(loaded.eval()(**given).logits, model.eval()(**given).logits, rtol=1e-5, atol=1e-5)
    record = json.loads((out / "rescale.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema("rescale")).validate(record)
    assert record["largest_after"] <= 0.25 * 65504 < 5 * 65503 <= record["largest_before"]
    assert len(matching_groups(loaded, out, lr=1e-3)) == len({0, *record["parameters"].values()})
    assert main(["rescale", str(tmp_path / "model"), "-o", str(out)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_a_healthy_model_is_not_written_again(tmp_path, capsys):
    oversized_models.build("llama").save_pretrained(tmp_path / "model")
    rows = [{"input_ids": list(range(5, 15))}, {"input_ids": list(range(20, 28))}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    command = ["rescale", str(tmp_path / "model"), "-o", str(tmp_path / "out"), "--data", str(tmp_path / "rows.jsonl")]
    assert main([*command, "--steps", "0"]) == 0
    assert "Nothing to do: largest activation" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_something_in_the_way_is_told_with_exit_code_1(tmp_path, capsys):
    model = oversized_models.build("llama")
    with torch.no_grad():
        model.lm_head.weight.mul_(1e5)
    model.save_pretrained(tmp_path / "model")
    assert main(["rescale", str(tmp_path / "model"), "--steps", "0", *SMALL]) == 1
    said = capsys.readouterr().out
    assert "the loss depends on the scale of the logits" in said
    assert "Keep in fp32: lm_head" in said


def test_a_directory_without_a_model_is_wrong_use(tmp_path, capsys):
    assert main(["rescale", str(tmp_path)]) == 2
    assert "cannot load" in capsys.readouterr().err
