"""The founding reports' configuration on purpose: a T5 whose activations leave fp16's range, trained in fp16."""

import json
import math
import warnings

import pytest
import torch
from transformers import T5ForConditionalGeneration

from recipe_job import quiet
from stayfinite.cli import main
from stayfinite.errors import NotReady
from stayfinite.recipes.running.launch import holds_in_fp16
from stayfinite.recipes.seq2seq.batching import Example, Padding
from stayfinite.recipes.translate import loss_of, train
from tiny_translations import byte_model, quick_settings, short_pairs, write_pairs

OUTLIER = 300.0
GUILTY = "encoder.block.0.layer.1.DenseReluDense.wo"
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # A CPU without bf16 falls back to another kernel and says so once.
    pytest.mark.filterwarnings("ignore:mkldnn_matmul failed:UserWarning"),
]
BATCH = Padding(pad=0)([Example([50 + n, 60, 61, 1], [70 + n, 71, 1]) for n in range(8)])


@pytest.fixture
def overflowing(tmp_path):
    byte_model(tmp_path / "model", outlier=OUTLIER)
    write_pairs(tmp_path / "pairs.csv", short_pairs(60))
    return tmp_path


def test_plain_fp16_goes_nan_and_never_comes_back(overflowing):
    model = T5ForConditionalGeneration.from_pretrained(overflowing / "model")
    compute = loss_of(model, 0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = compute(BATCH)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert all(math.isnan(loss) for loss in losses)
    assert not any(parameter.isfinite().all() for parameter in model.parameters())
    assert math.isnan(compute(BATCH).item())  # fp32 does not mend it any more


def test_in_fp32_the_same_model_is_healthy(overflowing):
    model = T5ForConditionalGeneration.from_pretrained(overflowing / "model")
    assert math.isfinite(loss_of(model, 0.0)(BATCH).item())


def test_the_check_refuses_to_start_and_names_cause_and_module(overflowing):
    with pytest.raises(NotReady, match="fp16-overflow") as caught:
        train(quick_settings(overflowing, precision="fp16", check="stop"), quiet)
    assert GUILTY in caught.value.fix
    assert caught.value.fix.startswith("--precision bf16")
    assert "--check warn" in caught.value.fix
    record = json.loads((overflowing / "run" / "check.json").read_text())
    assert record["verdict"] == "sick"
    assert not (overflowing / "run" / "steps.jsonl").exists()


@pytest.mark.slow
def test_the_command_then_ends_with_1(overflowing, capsys):
    flags = ["--train", str(overflowing / "pairs.csv"), "--model", str(overflowing / "model"), "--precision", "fp16"]
    code = main(["train", "translate", *flags, "--output-dir", str(overflowing / "run"), "--device", "cpu"])
    assert code == 1
    assert "fp16-overflow" in capsys.readouterr().err


@pytest.mark.slow
def test_a_healthy_model_in_fp16_passes_the_check_and_trains(tmp_path):
    said = []
    result = train(quick_settings(tmp_path, precision="fp16", check="stop", max_steps=4, eval_rows=1), said.append)
    assert math.isfinite(result.last_loss)
    assert any("ready to launch" in line for line in said)


@pytest.mark.slow
def test_guarded_fp16_escalates_finishes_and_learns(overflowing):
    said = []
    settings = quick_settings(
        overflowing, precision="fp16", check="warn", epochs=None, max_steps=70, schedule="constant",
        warmup_ratio=0.0, learning_rate=0.05, eval_rows=1, samples=0, checkpoint_steps=50, max_source_length=12,
        max_target_length=12, eval_epochs=99,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="mkldnn_matmul failed")
        result = train(settings, said.append)
    assert any("check: error:" in line and "fp16-overflow" in line for line in said)
    run = overflowing / "run"
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events].count("escalate") == 1
    assert "fp16-overflow" in [event.get("cause") for event in events]
    losses = [json.loads(line)["loss"] for line in (run / "steps.jsonl").read_text().splitlines()]
    finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    assert len(losses) == result.steps == 70
    assert len(finite) > 35
    assert sum(finite[-5:]) / 5 < finite[0] - 0.5
    weights = T5ForConditionalGeneration.from_pretrained(run / "best").state_dict()
    assert all(tensor.isfinite().all() for tensor in weights.values())


@pytest.mark.parametrize(("outlier", "holds"), [(1.0, True), (OUTLIER, False)])
def test_auto_takes_fp16_only_for_a_model_that_is_proved_to_hold(tmp_path, outlier, holds):
    model = T5ForConditionalGeneration.from_pretrained(byte_model(tmp_path / "model", outlier=outlier))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    why = holds_in_fp16(model.train(), optimizer, BATCH, loss_of(model, 0.0))
    assert (why == "") == holds, why
