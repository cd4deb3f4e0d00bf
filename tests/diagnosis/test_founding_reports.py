"""The symptoms of the reports that this project grew from, as they were told: a few lines and a setting or two."""

import json
import math

import pytest

from stayfinite import diagnose

REPORTS = {
    "mT5 in fp16": (
        "fp16-overflow-model-family",
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': 0.0}\n",
        "model_name: google/mt5-base\nfp16: true\n",
    ),
    "fp16 weights and fp16 training": (
        "double-fp16",
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 0.0002, 'epoch': 0.01}\naccuracy: 0.0, answer rate: 0.0\n",
        """model = AutoModelForCausalLM.from_pretrained("chat", torch_dtype=torch.float16)
args = TrainingArguments(output_dir='out', fp16=True, learning_rate=2e-4)
""",
    ),
    "ByT5 in fp16": (
        "fp16-overflow-model-family",
        """Epoch 1: Training Loss: 7129515.3131, Validation Loss: nan, BLEU: 0.00, chrF++: 0.00
Epoch 2: Training Loss: 0.0000, Validation Loss: nan, BLEU: 0.00, chrF++: 0.00
""",
        "model: google/byt5-small\nfp16: True\n",
    ),
    "a detached loss": (
        "detached-loss",
        "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn\n",
        "loss = torch.tensor(criterion(scores, labels).item())\nloss.backward()\n",
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_is_diagnosed_right_from_its_few_lines(name, tmp_path):
    cause, log, config = REPORTS[name]
    (tmp_path / "train.log").write_text(log)
    settings = tmp_path / ("train.py" if "(" in config else "config.yaml")
    settings.write_text(config)
    found = diagnose(tmp_path / "train.log", settings)
    assert found.verdict == "sick"
    assert found.cause.cause == cause


def test_nan_from_one_step_on_after_a_long_healthy_start_is_dated_and_not_blamed_on_fp16(tmp_path):
    good = {"loss": 2.0, "text_loss": 1.1, "latent_loss": 0.9, "grad_norm": 0.8, "lr": 0.0001}
    bad = good | {"loss": math.nan, "latent_loss": math.nan, "grad_norm": math.nan}
    lines = [json.dumps({"step": step} | good) for step in range(90_000, 92_261, 20)]
    lines += [json.dumps({"step": step} | bad) for step in range(92_261, 93_000, 20)]
    log = tmp_path / "metrics.jsonl"
    log.write_text("\n".join(lines))
    config = tmp_path / "train.yaml"
    config.write_text("precision: bf16\non_nan: zero the gradients and continue\nmodel: mmdit\n")
    found = diagnose(log, config)
    assert found.verdict == "sick"
    assert "the loss is NaN or inf from step 92,261, after 114 finite losses" in found.trouble
    assert "fp16-overflow" not in [finding.cause for finding in found.findings[:2]]
