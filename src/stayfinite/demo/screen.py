"""Draw the demo: three live lines while the lanes run, and the table at the end."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stayfinite.demo.lanes import Progress
from stayfinite.demo.result import DemoResult, LaneResult
from stayfinite.demo.task import BULLET

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
        self._live = (
            Live(console=console, get_renderable=self._picture, refresh_per_second=8) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def print(self, line: Any) -> None:
        """Print a line above the live part; used as the guard's console."""
        # Full lines are in events.jsonl; here each is one row, so the live part stays visible.
        crop = self._live is not None
        text = Text(str(line), style="yellow", no_wrap=crop, overflow="ellipsis" if crop else None)
        self._console.print(text, soft_wrap=not crop)

    def show(self, progress: Progress) -> None:
        """Show one step."""
        self._last[progress.lane] = progress
        self._losses[progress.lane].append(progress.loss)
        self._line = progress.line or self._line
        if self._live is None and progress.step % max(1, self._steps // 4) == 0:
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
    for heading, cell in ROWS:
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


def _number(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else str(value)


ROWS: tuple[tuple[str, Callable[[LaneResult], str]], ...] = (
    ("logged loss", lambda lane: lane.logged_loss),
    ("held-out loss", lambda lane: _number(lane.held_out_loss)),
    ("held-out exact", lambda lane: f"{lane.exact:.0%}"),
    (f"  after {BULLET!r}", lambda lane: f"{lane.exact_items:.0%}"),
    ("steps refused", lambda lane: f"{lane.refused} of {lane.steps}"),
    ("NaN or inf weights", lambda lane: f"{lane.non_finite_weights:.1%}"),
    ("processor time", lambda lane: f"{lane.seconds:.1f} s"),
)
