"""Free-form notes: what a person writes beside a log."""

import pytest

from stayfinite.readers.configs import read_config

LINES = {
    "gradient_checkpointing: True (default)": {"gradient_checkpointing": True},
    "learning_rate: 5e-5": {"learning_rate": 5e-5},
    "learning rate: 3e-4 peak, cosine decay": {"learning_rate": 3e-4},
    "batch size: 32 per GPU": {"batch_size": 32},
    "precision: fp16": {"precision": "fp16"},
    "optimizer: AdamW lr 1e-3": {"optimizer": "AdamW lr 1e-3", "lr": 1e-3},
    "parallel: FSDP2 8xH100": {"parallel": "FSDP2 8xH100"},
    "gpus: 4x V100": {"gpus": "4x V100"},
    "gpus: 1": {"gpus": 1},
    "mixed precision: no": {"mixed_precision": False},
    "warmup: none": {"warmup": None},
    "betas: (0.9, 0.98)": {"betas": [0.9, 0.98]},
    "betas: 0.9, 0.98": {"betas": [0.9, 0.98]},
    "max tokens: 65,536": {"max_tokens": 65536},
    "dtype: torch.float16 (model.half())": {"dtype": "float16"},
    "grad_clip: 1.0 (norm)": {"grad_clip": 1.0},
    "- model: t5-small": {"model": "t5-small"},
    "max_length = 512": {"max_length": 512},
    '"fp16": true,': {"fp16": True},
    "model: Qwen2-VL-7B, fp16: true, lr: 1e-4": {"model": "Qwen2-VL-7B", "fp16": True, "lr": 1e-4},
    "lr=1e-4, warmup_steps=0, fp16=True": {"lr": 1e-4, "warmup_steps": 0, "fp16": True},
    "stage: fine-tuning (pre-training was fine)": {"stage": "fine-tuning (pre-training was fine)"},
    "loss: torch.pow(loss, (2-loss)**2) with loss = (pred - label)**2": {
        "loss": "torch.pow(loss, (2-loss)**2) with loss = (pred - label)**2"
    },
    "loss: focal BCE; y = clamp(y, 1e-8, 1-1e-8); log(y), log(1-y)": {
        "loss": "focal BCE; y = clamp(y, 1e-8, 1-1e-8); log(y), log(1-y)"
    },
    "tokenizer: special tokens added; embeddings not resized": {
        "tokenizer": "special tokens added; embeddings not resized"
    },
    "I trained mt5 with lr=1e-3 and batch size 32 on two cards.": {"lr": 1e-3, "batch_size": 32},
    "The learning rate is 2e-4.": {"learning_rate": 2e-4},
    "command: python train.py --fp16 --lr 1e-4": {
        "command": "python train.py --fp16 --lr 1e-4",
        "fp16": True,
        "lr": 1e-4,
    },
    "--fp16 --clip-norm 0.0": {"fp16": True, "clip_norm": 0.0},
    "args: --fp16 --clip-norm 0.0": {"fp16": True, "clip_norm": 0.0},
    "env: torch 2.1.0, transformers 4.36.2": {"torch_version": "2.1.0", "transformers_version": "4.36.2"},
    "- `transformers` version: 4.30.2": {"transformers_version": "4.30.2"},
    "TrainingArguments(fp16=True, learning_rate=5e-5)": {"TrainingArguments.fp16": True, "learning_rate": 5e-5},
    "peft: LoraConfig(r=16, lora_alpha=32)": {"LoraConfig.r": 16, "lora_alpha": 32},
    "optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)": {"Adam.lr": 1e-4},
    'model = T5Model.from_pretrained("t5-base").half()': {"from_pretrained.name": "t5-base", "half": True},
    "optimizer = dict(type='SGD', lr=0.02)": {"optimizer.type": "SGD", "optimizer.lr": 0.02},
    "fp16: {enabled: true, loss_scale: 0}": {"fp16.enabled": True, "fp16.loss_scale": 0},
}


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_understood_alone_and_among_others(tmp_path, line):
    path = tmp_path / "config.txt"
    for text in (line, f"A run that failed.\n\n{line}\nsee below\n"):
        path.write_text(text)
        settings = read_config(path)
        expected = LINES[line]
        assert {name: settings.value(name) for name in expected} == expected
        assert any(line == note for _, note in settings.notes)


def test_blocks_are_read_as_what_they_are(tmp_path):
    path = tmp_path / "config.txt"
    path.write_text(
        """Environment: 8 GPUs
accelerate launch --mixed_precision fp16 train.py \\
  --learning_rate 1e-4
args = TrainingArguments(
    output_dir="x",
    fp16=True,
)
ds_config.json:
```json
{
  "zero_optimization": {"stage": 2},
}
```
trainer:
  precision: bf16-mixed
  devices: 8
"""
    )
    settings = read_config(path)
    places = {
        name: settings.find(name).line for name in ("learning_rate", "fp16", "stage", "trainer.precision", "devices")
    }
    assert places == {"learning_rate": 3, "fp16": 6, "stage": 11, "trainer.precision": 15, "devices": 16}


def test_a_text_that_is_python_is_read_as_python_with_its_lines_as_notes(tmp_path):
    path = tmp_path / "config.txt"
    path.write_text(
        "LR = 1e-4\nopt = Adam(model.parameters(), lr=LR)\nfor b in data:\n    loss = f(b)\n    loss.backward()\n"
    )
    settings = read_config(path)
    assert settings.value("Adam.lr") == 1e-4
    assert [text for _, text in settings.notes][-1] == "loss.backward()"


def test_a_bracket_that_is_never_closed_swallows_nothing(tmp_path):
    path = tmp_path / "config.txt"
    path.write_text('"fp16": {\n  "enabled": true,\nlr: 1e-4\nwarmup: 100\n')
    settings = read_config(path)
    assert [settings.value(name) for name in ("fp16.enabled", "lr", "warmup")] == [True, 1e-4, 100]


def test_prose_yields_notes_and_no_settings(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text(
        "The run was fine until Tuesday.\nThen it was not: we do not know why at all.\nhttps://example.com/a\n"
    )
    settings = read_config(path)
    assert len(settings) == 0
    assert len(settings.notes) == 3
