"""Unit conversions by a small chat model, before and after ``stayfinite train sft``.

    python benchmarks/sft_units.py    # SmolLM2-135M, minutes on one card; without one, a tiny model on an easier task

The questions are generated; held-out ones share no number with training. Within 5 % is right; an unparsable answer is a
miss. Base and tuned model get the same prompt and questions. The model also learns the steps to the answer: convert
each digit, then add.
"""

from __future__ import annotations

import json
import platform
import time

import torch
import transformers
import tyro

from stayfinite.recipes.running.records import RESULT
from stayfinite.recipes.sft import Sft, settled, train

SETTINGS = Sft(
    model="smollm2",
    task="units",
    rows=80_000,
    epochs=3,
    batch_size=256,
    accumulation=1,
    learning_rate=1e-3,
    rank=32,
    alpha=32.0,
    dropout=0.0,
    gradient_checkpointing=False,
    max_length=160,
    eval_rows=500,
    logging_steps=50,
    output_dir="runs/sft_units",
)


def main() -> None:
    """Train, evaluate before and after, print the table."""
    # Without a card the real model would take a day: use a tiny one on an easier task.
    usual = SETTINGS if torch.cuda.is_available() else settled(Sft(output_dir=SETTINGS.output_dir))
    config = tyro.cli(Sft, default=usual)
    start = time.monotonic()
    result = train(config)
    seconds = time.monotonic() - start
    record = json.loads((result.directory / RESULT).read_text(encoding="utf-8"))
    name = torch.cuda.get_device_name() if torch.cuda.is_available() and config.device != "cpu" else platform.machine()
    print(f"\n{config.model}, {config.rows:,} questions, {result.steps:,} steps of {config.batch_size}, on {name};")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}; {seconds:.0f} s in all\n")
    print("| | accuracy | answer rate | loss of the right answer | questions |\n|---|---|---|---|---|")
    for row, found in (("base", record["base"]), ("tuned", record["scores"])):
        if found is not None:
            print(
                f"| {row} | {found['accuracy']:.3f} | {found['answer_rate']:.3f} | {found['loss']:.3f} "
                f"| {found['questions']:,} |"
            )


if __name__ == "__main__":
    main()
