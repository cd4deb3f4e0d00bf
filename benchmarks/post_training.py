"""Healthy post-training with trl: false alarms and cost of the guard.

    python -m benchmarks.post_training healthy --kind grpo
    python -m benchmarks.post_training healthy --kind dpo
    python -m benchmarks.post_training cost

``healthy`` trains a small model from scratch with several seeds at a working learning rate, and counts what the guard
refused, limited or reported. ``cost`` works like ``trainer_overhead.py``: plain, guarded and plain-again trainings take
turns after every step; a ratio compares CPU time over the same steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from benchmarks.trainer_overhead import SILENT, Lane, clock_of, race, told
from stayfinite.integrations.transformers import StayFinite

# These packages have no type annotations.
datasets: Any = import_module("datasets")
tokenizers: Any = import_module("tokenizers")
transformers: Any = import_module("transformers")
trl: Any = import_module("trl")

WORDS = 64
COMMON: dict[str, Any] = {
    "use_cpu": True, "logging_strategy": "no", "report_to": [], "save_strategy": "no", "disable_tqdm": True,
    "bf16": False, "dataloader_pin_memory": False, "gradient_checkpointing": False,
}  # fmt: skip


def tokenizer() -> Any:
    """Words w0 to w63; the first four are padding, begin, end and unknown."""
    plain = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w3"))
    plain.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="w0", bos_token="w1", eos_token="w2", unk_token="w3"
    )


def model(folder: Path, width: int, layers: int) -> Any:
    """A small decoder, also saved to disk, where trl loads the reference."""
    transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64, pad_token_id=0, bos_token_id=1,
            eos_token_id=2,
        )
    ).save_pretrained(folder)  # fmt: skip
    return transformers.LlamaForCausalLM.from_pretrained(folder)


def words(made: torch.Generator, count: int, *, even: bool | None = None) -> str:
    """Random words; ``even`` makes them mostly even or mostly odd."""
    ids = torch.randint(4, WORDS, (count,), generator=made)
    if even is not None:
        kept = torch.rand(count, generator=made) < 0.8
        ids = torch.where(kept, ids // 2 * 2 + (not even), ids).clamp(max=WORDS - 1)
    return " ".join(f"w{i}" for i in ids.tolist())


def even_share(completions: list[str], **_: Any) -> list[float | None]:
    """A verifiable reward: the share of even words."""
    told = [[int(word[1:]) for word in text.split()] for text in completions]
    return [sum(number % 2 == 0 for number in numbers) / max(1, len(numbers)) for numbers in told]


def trainer(kind: str, folder: Path, seed: int, steps: int, callbacks: list[Any], **larger: Any) -> Any:
    """A healthy training."""
    transformers.set_seed(seed)
    made = torch.Generator().manual_seed(seed)
    common = COMMON | {"output_dir": str(folder), "max_steps": steps, "seed": seed}
    policy = model(folder / "base", larger.get("width", 32), larger.get("layers", 2))
    if kind == "dpo":
        rows = [
            {"prompt": words(made, 6)}
            | {name: " " + words(made, 6, even=name == "chosen") for name in ("chosen", "rejected")}
            for _ in range(256)
        ]
        args = trl.DPOConfig(per_device_train_batch_size=8, learning_rate=3e-4, beta=0.1, **common)
        return trl.DPOTrainer(
            model=policy, ref_model=transformers.LlamaForCausalLM.from_pretrained(folder / "base"), args=args,
            train_dataset=datasets.Dataset.from_list(rows), processing_class=tokenizer(), callbacks=callbacks,
        )  # fmt: skip
    length = larger.get("length", 8)
    sampled = trl.GRPOConfig(
        per_device_train_batch_size=16, num_generations=4, max_completion_length=length, learning_rate=1e-3, beta=0.02,
        num_iterations=2, generation_kwargs={"min_new_tokens": length} if larger else None, **common,
    )  # fmt: skip
    return trl.GRPOTrainer(
        model=policy, args=sampled, reward_funcs=[even_share], processing_class=tokenizer(), callbacks=callbacks,
        train_dataset=datasets.Dataset.from_list([{"prompt": words(made, 6)} for _ in range(256)]),
    )  # fmt: skip


def healthy(kind: str, seeds: int, steps: int) -> None:
    """Print a line per seed."""
    print(f"{kind}, {steps} steps a seed\nseed  refused  bounded  signs  findings  first to last")
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            trainer(kind, folder, seed, steps, [StayFinite(console=SILENT)]).train()
            run = folder / "stayfinite"
            lines = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
            events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
        counts = {name: sum(line["decision"] == name for line in lines) for name in ("veto", "bound")}
        told = {name: [event["cause"] for event in events if event["event"] == name] for name in ("sign", "finding")}
        signal = "reward" if kind == "grpo" else "margin"
        course = [line["signals"][signal] for line in lines if signal in line["signals"]]
        said = [", ".join(told[name]) or "0" for name in ("sign", "finding")]
        first, last = (statistics.mean(part) for part in (course[:10], course[-10:]))
        learned = f"{signal} {first:.2f} to {last:.2f}"
        print(f"{seed:4}  {counts['veto']:7}  {counts['bound']:7}  {said[0]:>5}  {said[1]:>8}  {learned}", flush=True)


def cost(steps: int, stretch: int) -> None:
    """Print the ratios of CPU time: of the whole process, while one lane runs."""

    def train(lane: Lane) -> None:
        guards = [StayFinite(console=SILENT)] if lane.guarded else []
        trainer("grpo", lane.folder, 0, steps, [*guards, clock_of(lane)], width=256, layers=4, length=16).train()

    print("GRPO, 16 answers of 16 words a batch, CPU time")
    told(race(train, time.process_time), stretch)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="healthy", choices=("healthy", "cost"))
    parser.add_argument("--kind", choices=("grpo", "dpo"), default="grpo")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--stretch", type=int, default=6)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "healthy":
        healthy(given.kind, given.seeds, given.steps)
    else:
        cost(given.steps, given.stretch)


if __name__ == "__main__":
    main()
