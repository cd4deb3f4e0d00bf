"""A config is held against the weights that lie beside it."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from stayfinite.inspection.memory.finding_the_model import numbers_on_disk
from stayfinite.inspection.memory.inspecting import MemoryRequest, inspect_memory

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 100,
}
COUNT = 2 * 800 + 4 * 64 + 3 * 128 + 3 * 8


def written(folder: Path, numbers: int) -> Path:
    (folder / "config.json").write_text(json.dumps(LLAMA))
    save_file({"first": torch.zeros(100)}, folder / "model-00001-of-00002.safetensors")
    save_file({"second": torch.zeros(numbers - 100)}, folder / "model-00002-of-00002.safetensors")
    return folder


def test_shards_are_added_up(tmp_path: Path) -> None:
    assert numbers_on_disk(str(written(tmp_path, COUNT))) == COUNT


def test_weights_that_fit_their_config_are_not_spoken_of(tmp_path: Path) -> None:
    banner = dict(inspect_memory(MemoryRequest(model=str(written(tmp_path, COUNT)))).banner)
    assert "weights" not in banner


def test_weights_that_do_not_fit_their_config_are(tmp_path: Path) -> None:
    banner = dict(inspect_memory(MemoryRequest(model=str(written(tmp_path, 2 * COUNT)))).banner)
    assert banner["weights"] == f"{2 * COUNT:,} numbers on disk, {COUNT:,} in the config, which is used"


def test_broken_weights_and_none_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert numbers_on_disk(str(tmp_path)) is None
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 64)
    assert numbers_on_disk(str(tmp_path)) is None
    assert inspect_memory(MemoryRequest(model=str(tmp_path))).exit_code == 0
    assert numbers_on_disk("t5-small") is None
