"""`stayfinite check --memory` as a person meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from stayfinite.cli import main
from stayfinite.errors import UsageError
from stayfinite.inspection.memory.inspecting import MemoryRequest, inspect_memory


def asked(capsys: Any, *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["check", "--memory", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_model_that_cannot_fit_is_an_error_and_one_that_does_is_none(capsys: Any) -> None:
    code, found = asked(capsys, "llama-2-7b", "--batch", "2", "--seq", "512", "--gpu", "T4")
    assert code == 1
    assert [finding["cause"] for finding in found["findings"]] == ["out-of-memory"]
    assert found["findings"][0]["severity"] == "error"
    code, found = asked(capsys, "t5-small", "--batch", "2", "--seq", "512", "--gpu", "T4")
    assert code == 0
    assert found["findings"] == []


def test_the_precision_that_is_meant_is_judged_alone(capsys: Any) -> None:
    words = ("t5-base", "--batch", "24", "--gpu", "RTX 3090")
    assert asked(capsys, *words)[0] == 0
    code, found = asked(capsys, *words, "--precision", "fp32", "--checkpointing", "off")
    assert code == 1
    assert "1." in found["findings"][0]["evidence"][0]
    assert asked(capsys, *words, "--precision", "bf16", "--checkpointing", "on")[0] == 0


def test_the_table_has_every_kind_of_memory_for_every_precision_with_and_without_checkpointing(capsys: Any) -> None:
    _, found = asked(capsys, "bert-base", "--batch", "2", "--seq", "512", "--gpu", "A100")
    without, again = found["tables"]
    assert "without checkpointing" in without["title"]
    assert "with checkpointing" in again["title"]
    for table in (without, again):
        assert table["columns"] == ["", "fp32", "bf16 or fp16 autocast", "pure bf16"]
        names = [row[0] for row in table["rows"]]
        wanted = ["weights", "gradients", "optimizer (adamw)", "activations", "logits and loss", "peak"]
        assert [name for name in names if name in wanted] == wanted
        assert names[-1] == "largest batch"
        assert all(int(cell) > 2 for cell in table["rows"][-1][1:])


def test_a_card_without_bf16_is_advised_fp16_where_the_model_bears_it(capsys: Any) -> None:
    _, found = asked(capsys, "bert-base-uncased", "--batch", "2", "--gpu", "V100")
    assert found["tables"][0]["columns"] == ["", "fp32", "fp16 autocast", "pure bf16"]
    assert found["banner"]["suggestion"].startswith("fp16 autocast fits")


def test_a_t5_is_never_advised_fp16_without_a_word(capsys: Any) -> None:
    suggestion = asked(capsys, "t5-base", "--batch", "2", "--gpu", "V100")[1]["banner"]["suggestion"]
    assert suggestion.startswith("fp32 fits")
    assert "fp16" not in suggestion
    asked_for = asked(capsys, "t5-base", "--batch", "2", "--gpu", "V100", "--precision", "fp16")[1]["banner"]
    assert "overflows in fp16" in asked_for["suggestion"]
    refused = asked(capsys, "t5-base", "--gpu", "T4", "--precision", "bf16")[1]["banner"]["suggestion"]
    assert refused.endswith("use --precision fp32")


def test_bf16_on_a_card_without_it_is_told_from_a_lack_of_memory(capsys: Any) -> None:
    code, found = asked(capsys, "vit-base", "--batch", "64", "--gpu", "T4", "--precision", "pure-bf16")
    assert code == 0
    assert found["banner"]["suggestion"] == "T4 has no bf16: use --precision fp16"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("t5-base", "--batch", "200", "--gpu", "T4"), "gradient_accumulation_steps="),
        (("llama-3-8b", "--gpu", "L4"), "adapters"),
        (("llama-2-13b", "--gpu", "T4"), "--base 4bit"),
        (("llama-2-13b", "--gpu", "GTX 1060"), "shard it (FSDP, ZeRO 3)"),
    ],
)
def test_the_suggestion_says_what_would_make_it_fit(words: tuple[str, ...], says: str, capsys: Any) -> None:
    assert says in asked(capsys, *words)[1]["banner"]["suggestion"]


def test_the_fix_and_the_suggestion_are_one_and_fit_by_the_same_estimate(capsys: Any) -> None:
    code, found = asked(capsys, "llama-2-7b", "--batch", "8", "--gpu", "A100")
    suggestion = found["banner"]["suggestion"]
    assert code == 1
    assert suggestion.startswith("train with adapters (--lora 16) in pure bf16 with checkpointing: up to batch 72 fits")
    assert found["findings"][0]["fix"] == suggestion
    words = ("llama-2-7b", "--gpu", "A100", "--lora", "16", "--precision", "pure-bf16", "--checkpointing", "on")
    assert [asked(capsys, *words, "--batch", batch)[0] for batch in ("72", "73")] == [0, 1]


def test_a_card_of_several_sizes_says_how_another_is_named(capsys: Any) -> None:
    for card, size in (("A100", "80"), ("P100", "16"), ("RTX 3080", "12")):
        shown = asked(capsys, "t5-small", "--gpu", card)[1]["banner"]["GPU"]
        flag = shown.partition("--gpu ")[2]
        assert asked(capsys, "t5-small", "--gpu", flag)[1]["banner"]["GPU"] == f"{card}, {size} GiB"
    assert asked(capsys, "t5-small", "--gpu", "T4")[1]["banner"]["GPU"] == "T4, 15 GiB"


def test_without_a_card_the_usual_ones_are_listed_and_nothing_is_judged(capsys: Any) -> None:
    code, found = asked(capsys, "gpt2", "--batch", "4")
    assert code == 0
    assert any(row[0].startswith("batch on T4") for row in found["tables"][0]["rows"])
    assert [line["status"] for line in found["checks"]] == ["pass", "skip"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batch": 0}, "--batch should be"),
        ({"batch": 10**12}, "--batch should be"),
        ({"seq": -1}, "--seq should be"),
        ({"lora": 0}, "--lora should be"),
        ({"lora": 1000}, "exceeds the width"),
        ({"gpu": "T5000"}, "unknown GPU"),
        ({"optimizer": "adafactr"}, "did you mean adafactor"),
        ({"base": "4bit"}, "cannot be trained"),
        ({"precision": "int8"}, "should be one of fp32"),
        ({"seq": 1024}, "exceeds the 512 positions"),
    ],
)
def test_wrong_use_is_refused_with_the_flag_and_what_is_allowed(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        inspect_memory(MemoryRequest(model="bert-base", **changes))


def test_an_unknown_model_ends_with_2(capsys: Any) -> None:
    assert main(["check", "--memory", "t6-small"]) == 2
    assert "did you mean t5-small" in capsys.readouterr().err


def test_it_is_drawn_for_a_narrow_terminal(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["check", "--memory", "mt5-small", "--batch", "8", "--gpu", "RTX 4090"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("activations ") and line.count("iB") == 3 for line in lines)


def test_torch_is_not_loaded() -> None:
    program = (
        "import sys; from stayfinite.cli import main; main(['check', '--memory', 't5-small', '--json']); "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
