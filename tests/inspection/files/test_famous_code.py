"""Beside each program that works, as `healthy_famous.py` has them, the fault that it resembles: that is still found."""

import json
from pathlib import Path

import pytest

from inspection.files.healthy_famous import FAMOUS, PEFT, WORDS
from stayfinite.inspection.files.inspecting import inspect_files
from stayfinite.inspection.files.plan import EitherOr, lines_switched_off
from stayfinite.inspection.files.sources import read_sources


def said(text: str, here: Path, *given: str, name: str = "train.py") -> list[tuple[str, str]]:
    """Severity and cause of every finding on one file."""
    (here / name).write_text(text)
    return [(finding.severity, finding.cause) for finding in inspect_files(given or [name]).findings]


TOO_HIGH = [("error", "lr-too-high")]


@pytest.mark.parametrize(
    "text",
    [
        WORDS.replace("    torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)\n", ""),
        WORDS.replace("default=0.25", "default=10.0"),
        WORDS.replace('action="store_true"', 'action="store_false"'),
        "import torch\noptimizer = torch.optim.Adam(model.parameters(), lr=20)\n",
        "import torch\noptimizer = torch.optim.SGD(model.parameters(), lr=20)\n",
        "import torch\noptimizer = torch.optim.Adam([image], lr=20)\n",
        "import torch\noptimizer = torch.optim.Adagrad(model.parameters(), lr=50)\n",
        FAMOUS["few_shot.py"].replace("meta_lr=0.003", "meta_lr=3.0"),
        FAMOUS["one_layer.py"].replace("lr=0.2", "lr=2"),
        FAMOUS["fast_images.py"].replace("lr=3.0", "lr=30.0"),
        FAMOUS["fast_images.py"].replace("resnet18", "plain"),
        FAMOUS["sharded.py"].replace("output.sum()", "loss(output, target)").replace("0.25", "2.5"),
        PEFT.format(config="LoraConfig", rate=0.05, model="facebook/bart-base"),
        PEFT.format(config="IA3Config", rate=8.0, model="facebook/bart-base"),
        PEFT.format(config="PromptTuningConfig", rate=30.0, model="facebook/bart-base"),
    ],
)
def test_a_rate_that_no_optimizer_bears_is_still_an_error(text: str, here: Path) -> None:
    assert ("error", "lr-too-high") in said(text, here)


def test_a_switch_on_the_command_line_brings_its_branch_to_life(here: Path) -> None:
    (here / "train.py").write_text(WORDS)
    assert inspect_files(["python train.py --lr 20"]).findings == []
    assert said(WORDS, here, "python train.py --with-adam") == TOO_HIGH


def test_lines_behind_a_switch_that_is_off_are_known(here: Path) -> None:
    (here / "train.py").write_text(WORDS)
    sources = read_sources(["train.py"])
    off = lines_switched_off(sources, sources[0].settings)
    lines = {WORDS.split("\n")[int(place.rpartition(":")[2]) - 1].strip() for place in off}
    assert lines == {"optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)", "optimizer.step()"}


def test_one_run_passes_one_of_two_branches(here: Path) -> None:
    (here / "train.py").write_text("if a:\n    x = 1\nelif b:\n    x = 2\nelse:\n    x = 3\nx = 4\n")
    either_or = EitherOr(read_sources(["train.py"]))
    assert ("train.py:2", "train.py:4") in either_or
    assert ("train.py:6", "train.py:4") in either_or
    assert ("train.py:2", "train.py:7") not in either_or


LOOP = """
import torch
optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3)
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""
SCALED = """
import torch
optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
for x, y in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.parametrize(("optimizer", "severity"), [("SGD", "error"), ("AdamW", "warning")])
def test_what_adam_bears_is_a_warning_and_an_error_under_sgd(optimizer: str, severity: str, here: Path) -> None:
    assert said(LOOP.format(optimizer=optimizer), here) == [(severity, "no-zero-grad")]
    assert said(SCALED.format(optimizer=optimizer), here) == [(severity, "clip-before-unscale")]


def test_a_scaled_loop_beside_a_plain_one_is_judged_by_itself(here: Path) -> None:
    unscale = "    scaler.unscale_(optimizer)\n"
    text = FAMOUS["both_loops.py"].replace(unscale, "").replace("    scaler.step", unscale + "    scaler.step")
    assert [cause for _, cause in said(text, here)] == ["clip-before-unscale"]


def test_a_warmup_that_is_longer_than_the_training_is_a_warning(here: Path) -> None:
    text = FAMOUS["short_tune.yaml"].replace("  epochs: 1\n", "  epochs: 1\n  max_steps: 100\n")
    assert said(text, here, name="tune.yaml") == [("warning", "lr-schedule-bug")]
    text = FAMOUS["episodes.py"].replace("num_train_epochs=1", "max_steps=args.max_steps")
    assert said(text, here) == [("warning", "lr-schedule-bug")]


def test_fp16_with_adapters_of_a_qwen_is_a_warning_and_with_all_of_it_an_error(here: Path) -> None:
    plan = (
        "model_name_or_path: Qwen/Qwen2-7B-Instruct\noutput_dir: o\nlearning_rate: 1e-5\nnum_train_epochs: 1\n"
        "per_device_train_batch_size: 1\nwarmup_ratio: 0.1\nfp16: true\n"
    )
    assert said(plan + "use_peft: true\nlora_r: 8\n", here, name="a.yaml") == [
        ("warning", "fp16-overflow-model-family")
    ]
    assert said(plan, here, name="b.yaml") == [("error", "fp16-overflow-model-family")]
    for model in ("google/gemma-2-2b", "google/mt5-small", "google/flan-t5-small", "t5-base"):
        text = plan.replace("Qwen/Qwen2-7B-Instruct", model) + "use_peft: true\nlora_r: 8\n"
        assert said(text, here, name="c.yaml") == [("error", "fp16-overflow-model-family")]


def test_one_broken_cell_is_a_warning_and_a_broken_config_an_error(here: Path) -> None:
    cells = [
        "from transformers import TrainingArguments\nargs = TrainingArguments('o', learning_rate=2e-5, bf16=True)\n",
        "inputs = prepare(\n    text,\n    kind='pt'\n    whole=True,\n)\n",
    ]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in cells
    ]}  # fmt: skip
    assert said(json.dumps(notebook), here, name="tune.ipynb") == [("warning", "config-contradiction")]
    cut = '{"learning_rate": 1e-4, "num_train_epochs": 3, "bf16": '
    assert said(cut, here, name="tune.json") == [("error", "config-contradiction")]


@pytest.mark.parametrize(
    ("name", "old", "new", "cause"),
    [
        ("quantized.py", "    model = get_peft_model(model, config)\n", "", "quantized-weights"),
        ("detector.py", "model.half().float()", "model.half()", "double-fp16"),
        ("noam.py", 'group["lr"] = self.factor', "unused = self.factor", "lr-zero"),
        ("called_logits.py", "F.log_softmax(self.last(x), dim=1)", "self.last(x)", "probability-loss-on-logits"),
        ("remote.py", "dist_autograd.backward(context, [loss])", "loss.backward()", "no-zero-grad"),
        ("reranker.py", ", evaluator=evaluator", "", "config-contradiction"),
        ("either.py", "elif dtype == torch.bfloat16:", "if True:", "both-half-formats"),
        ("small_t5.py", '"t5-small"', '"t5-base"', "fp16-overflow-model-family"),
        ("pretrain_llama.py", "LLaMAModel(l", "LlamaForCausalLM.from_pretrained(l", "fp16-overflow-model-family"),
    ],
)  # fmt: skip
def test_the_fault_that_it_resembles_is_found(name: str, old: str, new: str, cause: str, here: Path) -> None:
    assert old in FAMOUS[name]
    assert cause in {found for _, found in said(FAMOUS[name].replace(old, new), here)}


def test_a_program_whose_parser_comes_from_elsewhere_is_not_held_to_its_text(here: Path) -> None:
    text = "import argparse\nparser = {}()\nparser.add_argument('--lr', type=float)\nparser.parse_args()\n"
    command = "python train.py --lr 1e-4 --bert_model bert-large-uncased"
    assert said(text.format("get_parser"), here, command) == []
    assert said(text.format("argparse.ArgumentParser"), here, command) == [("warning", "unknown-setting")]


def test_a_deepspeed_file_is_held_against_a_trainer_alone(here: Path) -> None:
    (here / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "Adam", "params": {"lr": 3e-5}}}'
    )
    own = "deepspeed train.py --learning_rate 4e-5 --do_train --deepspeed_config ds.json"
    assert inspect_files([own, "ds.json"]).findings == []
    trainer = f"{own} --per_device_train_batch_size 4 --num_train_epochs 1 --logging_steps 5 --model_name_or_path gpt2"
    assert [finding.cause for finding in inspect_files([trainer, "ds.json"]).findings] == ["config-contradiction"]
