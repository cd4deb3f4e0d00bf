"""Whatever stands in the files of a run, looking at it breaks neither reader nor page nor terminal."""

import io
import json
import random

import pytest
from rich.console import Console

from stayfinite.diagnosis.live_run import LiveRun
from stayfinite.readers.runs.reader import RunReader
from stayfinite.report.live.lines import JsonLines, PlainLines
from stayfinite.report.live.page import LivePage, Shown
from stayfinite.report.live.screen import screen

ODD = (None, True, -1, 0, 10**400, -(10**400), 1e308, 5e-324, float("nan"), float("inf"), "", "x", "\x1b[2J", "\ud800",
       "<script>", "9" * 30, "2026-13-45", "veto", "finite", [], {}, [[[]]], {"a": {"b": [1]}}, {"": None})  # fmt: skip
EVENTS = (
    "start",
    "veto",
    "rollback",
    "finding",
    "autopsy",
    "stopped",
    "failed",
    "closed",
    "checkpoint",
    "loader-error",
)
STEP_NAMES = ("step", "loss", "grad_norm", "lr", "loss_scale", "decision", "code", "parts", "version")
EVENT_NAMES = ("step", "time", "reason", "code", "cause", "confidence", "severity", "title", "fix", "evidence", "error",
               "where", "verdict", "to_step", "memory", "rank", "checkpoint")  # fmt: skip
LAUNCH_NAMES = ("steps", "launches", "config", "version")


def odd_record(chance, names, **fixed):
    return {name: chance.choice(ODD) for name in names if chance.random() < 0.7} | fixed


@pytest.mark.parametrize("seed", range(12))
def test_nothing_in_a_run_directory_breaks_the_view(tmp_path, seed):
    chance = random.Random(seed)
    steps = [odd_record(chance, STEP_NAMES, step=chance.choice(ODD)) for _ in range(20)]
    events = [odd_record(chance, EVENT_NAMES, event=chance.choice(EVENTS + ODD)) for _ in range(20)]
    launch = odd_record(chance, LAUNCH_NAMES) if seed % 4 else chance.choice(ODD)
    (tmp_path / "steps.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in steps))
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in events))
    (tmp_path / "run.json").write_text(json.dumps(launch))
    live = LiveRun(tmp_path, "run", source=RunReader(tmp_path))
    live.look(at_once=True)
    status, page = live.status(), LivePage()
    for _ in range(2):
        page.publish([Shown(status=status, diagnosis=live.diagnosis.to_json(), reader=live.source, news=live.news)])
    assert page.page()[0].startswith(b"<!doctype html>")
    console = Console(file=io.StringIO(), width=80, height=24)
    console.print(screen([status], console))
    console.print(screen([status, status], console))
    lines = []
    for kind in (PlainLines, JsonLines):
        kind(lines.append).show([status])
    "".join(lines).encode()
    assert not any("\x1b" in line for line in lines)
    assert json.loads(lines[-1])["seen"] == 20
