"""Cost of the integrations with Lightning's Trainer, Fabric and accelerate, on a model of about 30 million parameters.

    python benchmarks/framework_overhead.py
    python benchmarks/framework_overhead.py --framework lightning --steps 205 --json framework_overhead.json

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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from accelerate import Accelerator
from lightning.fabric import Fabric
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from stayfinite import __version__
from stayfinite.integrations.accelerate import accelerate_guard
from stayfinite.integrations.lightning import StayFinite, fabric_guard

PROMISE = 1.03
WARMUP = 5
WORDS, WIDTH, DEPTH, LENGTH = 8192, 512, 6, 64
LANES = ("plain", "guarded", "plain again")


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


class Turns:
    """Times the steps of one lane."""

    def __init__(self, lane: int, baton: Baton) -> None:
        self.seconds: list[float] = []
        self._lane, self._baton = lane, baton
        self.begun = 0.0

    def end(self) -> None:
        """End a turn and wait for the next one."""
        self.seconds.append(time.perf_counter() - self.begun)
        self._baton.hand_on()
        self._baton.wait(self._lane)
        self.begun = time.perf_counter()


class Silent:
    """A console that says nothing."""

    def print(self, line: Any) -> None:
        """Say nothing."""


def with_lightning(turns: Turns, data: list[Tensor], place: Path | None) -> None:
    """A Trainer with clipping."""

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
            turns.begun = time.perf_counter()

        def on_train_batch_end(self, *_: Any) -> None:
            turns.end()

    guards: list[Any] = [] if place is None else [StayFinite(run_dir=place, console=Silent())]
    trainer = pl.Trainer(
        accelerator="cpu", devices=1, max_epochs=1, logger=False, enable_checkpointing=False, gradient_clip_val=1.0,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[*guards, Clock()],
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(data, batch_size=None))  # type: ignore[arg-type]


def with_fabric(turns: Turns, data: list[Tensor], place: Path | None) -> None:
    """A Fabric loop."""
    fabric = Fabric(accelerator="cpu", devices=1)
    plain = Language()
    model, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), 1e-4))
    guard = None if place is None else fabric_guard(fabric, model, optimizer, run_dir=place, console=Silent())
    turns.begun = time.perf_counter()
    for batch in data:
        loss = model(batch)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        turns.end()
    if guard is not None:
        guard.close()


def with_accelerate(turns: Turns, data: list[Tensor], place: Path | None) -> None:
    """An accelerate loop."""
    accelerator = Accelerator(cpu=True)
    plain = Language()
    model, optimizer = accelerator.prepare(plain, torch.optim.AdamW(plain.parameters(), 1e-4))
    guard = None if place is None else accelerate_guard(accelerator, model, optimizer, run_dir=place, console=Silent())
    turns.begun = time.perf_counter()
    for batch in data:
        loss = model(batch)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        turns.end()
    if guard is not None:
        guard.close()


Way = Callable[[Turns, list[Tensor], Path | None], None]
WAYS: dict[str, Way] = {"lightning": with_lightning, "fabric": with_fabric, "accelerate": with_accelerate}


def race(way: Way, steps: int, rows: int) -> list[list[float]]:
    """Seconds of every step of each lane."""
    baton = Baton()
    turns = [Turns(lane, baton) for lane in range(len(LANES))]

    def run(lane: int, folder: Path) -> None:
        baton.wait(lane)
        torch.manual_seed(0)
        try:
            way(turns[lane], batches(rows, steps), folder if LANES[lane] == "guarded" else None)
        except BaseException:
            traceback.print_exc()
            os._exit(1)  # the other lanes would wait forever
        baton.hand_on()

    with tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=run, args=(lane, Path(folder)), daemon=True) for lane in range(len(LANES))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [each.seconds for each in turns]


def ratios(seconds: list[float], base: list[float], stretch: int) -> list[float]:
    """Ratio of each stretch of steps after the warm-up."""
    begins = range(WARMUP, len(base) - stretch + 1, stretch)
    return [sum(seconds[at : at + stretch]) / sum(base[at : at + stretch]) for at in begins]


def quartiles(values: list[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    return [values[0]] * 3 if len(values) == 1 else statistics.quantiles(values, n=4, method="inclusive")


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
    parameters = sum(p.numel() for p in Language().parameters())
    print(
        f"a transformer of {parameters / 1e6:.0f}M parameters, {chosen.rows} x {LENGTH} words a step, fp32 on the CPU"
    )
    found: dict[str, Any] = {}
    for name in WAYS if chosen.framework == "all" else [chosen.framework]:
        lanes = race(WAYS[name], chosen.steps, chosen.rows)
        base = lanes[0]
        print(f"{name}: {1000 * statistics.median(base[WARMUP:]):.0f} ms a step when plain")
        found[name] = {}
        for lane, seconds in zip(LANES[1:], lanes[1:], strict=True):
            low, middle, high = quartiles(ratios(seconds, base, chosen.stretch))
            promise = f"  (promised: at most {PROMISE})" if lane == "guarded" else ""
            print(f"  {lane:12} {middle:.3f}x  [{low:.3f}, {high:.3f}]{promise}")
            found[name][lane] = {"median": middle, "quartiles": [low, high]}
    if chosen.json is not None:
        about = {"version": __version__, "torch": torch.__version__, "machine": platform.machine()}
        numbers = {"parameters": parameters, "steps": chosen.steps, "stretch": chosen.stretch, "ratios": found}
        chosen.json.write_text(json.dumps(about | numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
