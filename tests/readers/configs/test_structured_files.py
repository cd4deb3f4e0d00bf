"""YAML, JSON, TOML and INI: what is written there comes out as settings with their lines."""

import math

import pytest

from readers.configs.config_files import read, told
from stayfinite.readers.configs import structured_files

FILES = {
    "trainer.yaml": (
        """
# LLaMA-Factory
model_name_or_path: Qwen/Qwen2-1.5B
learning_rate: 1.0e-4
lr: 1e-4
fp16: true
bf16: no
quoted: "1e-4"
gradient_checkpointing: True (default)
betas: [0.9, 0.95]
optimizer:
  type: AdamW
  params: {lr: 3e-4, eps: 1.e-8}
nothing:
steps: 1_000
python: (0.9, 0.98)
""",
        {
            "model_name_or_path": "Qwen/Qwen2-1.5B",
            "learning_rate": 1e-4,
            "lr": 1e-4,
            "fp16": True,
            "bf16": False,
            "quoted": "1e-4",
            "gradient_checkpointing": True,
            "betas": [0.9, 0.95],
            "optimizer.type": "AdamW",
            "optimizer.params.lr": 3e-4,
            "optimizer.params.eps": 1e-8,
            "nothing": None,
            "steps": 1000,
            "python": [0.9, 0.98],
        },
    ),
    "anchors.yaml": (
        "base: &base\n  lr: 0.1\n  fp16: true\nrun:\n  <<: *base\n  lr: 0.2\n",
        {"base.lr": 0.1, "base.fp16": True, "run.lr": 0.2, "run.fp16": True},
    ),
    "wandb.yaml": (
        "lr:\n  desc: null\n  value: 0.1\nargs:\n  value:\n    fp16: true\n",
        {"lr": 0.1, "args.fp16": True},
    ),
    "overrides.yaml": (
        "- optimizer.lr=3e-4\n- +trainer.precision=16-mixed\n",
        {"optimizer.lr": 3e-4, "trainer.precision": "16-mixed"},
    ),
    "list.yaml": (
        "- lr: 0.1\n- lr: 0.2\n",
        {"0.lr": 0.1, "1.lr": 0.2},
    ),
    "ds_config.json": (
        """{
  "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16},
  "zero_optimization": {"stage": 2, "overlap_comm": true, "offload_optimizer": {"device": "cpu"}},
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-5, "betas": [0.8, 0.999], "eps": 1e-8}},
  "gradient_clipping": 1.0
}""",
        {
            "fp16.enabled": "auto",
            "fp16.loss_scale": 0,
            "fp16.initial_scale_power": 16,
            "zero_optimization.stage": 2,
            "zero_optimization.overlap_comm": True,
            "zero_optimization.offload_optimizer.device": "cpu",
            "optimizer.type": "AdamW",
            "optimizer.params.lr": 3e-5,
            "optimizer.params.betas": [0.8, 0.999],
            "optimizer.params.eps": 1e-8,
            "gradient_clipping": 1.0,
        },
    ),
    "config.json": (
        """{"architectures": ["MT5ForConditionalGeneration"], "model_type": "mt5", "torch_dtype": "float32",
 "n": NaN, "i": -Infinity, "id2label": {"0": "a"}, "empty": {}, "deep": [[1, 2], [3, 4]]}""",
        {
            "architectures": ["MT5ForConditionalGeneration"],
            "model_type": "mt5",
            "torch_dtype": "float32",
            "i": -math.inf,
            "id2label.0": "a",
            "empty": {},
            "deep": [[1, 2], [3, 4]],
        },
    ),
    "comments.json": (
        """// a config
{
  // half
  "fp16": true, /* and */ 'lr': 1e-4,
  "url": "http://x", # so
  "last": [1, 2,],
}
""",
        {"fp16": True, "lr": 1e-4, "url": "http://x", "last": [1, 2]},
    ),
    "escapes.json": (r'{"a": "x\"y\\z\n\u00e9", "b": "c:\\d"}', {"a": 'x"y\\z\né', "b": "c:\\d"}),
    "titan.toml": (
        """[optimizer]
name = "AdamW"
lr = 3e-4
[training]
seed=2020
max_norm = 1.0  # clip
compile = false
when = 2024-01-01
""",
        {
            "optimizer.name": "AdamW",
            "optimizer.lr": 3e-4,
            "training.seed": 2020,
            "training.max_norm": 1.0,
            "training.compile": False,
            "training.when": "2024-01-01",
        },
    ),
    "train.ini": (
        "seed = 1\n[train]\nlr = 1e-4 ; small\nfp16: yes\nbetas = (0.9, 0.98)\nmore = {'a': 1}\n; no\n[empty]\n",
        {"seed": 1, "train.lr": 1e-4, "train.fp16": True, "train.betas": [0.9, 0.98], "train.more.a": 1},
    ),
    "broken.toml": ("lr = 1e-4\nfp16 = maybe not\n", {"lr": 1e-4, "fp16": "maybe not"}),
    "broken.yaml": (
        "lr: 1e-4\n\tfp16: true\nopt:\n  eps: 1e-8\n  x: [1\n",
        {"lr": 1e-4, "fp16": True, "opt.eps": 1e-8},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_says_what_is_written_in_it(tmp_path, name):
    text, expected = FILES[name]
    found = told(read(tmp_path, name, text))
    assert {key: found.get(key, "(missing)") for key in expected} == expected


def test_not_a_number_is_a_number(tmp_path):
    assert math.isnan(read(tmp_path, "c.json", '{"x": NaN}').value("x"))


def test_settings_carry_the_line_they_stand_on(tmp_path):
    for name, text in {
        "a.yaml": "# one\nfp16: true\nopt:\n  lr: 0.1\n",
        "a.json": '{\n "fp16": true,\n "opt": {\n  "lr": 0.1}}',
        "a.toml": "# one\nfp16 = true\n[opt]\nlr = 0.1\n",
        "a.ini": "# one\nfp16 = true\n[opt]\nlr = 0.1\n",
    }.items():
        settings = read(tmp_path, name, text)
        assert [settings.find("fp16").where, settings.find("lr").where] == [
            f"{tmp_path}/{name}:2",
            f"{tmp_path}/{name}:4",
        ]


def test_the_kind_is_seen_from_the_content_where_the_name_says_nothing(tmp_path):
    assert read(tmp_path, "settings", '{"fp16": {"enabled": true}}').value("fp16.enabled") is True
    assert read(tmp_path, "conf.txt", "---\nopt:\n  lr: 0.1\n").value("opt.lr") == 0.1
    assert read(tmp_path, "start", "#!/bin/bash\npython t.py --fp16\n").value("fp16") is True
    assert read(tmp_path, "start2", "#!/usr/bin/env python3\nfp16 = True\n").value("fp16") is True


def test_yaml_is_read_line_by_line_where_pyyaml_is_missing(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(structured_files.importlib, "import_module", missing)
    settings = read(tmp_path, "c.yaml", "optimizer:\n  lr: 3e-4  # peak\nfp16: true\n")
    assert (settings.value("optimizer.lr"), settings.value("fp16")) == (3e-4, True)
    assert "PyYAML is not installed" in settings.notes[0][1]


def test_several_yaml_documents_are_all_read(tmp_path):
    assert told(read(tmp_path, "c.yaml", "lr: 1\n---\nfp16: true\n")) == {"lr": 1, "fp16": True}


def test_tokens_and_passwords_are_not_repeated(tmp_path):
    token = "hf_" + "a1B2" * 8
    settings = read(
        tmp_path, "c.yaml", f"hub_token: {token}\npad_token: <pad>\nnote: use {token}\nwandb_api_key: abc\nlr: 1\n"
    )
    assert told(settings) == {
        "hub_token": "(hidden)",
        "pad_token": "<pad>",
        "note": "use (hidden)",
        "wandb_api_key": "(hidden)",
        "lr": 1,
    }
    notes = read(tmp_path, "c.txt", f"python t.py --hub_token {token} --lr 1").notes
    assert token not in str(notes)
