"""Unit conversions by a small chat model, before and after ``stayfinite train grpo``.

    python benchmarks/grpo_units.py    # SmolLM2-135M, minutes on one card; without one, a tiny model on an easier task

A short ``train sft`` gives the start, which knows the format and is sometimes right. GRPO continues from there with
only the reward: right within 5 %, or not. The questions are generated; held-out ones share no number with training. An
unparsable answer is a miss. An existing start is reused, so that other GRPO settings can be tried on it: this script
takes every flag of ``stayfinite train grpo``.
"""

from __future__ import annotations

import json
import platform
import time
from dataclasses import replace
from pathlib import Path

import torch
import transformers
import tyro

from stayfinite.recipes import grpo, sft
from stayfinite.recipes.grpo import Grpo
from stayfinite.recipes.running.records import RESULT
from stayfinite.recipes.sft import Sft

START = Sft(
    model="smollm2",
    task="metric",
    rows=4_500,
    held_out=100,
    epochs=1,
    minutes=1.2,
    batch_size=256,
    accumulation=1,
    learning_rate=8e-4,
    rank=32,
    alpha=32.0,
    dropout=0.0,
    gradient_checkpointing=False,
    max_length=160,
    eval_rows=100,
    samples=0,
    base_score=False,
    check="off",
    logging_steps=50,
    output_dir="runs/grpo_units/start",
)
SETTINGS = Grpo(
    start=START.output_dir,
    rows=20_000,
    prompts=64,
    group_size=8,
    updates=4,
    steps=64,
    minutes=1.4,
    learning_rate=1e-4,
    schedule="constant",
    temperature=1.0,
    batch_size=512,
    eval_steps=16,
    eval_rows=500,
    samples=0,
    check="off",
    logging_steps=4,
    output_dir="runs/grpo_units/grpo",
)


def main() -> None:
    """Fine-tune briefly, continue with GRPO, print the tables."""
    began = time.monotonic()
    card = torch.cuda.is_available()
    # Without a card the real model would take a day: use a tiny one on an easier task.
    config = tyro.cli(Grpo, default=SETTINGS if card else grpo.settled(Grpo(output_dir=SETTINGS.output_dir)))
    if config.start == START.output_dir and not (Path(config.start) / RESULT).is_file():
        sft.train(replace(START, seed=config.seed, device=config.device, precision=config.precision))
    ready = time.monotonic()
    result = grpo.train(config)
    ended = time.monotonic()
    record = json.loads((result.directory / RESULT).read_text(encoding="utf-8"))
    name = torch.cuda.get_device_name() if card and config.device != "cpu" else platform.machine()
    print(f"\n{result.steps} steps of {config.prompts} questions, {config.group_size} answers each, on {name};")
    print(f"torch {torch.__version__}, transformers {transformers.__version__};")
    print(f"{ready - began:.0f} s for the start, {ended - ready:.0f} s for GRPO and its evaluations\n")
    print("| | accuracy | answer rate | questions |\n|---|---|---|---|")
    for row in ("start", "scores"):
        found = record[row]
        print(
            f"| {'start' if row == 'start' else 'GRPO'} | {found['accuracy']:.3f} | {found['answer_rate']:.3f} "
            f"| {found['questions']:,} |"
        )
    print("\n| step | accuracy | answer rate | loss of the right answer |\n|---|---|---|---|")
    for each in record["evaluations"]:
        print(f"| {each['step']} | {each['accuracy']:.3f} | {each['answer_rate']:.3f} | {each['loss']:.3f} |")


if __name__ == "__main__":
    main()
