"""Cost of ``callbacks=[StayFinite()]`` in transformers' Trainer, on a model of about 30 million parameters.

    python benchmarks/trainer_overhead.py
    python benchmarks/trainer_overhead.py --steps 200 --json trainer_overhead.json

Three Trainers train the same model on the same rows: plain, guarded, and plain again. They take turns after every step,
each in its own thread while the others wait, so that other load on the machine affects all alike. A ratio compares a
Trainer with the plain one over the same stretch of steps; shown are the median and quartiles of the ratios. ``plain
again`` is noise. The guarded time includes everything: measuring, run directory, samples and snapshots.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import (
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from stayfinite import __version__
from stayfinite.integrations.transformers import StayFinite

PROMISE = 1.03
WARMUP = 5
SHAPE: dict[str, Any] = {
    "vocab_size": 8192, "d_model": 512, "d_kv": 64, "d_ff": 1536, "num_layers": 4, "num_decoder_layers": 4,
    "num_heads": 8, "decoder_start_token_id": 0,
}  # fmt: skip
LANES = ("plain", "guarded", "plain again")


class Rows(Dataset[dict[str, Tensor]]):
    """Random sentences."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        made = torch.Generator().manual_seed(index)
        words = torch.randint(2, SHAPE["vocab_size"], (64,), generator=made)
        return {"input_ids": words, "labels": words.flip(0)}


class Baton:
    """Lets one lane run at a time, each for one step."""

    def __init__(self) -> None:
        self._turn = 0
        self._changed = threading.Condition()

    def wait(self, lane: int) -> None:
        """Wait for this lane's turn."""
        with self._changed:
            self._changed.wait_for(lambda: self._turn == lane)

    def hand_on(self) -> None:
        """Pass the turn to the next lane."""
        with self._changed:
            self._turn = (self._turn + 1) % len(LANES)
            self._changed.notify_all()


class Turns(TrainerCallback):
    """Times the steps of one lane. Listed after StayFinite, so that its work is included."""

    def __init__(self, lane: int, baton: Baton, clock: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: list[float] = []
        self._lane, self._baton, self._clock = lane, baton, clock
        self._begun = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Start the first turn; setup is not part of a step."""
        self._begun = self._clock()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """End a turn and wait for the next one."""
        self.seconds.append(self._clock() - self._begun)
        self._baton.hand_on()
        self._baton.wait(self._lane)
        self._begun = self._clock()


def run_lane(lane: int, baton: Baton, turns: Turns, steps: int, rows: int, folder: Path) -> None:
    """Build and train one lane, from its first turn to its last."""
    baton.wait(lane)
    set_seed(0)
    model = T5ForConditionalGeneration(T5Config(**SHAPE))
    args = TrainingArguments(
        output_dir=str(folder / f"lane{lane}"), use_cpu=True, max_steps=steps, per_device_train_batch_size=rows,
        learning_rate=1e-4, save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=50,
        dataloader_pin_memory=False,
    )  # fmt: skip
    guards = [StayFinite(console=_Silent())] if LANES[lane] == "guarded" else []
    trainer = Trainer(model, args, train_dataset=Rows(), callbacks=[*guards, turns])
    trainer.train()
    baton.hand_on()


class _Silent:
    def print(self, line: Any) -> None:
        """Say nothing."""


def ratios(seconds: list[float], base: list[float], stretch: int) -> list[float]:
    """Ratio of each stretch of steps after the warm-up."""
    begins = range(WARMUP, len(base) - stretch + 1, stretch)
    return [sum(seconds[at : at + stretch]) / sum(base[at : at + stretch]) for at in begins]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=155, help="of each lane; the first 5 are warm-up")
    parser.add_argument("--stretch", type=int, default=50, help="steps that a ratio is taken over; 50 hold one sample")
    parser.add_argument("--rows", type=int, default=4, help="of a batch, 64 words each")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    chosen = parser.parse_args()
    baton = Baton()
    turns = [Turns(lane, baton) for lane in range(len(LANES))]
    with tempfile.TemporaryDirectory() as folder:
        threads = [
            threading.Thread(
                target=run_lane, args=(lane, baton, turns[lane], chosen.steps, chosen.rows, Path(folder)), daemon=True
            )
            for lane in range(len(LANES))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    parameters = T5ForConditionalGeneration(T5Config(**SHAPE)).num_parameters()
    base = turns[0].seconds
    print(f"Trainer on a T5 of {parameters / 1e6:.0f}M parameters, {chosen.rows} x 64 words a step, fp32 on the CPU")
    found: dict[str, Any] = {}
    for name, lane in zip(LANES, turns, strict=True):
        each = ratios(lane.seconds, base, chosen.stretch)
        low, middle, high = statistics.quantiles(each, n=4) if len(each) > 1 else (each[0],) * 3
        step = statistics.median(lane.seconds[WARMUP:])
        found[name] = {"step_ms": 1000 * step, "ratios": each, "median": statistics.median(each)}
        print(f"  {name:12} {1000 * step:8.1f} ms a step   {middle:.3f}x  ({low:.3f} to {high:.3f})")
    kept = found["guarded"]["median"] <= PROMISE
    print(f"promise: at most {PROMISE}x; {'kept' if kept else 'not kept'}")
    if chosen.json:
        about = {"stayfinite": __version__, "torch": torch.__version__, "platform": platform.platform()}
        chosen.json.write_text(json.dumps(about | {"parameters": parameters, "lanes": found}, indent=1))


if __name__ == "__main__":
    main()
