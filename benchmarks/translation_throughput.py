"""Tokens per second of ``stayfinite train translate`` against transformers' Seq2SeqTrainer: same model, data,
precision.

    python benchmarks/translation_throughput.py                       # on the CPU, a small model
    python benchmarks/translation_throughput.py --device cuda --size medium --batch-size 64 --steps 150

Three lanes train the same model on the same pairs with the same batch size, optimizer, clipping and precision: the
recipe with its guard and length buckets, the Seq2SeqTrainer with defaults, and the Seq2SeqTrainer with grouping by
length; on CUDA a fourth, the recipe with ``--graphs``. They alternate several times. Tokens are counted without
padding, from the first step after the warm-up to the last; with CUDA graphs the warm-up is an epoch, in which they are
recorded. Lengths are mixed, as in a real corpus: log-normal, up to the limit.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from transformers import (
    PrinterCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5ForConditionalGeneration,
    TrainerCallback,
    set_seed,
)

from stayfinite import __version__
from stayfinite.core.policy import Policy
from stayfinite.guard.guard import Guard
from stayfinite.recipes.models import quiet_transformers
from stayfinite.recipes.running.loop import grouped
from stayfinite.recipes.running.optimizing import optimizer_for, schedule_for
from stayfinite.recipes.running.recording import RecordedLoss
from stayfinite.recipes.seq2seq.batching import MULTIPLE, Example, Padding, labels_in, loading_of, tokens_in
from stayfinite.recipes.seq2seq.models import SIZES, build_t5, loss_of
from stayfinite.recipes.seq2seq.tokenizers import load_tokenizer

LANES = ("stayfinite", "Seq2SeqTrainer", "Seq2SeqTrainer, by length")
GRAPHED = "stayfinite, CUDA graphs"
LEARNING_RATE = 1e-4


def mixed_lengths(count: int, longest: int, vocabulary: int, seed: int = 0) -> list[Example]:
    """Random rows with realistic lengths: many short, few long, both sides similar."""
    chance = random.Random(seed)

    def row(length: float) -> list[int]:
        kept = min(longest, max(4, round(length)))
        return [*(chance.randrange(3, vocabulary) for _ in range(kept - 1)), 1]

    rows = []
    for _ in range(count):
        source = math.exp(chance.gauss(math.log(longest / 6), 0.8))
        rows.append(Example(row(source), row(source * math.exp(chance.gauss(0.0, 0.25)))))
    return rows


class Meter:
    """Counts tokens and seconds of the steps after the warm-up."""

    def __init__(self, device: torch.device, warmup: int) -> None:
        self._device, self._warmup = device, warmup
        self._began = 0.0
        self._tokens = 0
        self.padded = 0
        self.exact = 0
        self.steps = 0
        self.rate = 0.0

    def see(self, batch: dict[str, Tensor]) -> None:
        """Count a batch."""
        found = int(tokens_in(batch))
        self._tokens += found
        self.exact += found
        self.padded += batch["input_ids"].numel() + batch["labels"].numel()

    def step(self) -> None:
        """Count a step."""
        self.steps += 1
        if self.steps == self._warmup:
            self._wait()
            self._began, self._tokens = time.perf_counter(), 0

    def end(self) -> None:
        """Stop the clock."""
        self._wait()
        self.rate = self._tokens / (time.perf_counter() - self._began)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()


def ours(
    model: Any, rows: list[Example], chosen: argparse.Namespace, device: torch.device, folder: Path, *, graphs: bool
) -> Meter:
    """The recipe's own loop: loader, loss, guard, run directory."""
    model = model.to(device).train()
    loader, sampler, _ = loading_of(rows, 0, device, batch_size=chosen.batch_size, few_forms=graphs)
    warmup = len(sampler) // chosen.accumulation if graphs else chosen.warmup
    steps = chosen.steps + warmup - chosen.warmup
    meter = Meter(device, warmup)
    optimizer = optimizer_for(model, lr=LEARNING_RATE, weight_decay=0.01, device=device)
    scheduler = schedule_for(optimizer, "linear", warmup=steps // 10, steps=steps)
    policy = Policy(precision=chosen.precision)
    forward = RecordedLoss(model, loss_of(model, 0.0), print, wanted=graphs)
    with Guard(
        model,
        optimizer,
        scheduler,
        max_norm=1.0,
        policy=policy,
        run_dir=folder,
        forward=forward,
        console=Console(quiet=True),
    ) as guard:
        while meter.steps < steps:
            for group in grouped(guard.batches(loader), chosen.accumulation):
                labels = [int(labels_in(batch)) for batch in group]
                for batch, share in zip(group, labels, strict=True):
                    meter.see(batch)
                    with forward.replaying():
                        loss = guard.forward(batch)
                    guard.backward(loss * (share / sum(labels)))
                guard.step()
                meter.step()
                if meter.steps == steps:
                    break
        meter.end()
    return meter


def theirs(
    model: Any, rows: list[Example], chosen: argparse.Namespace, device: torch.device, folder: Path, *, by_length: bool
) -> Meter:
    """transformers' Seq2SeqTrainer on the same rows and padding."""
    meter = Meter(device, chosen.warmup)
    settings: dict[str, Any] = {}
    if by_length:  # the setting was renamed
        renamed = "train_sampling_strategy" in Seq2SeqTrainingArguments.__dataclass_fields__
        settings = {"train_sampling_strategy": "group_by_length"} if renamed else {"group_by_length": True}
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(folder), max_steps=chosen.steps, per_device_train_batch_size=chosen.batch_size,
        gradient_accumulation_steps=chosen.accumulation, learning_rate=LEARNING_RATE, weight_decay=0.01,
        max_grad_norm=1.0, optim="adamw_torch_fused", lr_scheduler_type="linear", bf16=chosen.precision == "bf16",
        use_cpu=device.type == "cpu", save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=50,
        dataloader_pin_memory=device.type == "cuda", remove_unused_columns=False, **settings,
    )  # fmt: skip
    pad = Padding(pad=0, multiple=MULTIPLE if device.type == "cuda" else 1)

    def collate(items: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        batch = pad([Example(item["input_ids"], item["labels"]) for item in items])
        meter.see(batch)
        return batch

    class Steps(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            meter.step()

    data = [{"input_ids": row.source, "labels": row.target} for row in rows]
    kind: Any = Seq2SeqTrainer
    trainer = kind(model=model, args=arguments, train_dataset=data, data_collator=collate, callbacks=[Steps()])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    meter.end()
    return meter


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--size", choices=list(SIZES), default="tiny")
    parser.add_argument("--precision", choices=["fp32", "bf16"], help="fp32 on the CPU, bf16 on CUDA by default")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--longest", type=int, default=128, help="tokens of a side")
    parser.add_argument("--steps", type=int, default=30, help="of each turn of each lane")
    parser.add_argument("--warmup", type=int, default=5, help="steps that do not count")
    parser.add_argument("--repeats", type=int, default=3, help="turns of each lane")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    chosen = parser.parse_args()
    chosen.precision = chosen.precision or ("bf16" if chosen.device == "cuda" else "fp32")
    device = torch.device(chosen.device)
    tokenizer = load_tokenizer("bytes")
    rows = mixed_lengths(4000, chosen.longest, len(tokenizer))
    lanes: dict[str, Callable[[Any, Path], Meter]] = {
        LANES[0]: lambda model, folder: ours(model, rows, chosen, device, folder, graphs=False),
        LANES[1]: lambda model, folder: theirs(model, rows, chosen, device, folder, by_length=False),
        LANES[2]: lambda model, folder: theirs(model, rows, chosen, device, folder, by_length=True),
    }
    if device.type == "cuda":
        lanes[GRAPHED] = lambda model, folder: ours(model, rows, chosen, device, folder, graphs=True)
    rates: dict[str, list[float]] = {name: [] for name in lanes}
    filled: dict[str, float] = {}
    parameters = 0
    for turn in range(chosen.repeats):
        for name, lane in lanes.items():
            set_seed(turn)
            model: T5ForConditionalGeneration = build_t5(chosen.size, tokenizer)
            parameters = model.num_parameters()
            with quiet_transformers(), tempfile.TemporaryDirectory() as folder:
                meter = lane(model, Path(folder))
            rates[name].append(meter.rate)
            filled[name] = meter.exact / meter.padded
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(
        f"T5 of {parameters / 1e6:.1f}M parameters, {chosen.batch_size} x {chosen.accumulation} pairs a step, "
        f"lengths up to {chosen.longest}, {chosen.precision} on {where}; {chosen.repeats} turns of {chosen.steps} steps"
    )
    base = rates[LANES[1]]
    print("| | tokens/s without padding | of the batch is no padding | against Seq2SeqTrainer |\n|---|---|---|---|")
    found: dict[str, Any] = {}
    for name in lanes:
        ratio = statistics.median(one / other for one, other in zip(rates[name], base, strict=True))
        middle = statistics.median(rates[name])
        found[name] = {"rates": rates[name], "filled": filled[name], "ratio": ratio}
        span = f"{middle:,.0f} ({min(rates[name]):,.0f} to {max(rates[name]):,.0f})"
        print(f"| {name} | {span} | {filled[name]:.0%} | {ratio:.2f}x |")
    print(f"promise: at least that of Seq2SeqTrainer; {'kept' if found[LANES[0]]['ratio'] >= 1 else 'not kept'}")
    if chosen.json:
        about = {"stayfinite": __version__, "torch": torch.__version__, "platform": platform.platform(), "on": where}
        chosen.json.write_text(json.dumps(about | {"parameters": parameters, "lanes": found}, indent=1))


if __name__ == "__main__":
    main()
