"""From what a person types to a shape, or to an error that helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stayfinite.errors import UsageError
from stayfinite.inspection.memory.finding_the_model import find_shape

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("t5-small", "t5-small"),
        ("google-t5/t5-small", "t5-small"),
        ("google/byt5-small", "byt5-small"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"),
        ("BERT_base", "bert-base-uncased"),
        ("Qwen/Qwen2.5-0.5B-Instruct", "qwen2.5-0.5b"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b"),
    ],
)
def test_a_name_is_understood_with_its_publisher_and_its_endings(typed: str, meant: str) -> None:
    assert find_shape(typed).name == meant


def test_a_directory_a_config_and_weights_beside_one_lead_to_the_same_shape(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "model.safetensors").write_bytes(b"")
    shapes = [find_shape(str(path)) for path in (tmp_path, tmp_path / "config.json", tmp_path / "model.safetensors")]
    assert {(shape.width, shape.layers, shape.kv_heads, shape.tied) for shape in shapes} == {(64, 2, 4, False)}


def test_an_unknown_name_is_answered_with_near_names_and_a_way_out() -> None:
    with pytest.raises(UsageError, match="did you mean t5-small") as caught:
        find_shape("t6-small")
    assert "config.json" in caught.value.fix
    with pytest.raises(UsageError, match="no such file or directory"):
        find_shape("./nowhere/config.json")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_size": 0}, '"hidden_size" should be a whole number above 0, not 0'),
        ({"hidden_size": True}, "not True"),
        ({"hidden_size": "64"}, "not '64'"),
        ({"num_hidden_layers": None}, '"num_hidden_layers" is missing'),
        ({"num_hidden_layers": 10**30}, "should be a whole number"),
        ({"attention_dropout": float("nan")}, "should be a number from 0 to 1"),
        ({"model_type": "mamba"}, "'mamba' is unknown"),
        ({"model_type": None}, "is unknown"),
        ({"model_type": "llava", "text_config": {}}, "combines several models"),
        ({"num_attention_heads": 100}, "100 heads do not divide a width of 64"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3 keys"),
    ],
)
def test_a_config_that_cannot_be_is_named_with_its_field(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, **change}))
    with pytest.raises(UsageError, match=says):
        find_shape(str(path))


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_config_is_refused_in_words(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="config.json"):
        find_shape(str(path))


def test_a_directory_of_adapters_is_told_from_a_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UsageError, match="only adapters"):
        find_shape(str(tmp_path))
