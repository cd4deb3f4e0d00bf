"""Run the demo from start to end."""

import copy
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from stayfinite.demo.alphabet import decode
from stayfinite.demo.arithmetic import quick_fp16
from stayfinite.demo.lanes import Fp32Lane, GuardedLane, Lane, WildLane
from stayfinite.demo.model import TinyT5
from stayfinite.demo.outlier import plant_outlier
from stayfinite.demo.race import race
from stayfinite.demo.result import DemoResult, LaneResult
from stayfinite.demo.screen import Screen, draw_result
from stayfinite.demo.task import BULLET, Batch, Pair, Task, collate, make_task
from stayfinite.guard.telling.showing import shown_runs
from stayfinite.report.page.data import page_data
from stayfinite.report.page.html import write_page

ROWS = 12
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
        with Screen(console, steps) as screen:
            guarded = GuardedLane(copy.deepcopy(model), steps, out / "guarded", screen)
            wild = WildLane(copy.deepcopy(model), steps, out / "fp16.log", len(task.train) / ROWS)
            lanes: list[Lane] = [Fp32Lane(copy.deepcopy(model), steps, out / "fp32.jsonl"), wild, guarded]
            screen.lanes([(lane.name, lane.what) for lane in lanes])
            shown: dict[str, str] = {}
            for progress in race(lanes, batches, seconds):
                shown[progress.lane] = progress.shown
                screen.show(progress)
        results = tuple(_judge(lane, task, steps, shown[lane.name], seconds[lane.name]) for lane in lanes)
    _draw_page(out, every=wild.every)
    marks = guarded.overflow.characters if guarded.overflow else ()
    marked = {step for step, batch in enumerate(batches, 1) if marks and _contains(batch, marks)}
    result = DemoResult(
        seed=seed,
        steps=steps,
        seconds=time.perf_counter() - began,
        lanes=results,
        overflow=guarded.overflow,
        refused_with_character=len(marked & set(guarded.refused)),
        accepted_with_character=len(marked - set(guarded.refused)),
        out=out,
    )
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
        name=lane.name,
        what=lane.what,
        logged_loss=logged_loss,
        held_out_loss=held_out_loss,
        exact=_exact(lane.model, task.held_out),
        exact_items=_exact(lane.model, task.held_out_items),
        steps=steps,
        refused=len(lane.refused),
        non_finite_weights=1 - weights.isfinite().float().mean().item(),
        seconds=seconds,
    )


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
