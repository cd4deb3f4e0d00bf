"""The three ways to train, side by side: same model, optimizer, schedule and batches; only the differences are here."""

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from torch.optim.lr_scheduler import LambdaLR

from stayfinite.core.policy import Policy
from stayfinite.demo.model import TinyT5
from stayfinite.demo.result import Overflow, find_overflow
from stayfinite.demo.task import Batch
from stayfinite.guard.guard import Guard
from stayfinite.report.terminal import Console

LEARNING_RATE, WEIGHT_DECAY = 5e-3, 0.1
WARMUP = 20
MAX_NORM = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """One step of one lane."""

    lane: str
    step: int
    """Counted from 1."""
    loss: float
    """Raw loss, finite or not."""
    grad_norm: float
    shown: str
    """The loss as in this lane's log."""
    refused: int
    """Steps refused so far."""
    line: str | None = None
    """Log line of this step, if there is one worth showing."""


class Lane(ABC):
    """One training."""

    name: str
    what: str

    def __init__(self, model: TinyT5, steps: int) -> None:
        self.model = model
        self.step = 0
        self.refused: list[int] = []
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY
        )
        warmup = min(WARMUP, 1 + steps // 4)
        self.scheduler = LambdaLR(self.optimizer, lambda s: min((s + 1) / warmup, (steps - s) / (steps - warmup + 1)))

    def train(self, batch: Batch) -> Progress:
        self.step += 1
        return self.take(batch)

    @abstractmethod
    def take(self, batch: Batch) -> Progress:
        """One step of this lane."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left."""

    def progress(self, loss: float, grad_norm: float, shown: str, line: str | None = None) -> Progress:
        """Progress of this step."""
        return Progress(
            lane=self.name, step=self.step, loss=loss, grad_norm=grad_norm, shown=shown, refused=len(self.refused),
            line=line,
        )  # fmt: skip

    def loss_of(self, batch: Batch) -> Tensor:
        """Forward pass in fp32."""
        loss: Tensor = self.model(batch["source"], batch["target"])
        return loss

    def loss_in_fp16(self, batch: Batch) -> Tensor:
        """Forward pass under fp16 autocast; weights stay fp32."""
        with torch.autocast("cpu", dtype=torch.float16):
            return self.loss_of(batch)


class UnguardedLane(Lane):
    """A training that takes every step, and writes a log."""

    def __init__(self, model: TinyT5, steps: int, log: Path) -> None:
        super().__init__(model, steps)
        self._file = log.open("w", encoding="utf-8")

    def close(self) -> None:
        self._file.close()

    def follow(self, loss: Tensor) -> tuple[float, float, float]:
        """Backward, clip, step, as in every tutorial. Returns loss, gradient norm and learning rate."""
        loss.backward()
        grad_norm = clip_grad_norm_(self.model.parameters(), MAX_NORM)
        lr: float = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.item(), grad_norm.item(), lr


class Fp32Lane(UnguardedLane):
    """Full precision, unguarded. Writes a line per step."""

    name, what = "fp32", "full precision"

    def take(self, batch: Batch) -> Progress:
        loss, grad_norm, lr = self.follow(self.loss_of(batch))
        self._file.write(json.dumps({"step": self.step, "loss": loss, "grad_norm": grad_norm, "lr": lr}) + "\n")
        return self.progress(loss, grad_norm, f"{loss:.4f}")


SETTINGS = "model: t5, tiny, random weights\nfp16: True\n"
"""Head of the wild log, as training programs print it: without it fp16 cannot be told from a high rate."""


class WildLane(UnguardedLane):
    """fp16 as in bug reports: autocast, no loss scaler, every step taken, and a log that hides NaN."""

    name, what = "fp16", "as found in the wild"

    def __init__(self, model: TinyT5, steps: int, log: Path, steps_an_epoch: float) -> None:
        super().__init__(model, steps, log)
        self._file.write(SETTINGS)
        self.every = max(1, min(10, steps // 4))
        """Steps between log lines."""
        self._log = TrainerLog(every=self.every, steps_an_epoch=steps_an_epoch)

    def take(self, batch: Batch) -> Progress:
        loss, grad_norm, lr = self.follow(self.loss_in_fp16(batch))
        line = self._log.add(loss, grad_norm, lr)
        if line is not None:
            self._file.write(line + "\n")
        return self.progress(loss, grad_norm, str(self._log.last_loss), line)


class GuardedLane(Lane):
    """The fp16 of `WildLane` with a guard, which writes `run_dir`. The first refusal is examined."""

    name, what = "guarded", "the same fp16"

    def __init__(self, model: TinyT5, steps: int, run_dir: Path, console: Console) -> None:
        super().__init__(model, steps)
        self.overflow: Overflow | None = None
        self._accepted = ""
        # About one batch in ten overflows by design, so a longer demo must not use up its vetoes.
        policy = Policy(max_vetoes=None, sample_every=10)
        self._guard = Guard(
            model, self.optimizer, scheduler=self.scheduler, max_norm=MAX_NORM, policy=policy, run_dir=run_dir,
            forward=self.loss_in_fp16, console=console,
        )  # fmt: skip

    def take(self, batch: Batch) -> Progress:
        loss = self._guard.forward(batch)
        self._guard.step(loss)
        # Wait for the decision: the weights of a refused step are needed as they are now.
        self._guard.flush()
        decision = self._guard.decisions[-1]
        if decision.refused:
            self.refused.append(self.step)
            if self.overflow is None:
                self.overflow = find_overflow(self.model, batch, self.step)
        else:
            self._accepted = f"{decision.signals.loss:.4f}"
        return self.progress(decision.signals.loss, decision.signals.grad_norm, self._accepted)

    def close(self) -> None:
        self._guard.close()


class TrainerLog:
    """Averages the losses of `every` steps into one line, as the Trainer does, with its `logging_nan_inf_filter`.

    A non-finite loss is replaced by the mean since the last line. Right after a line that mean is 0, so from the first
    NaN on every line says 0.0.
    """

    def __init__(self, every: int, steps_an_epoch: float) -> None:
        self.every = every
        self.steps_an_epoch = steps_an_epoch
        self.last_loss = math.nan
        """The loss of the last line."""
        self._sum = 0.0
        self._step = 0

    def add(self, loss: float, grad_norm: float, lr: float) -> str | None:
        """Add one step; return the line if one is due."""
        since = self._step % self.every
        self._sum += loss if math.isfinite(loss) else self._sum / (1 + since)
        self._step += 1
        if self._step % self.every:
            return None
        self.last_loss = round(self._sum / self.every, 4)
        self._sum = 0.0
        epoch = round(self._step / self.steps_an_epoch, 2)
        return str({"loss": self.last_loss, "grad_norm": grad_norm, "learning_rate": lr, "epoch": epoch})


def race(lanes: Sequence[Lane], batches: Sequence[Batch], seconds: dict[str, float]) -> Iterator[Progress]:
    """Train every lane on every batch and yield each step when it is done.

    Lanes share nothing, so their results are independent. An error in one ends all and is raised here; leaving the loop
    early ends them too. `seconds` receives the CPU time of each lane.
    """
    news: SimpleQueue[Progress | BaseException | None] = SimpleQueue()
    stop = Event()
    threads = [Thread(target=_run, args=(lane, batches, news, stop, seconds), name=lane.name) for lane in lanes]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            each = news.get()
            if isinstance(each, BaseException):
                raise each
            if each is None:
                running -= 1
            else:
                yield each
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _run(
    lane: Lane,
    batches: Sequence[Batch],
    news: "SimpleQueue[Progress | BaseException | None]",
    stop: Event,
    seconds: dict[str, float],
) -> None:
    try:
        with closing(lane):
            for batch in batches:
                if stop.is_set():
                    break
                news.put(lane.train(batch))
            seconds[lane.name] = time.thread_time()
    except BaseException as error:
        news.put(error)
    finally:
        news.put(None)
