"""Cost of the integrations with other people's trainers on the CPU, on models of about 30 million parameters.

    python benchmarks/trainer_overhead.py --framework transformers      # ``callbacks=[StayFinite()]``
    python benchmarks/trainer_overhead.py --steps 205 --json trainer_overhead.json

For each framework three trainings run on the same model and batches: plain, guarded, and plain again. They take turns
after every step, each in its own thread while the others wait, so that other load on the machine affects all alike. A
ratio compares a training with the plain one over the same stretch of steps; shown are the median and quartiles of the
ratios. ``plain again`` is noise. The guarded time includes everything: measuring, run directory, samples and snapshots.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from stayfinite import __version__

PROMISE = 1.03
WARMUP = 5
WORDS, WIDTH, DEPTH, LENGTH = 8192, 512, 6, 64
LANES = ("plain", "guarded", "plain again")
SILENT = Console(quiet=True)


class Lane:
    """One of the trainings; every step that it takes is timed, while the other lanes wait."""

    def __init__(self, number: int, baton: Baton, clock: Callable[[], float], folder: Path) -> None:
        self.name, self.guarded, self.folder = LANES[number], LANES[number] == "guarded", folder
        self.seconds: list[float] = []
        self._number, self._baton, self._clock = number, baton, clock
        self._begun = 0.0

    def begin(self) -> None:
        """Start the first turn; setup is not part of a step."""
        self._begun = self._clock()

    def end(self) -> None:
        """End a turn and wait for the next one."""
        self.seconds.append(self._clock() - self._begun)
        self._baton.hand_on()
        self._baton.wait(self._number)
        self.begin()

    def run(self, train: Callable[[Lane], None]) -> None:
        """All steps, from the first turn to the last."""
        self._baton.wait(self._number)
        try:
            train(self)
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # the other lanes would wait forever
        self._baton.hand_on()


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


def race(train: Callable[[Lane], None], clock: Callable[[], float] = time.perf_counter) -> list[Lane]:
    """All lanes, after their last steps."""
    baton = Baton()
    with tempfile.TemporaryDirectory() as folder:
        lanes = [Lane(number, baton, clock, Path(folder, name)) for number, name in enumerate(LANES)]
        threads = [threading.Thread(target=lane.run, args=(train,), daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return lanes


def told(lanes: Sequence[Lane], stretch: int) -> dict[str, Any]:
    """Print a line for each lane, with the ratios to the first over each stretch of steps after the warm-up."""
    found: dict[str, Any] = {}
    for lane in lanes:
        ratios = [
            sum(lane.seconds[at : at + stretch]) / sum(lanes[0].seconds[at : at + stretch])
            for at in range(WARMUP, len(lane.seconds) - stretch + 1, stretch)
        ]
        low, middle, high = statistics.quantiles(ratios * 2 if len(ratios) == 1 else ratios, n=4, method="inclusive")
        step = 1000 * statistics.median(lane.seconds[WARMUP:])
        promise = f"  (promised: at most {PROMISE})" if lane.guarded else ""
        print(f"  {lane.name:12} {step:8.1f} ms a step   {middle:.3f}x  [{low:.3f}, {high:.3f}]{promise}", flush=True)
        found[lane.name] = {"step_ms": step, "ratios": ratios, "median": middle}
    return found


class Language(nn.Module):
    """A causal transformer of torch's own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, DEPTH, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """The loss of predicting each word from those before it."""
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH - 1)
        found = self.head(self.blocks(self.embed(words[:, :-1]), mask=mask, is_causal=True))
        return F.cross_entropy(found.flatten(0, 1), words[:, 1:].flatten())


def batches(rows: int, steps: int) -> list[Tensor]:
    """The same random sentences for every lane."""
    made = torch.Generator().manual_seed(1)
    few = [torch.randint(0, WORDS, (rows, LENGTH), generator=made) for _ in range(8)]
    return [few[step % len(few)] for step in range(steps)]


def clock_of(lane: Lane) -> Any:
    """A callback of transformers that times a lane's steps. Listed after the guard, so that its work is included."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            lane.begin()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            lane.end()

    return Clock()


def with_transformers(lane: Lane, data: list[Tensor]) -> None:
    """A Trainer on a T5."""
    from transformers import T5Config, T5ForConditionalGeneration, Trainer, TrainingArguments

    from stayfinite.integrations.transformers import StayFinite

    shape: Any = T5Config
    config = shape(
        vocab_size=WORDS, d_model=WIDTH, d_kv=64, d_ff=1536, num_layers=4, num_decoder_layers=4, num_heads=8,
        decoder_start_token_id=0,
    )  # fmt: skip
    args = TrainingArguments(
        output_dir=str(lane.folder), use_cpu=True, max_steps=len(data), per_device_train_batch_size=len(data[0]),
        learning_rate=1e-4, save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=50,
        dataloader_pin_memory=False,
    )  # fmt: skip
    rows: Any = [{"input_ids": words, "labels": words.flip(0)} for batch in data for words in batch]
    guards = [StayFinite(console=SILENT)] if lane.guarded else []
    model = T5ForConditionalGeneration(config)
    Trainer(model, args, train_dataset=rows, callbacks=[*guards, clock_of(lane)]).train()


def with_lightning(lane: Lane, data: list[Tensor]) -> None:
    """A Trainer with clipping."""
    import lightning.pytorch as pl

    from stayfinite.integrations.lightning import StayFinite

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.language = Language()

        def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:  # noqa: ARG002
            loss: Tensor = self.language(batch)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), 1e-4)

    class Clock(pl.Callback):
        def on_train_start(self, *_: Any) -> None:
            lane.begin()

        def on_train_batch_end(self, *_: Any) -> None:
            lane.end()

    guards: list[Any] = [StayFinite(run_dir=lane.folder, console=SILENT)] if lane.guarded else []
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False, gradient_clip_val=1.0,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[*guards, Clock()],
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(data, batch_size=None))  # type: ignore[arg-type]


def with_fabric(lane: Lane, data: list[Tensor]) -> None:
    """A Fabric loop."""
    from lightning.fabric import Fabric

    from stayfinite.integrations.lightning import fabric_guard

    fabric = Fabric(accelerator="cpu", devices=1)
    plain = Language()
    model, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), 1e-4))
    guard = fabric_guard(fabric, model, optimizer, run_dir=lane.folder, console=SILENT) if lane.guarded else None
    lane.begin()
    for batch in data:
        loss = model(batch)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        lane.end()
    if guard is not None:
        guard.close()


def with_accelerate(lane: Lane, data: list[Tensor]) -> None:
    """An accelerate loop."""
    from accelerate import Accelerator

    from stayfinite.integrations.accelerate import accelerate_guard

    accelerator = Accelerator(cpu=True)
    plain = Language()
    model, optimizer = accelerator.prepare(plain, torch.optim.AdamW(plain.parameters(), 1e-4))
    guard = (
        accelerate_guard(accelerator, model, optimizer, run_dir=lane.folder, console=SILENT) if lane.guarded else None
    )
    lane.begin()
    for batch in data:
        loss = model(batch)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        lane.end()
    if guard is not None:
        guard.close()


WAYS: dict[str, Callable[[Lane, list[Tensor]], None]] = {
    "transformers": with_transformers,
    "lightning": with_lightning,
    "fabric": with_fabric,
    "accelerate": with_accelerate,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=[*WAYS, "all"], default="all")
    parser.add_argument("--steps", type=int, default=155, help="of each lane; the first 5 are warm-up")
    parser.add_argument("--stretch", type=int, default=50, help="steps that a ratio is taken over; 50 hold one sample")
    parser.add_argument("--rows", type=int, default=4, help=f"of a batch, {LENGTH} words each")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    chosen = parser.parse_args()
    if chosen.steps < WARMUP + chosen.stretch:
        parser.error(f"--steps {chosen.steps} leaves no stretch of {chosen.stretch} after {WARMUP} of warm-up")
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    found: dict[str, Any] = {}
    for name in WAYS if chosen.framework == "all" else [chosen.framework]:

        def train(lane: Lane, name: str = name) -> None:
            torch.manual_seed(0)
            WAYS[name](lane, batches(chosen.rows, chosen.steps))

        model = "a T5 of 29M parameters" if name == "transformers" else "a transformer of 27M parameters"
        print(f"{name}: {model}, {chosen.rows} x {LENGTH} words a step, fp32 on the CPU")
        found[name] = told(race(train), chosen.stretch)
    if chosen.json is not None:
        about = {"version": __version__, "torch": torch.__version__, "platform": platform.platform()}
        numbers = {"steps": chosen.steps, "stretch": chosen.stretch, "frameworks": found}
        chosen.json.write_text(json.dumps(about | numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
