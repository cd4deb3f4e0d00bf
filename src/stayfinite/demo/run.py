"""Run the demo from start to end, and draw it: three live lines while the lanes run, and the table at the end."""

import copy
import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stayfinite.demo.lanes import Fp32Lane, GuardedLane, Lane, Progress, WildLane, race
from stayfinite.demo.model import TinyT5, plant_outlier
from stayfinite.demo.result import DemoResult, LaneResult
from stayfinite.demo.task import BULLET, Batch, Pair, Task, collate, decode, make_task
from stayfinite.guard.telling.showing import shown_runs
from stayfinite.report.page.data import page_data
from stayfinite.report.page.html import write_page

LEVELS = "▁▂▃▄▅▆▇█"
LOWEST, HIGHEST = math.log(0.01), math.log(6.0)
CURVE = 24
"""Width of a loss curve, in characters."""
STYLES = {"fp32": "cyan", "fp16": "red", "guarded": "green"}
"""Colors of the lanes, in drawing order."""


class Screen:
    """The live part. Without a terminal it prints a line per lane at each quarter instead."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._steps = steps

        self._last: dict[str, Progress] = {}
        self._losses: defaultdict[str, list[float]] = defaultdict(list)
        self._line = ""
        self._live = console.is_terminal

    def live(self) -> AbstractContextManager[Any]:
        """Draw within this context, on a terminal."""
        if not self._live:
            return nullcontext()
        return Live(console=self._console, get_renderable=self._picture, refresh_per_second=8)

    def print(self, line: Any) -> None:
        """Print a line above the live part; used as the guard's console."""
        # Full lines are in events.jsonl; here each is one row, so the live part stays visible.
        text = Text(str(line), style="yellow", no_wrap=self._live, overflow="ellipsis" if self._live else None)
        self._console.print(text, soft_wrap=not self._live)

    def show(self, progress: Progress) -> None:
        """Show one step."""
        self._last[progress.lane] = progress
        self._losses[progress.lane].append(progress.loss)
        self._line = progress.line or self._line
        if not self._live and progress.step % max(1, self._steps // 4) == 0:
            self._console.print(
                f"{progress.lane:>8} step {progress.step}/{self._steps}  loss {progress.shown}  "
                f"grad_norm {progress.grad_norm:.3g}  refused {progress.refused}"
            )

    def _picture(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for heading in ("", "loss curve", "step", "logged loss", "grad_norm", "refused"):
            table.add_column(heading, justify="right" if heading not in ("", "loss curve") else "left")
        for name, style in STYLES.items():
            last = self._last.get(name)
            cells = ("", "", "") if last is None else (last.shown, f"{last.grad_norm:.3g}", str(last.refused))
            drawn = Text(curve(self._losses[name], self._steps), style)
            table.add_row(Text(name, style), drawn, f"{len(self._losses[name])}/{self._steps}", *cells)
        return Group(table, Text(f"fp16's log: {self._line}", style="dim", no_wrap=True, overflow="ellipsis"))


def curve(losses: Sequence[float], steps: int) -> str:
    """Loss over the steps as blocks on a log scale; `x` if no loss was finite, blank if none yet."""
    width = min(CURVE, steps)
    drawn = ""
    for place in range(width):
        part = losses[place * steps // width : (place + 1) * steps // width]
        finite = [loss for loss in part if math.isfinite(loss)]
        if finite:
            height = (math.log(max(sum(finite) / len(finite), 1e-9)) - LOWEST) / (HIGHEST - LOWEST)
            drawn += LEVELS[max(0, min(len(LEVELS) - 1, int(height * len(LEVELS))))]
        else:
            drawn += "x" if part else " "
    return drawn


def draw_result(console: Console, result: DemoResult) -> None:
    """Print the lanes as a table, why the guard refused, and where the files are."""
    title = f"one model, {result.steps} batches, three trainings, {result.seconds:.0f} s"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for lane in result.lanes:
        table.add_column(Text(f"{lane.name}\n{lane.what}", STYLES[lane.name]), justify="right")
    for heading, cell in MEASURES:
        table.add_row(heading, *(cell(lane) for lane in result.lanes))
    console.print(table)
    console.print(Text.assemble(("guarded ", "green"), result.why()))
    console.print(
        Text(
            f"saved to {result.out}: report.html shows all three; fp32.jsonl, fp16.log, guarded/ (run.json, "
            "steps.jsonl, events.jsonl, layers.npz, incidents)"
        ),
        soft_wrap=True,
    )


MEASURES: tuple[tuple[str, Callable[[LaneResult], str]], ...] = (
    ("logged loss", lambda lane: lane.logged_loss),
    ("held-out loss", lambda lane: f"{lane.held_out_loss:.3f}"),
    ("held-out exact", lambda lane: f"{lane.exact:.0%}"),
    (f"  after {BULLET!r}", lambda lane: f"{lane.exact_items:.0%}"),
    ("steps refused", lambda lane: f"{lane.refused} of {lane.steps}"),
    ("NaN or inf weights", lambda lane: f"{lane.non_finite_weights:.1%}"),
    ("processor time", lambda lane: f"{lane.seconds:.1f} s"),
)
"""Rows of the table."""


ROWS = 12
"""Rows of a batch."""
REPORT = "report.html"


def run_demo(*, out: Path, steps: int = 250, seed: int = 0, console: Console | None = None) -> DemoResult:
    """Train the three lanes side by side.

    Arguments:
        out: directory for the logs; if it exists, a new one beside it is used (`demo-2`).
        seed: of weights, split and batches. Reproducible on one machine.
        console: for progress, the guard's lines and the table; None for no output.
    """
    if steps < 1:
        raise ValueError(f"steps is {steps}, expected at least 1")
    console = console or Console(quiet=True)
    began = time.perf_counter()
    out = _fresh(out)
    task = make_task(seed)
    batches = task.batches(count=steps, seed=seed, rows=ROWS)
    model = make_model(seed)
    seconds: dict[str, float] = {}
    with quick_fp16():
        screen = Screen(console, steps)
        with screen.live():
            guarded = GuardedLane(copy.deepcopy(model), steps, out / "guarded", screen)
            wild = WildLane(copy.deepcopy(model), steps, out / "fp16.log", len(task.train) / ROWS)
            lanes: list[Lane] = [Fp32Lane(copy.deepcopy(model), steps, out / "fp32.jsonl"), wild, guarded]

            shown: dict[str, str] = {}
            for progress in race(lanes, batches, seconds):
                shown[progress.lane] = progress.shown
                screen.show(progress)
        results = tuple(_judge(lane, task, steps, shown[lane.name], seconds[lane.name]) for lane in lanes)
    _draw_page(out, every=wild.every)
    marks = guarded.overflow.characters if guarded.overflow else ()
    marked = {step for step, batch in enumerate(batches, 1) if marks and _contains(batch, marks)}
    result = DemoResult(
        seed=seed, steps=steps, seconds=time.perf_counter() - began, lanes=results, overflow=guarded.overflow,
        refused_with_character=len(marked & set(guarded.refused)),
        accepted_with_character=len(marked - set(guarded.refused)), out=out,
    )  # fmt: skip
    draw_result(console, result)
    return result


def make_model(seed: int) -> TinyT5:
    """The initial model of all lanes, with its outlier; torch's random state is unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = TinyT5()
    plant_outlier(model, BULLET)
    return model


def _judge(lane: Lane, task: Task, steps: int, logged_loss: str, seconds: float) -> LaneResult:
    weights = torch.cat([parameter.detach().flatten() for parameter in lane.model.parameters()])
    with torch.no_grad():
        held_out_loss = lane.loss_of(collate(task.held_out)).item()
    return LaneResult(
        name=lane.name, what=lane.what, logged_loss=logged_loss, held_out_loss=held_out_loss, steps=steps,
        exact=_exact(lane.model, task.held_out), exact_items=_exact(lane.model, task.held_out_items),
        refused=len(lane.refused), seconds=seconds,
        non_finite_weights=1 - weights.isfinite().float().mean().item(),
    )  # fmt: skip


def _exact(model: TinyT5, pairs: list[Pair]) -> float:
    batch = collate(pairs)
    translations = model.translate(batch["source"], batch["target"].shape[1])
    return sum(decode(ids) == pair.target for ids, pair in zip(translations, pairs, strict=True)) / len(pairs)


def _contains(batch: Batch, marks: tuple[str, ...]) -> bool:
    return any(mark in decode(row) for row in batch["source"] for mark in marks)


def _fresh(out: Path) -> Path:
    number, place = 1, out
    while place.exists():
        number += 1
        place = out.with_name(f"{out.name}-{number}")
    place.mkdir(parents=True)
    return place


def _draw_page(out: Path, *, every: int) -> None:
    """Write report.html beside the lanes' logs.

    Arguments:
        every: steps between lines of the wild log, which has no step numbers.
    """
    fp32, wild, guarded = shown_runs([out / "fp32.jsonl", out / "fp16.log", out / "guarded"])
    names = ("fp32", "fp16, as found in the wild", "fp16, guarded")
    runs: list[dict[str, Any]] = [fp32, _counted_in_steps(wild, every), guarded]
    named = [run | {"name": name} for run, name in zip(runs, names, strict=True)]
    write_page(page_data(named, title="one model, three trainings"), out / REPORT)


def _counted_in_steps(run: dict[str, Any], every: int) -> dict[str, Any]:
    """Add step numbers to a log without them."""
    series = {
        name: {
            "x": [(place + 1) * every for place in curve["x"]],
            "y": curve["y"],
            "bad": [[(first + 1) * every, (last + 1) * every, *rest] for first, last, *rest in curve["bad"]],
        }
        for name, curve in run["series"].items()
    }
    return run | {"series": series, "note": ""}


CLEARLY_SLOWER = 1.5


@contextmanager
def quick_fp16() -> Iterator[None]:
    """Context with one thread per operation and the faster of torch's two fp16 matrix products.

    Each lane has its own thread, so more threads per operation would only interfere. On some CPUs oneDNN has no fp16
    kernel and falls back to a reference one that is 30 times slower than torch's own.
    """
    threads, onednn = torch.get_num_threads(), bool(torch._C._get_mkldnn_enabled())
    torch.set_num_threads(1)
    try:
        if onednn:
            with warnings.catch_warnings():
                # It warns at length on an unsupported CPU; the timing shows the same.
                warnings.filterwarnings("ignore", message="mkldnn_matmul failed")
                with_it = _seconds()
            torch._C._set_mkldnn_enabled(False)
            torch._C._set_mkldnn_enabled(with_it < CLEARLY_SLOWER * _seconds())
        yield
    finally:
        torch.set_num_threads(threads)
        torch._C._set_mkldnn_enabled(onednn)


def _seconds() -> float:
    """Best time of three fp16 products of the model's size."""
    left, right = torch.ones(240, 48, dtype=torch.float16), torch.ones(48, 64, dtype=torch.float16)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - start)
    return best
