"""Runs on a terminal and in a pipe."""

import io
import json
import math

import pytest
from rich.console import Console

from stayfinite.core.run_status import Happening, Health, HealthWord, RunStatus
from stayfinite.core.sketch import Stroke, strokes_of
from stayfinite.report.live.lines import JsonLines, PlainLines, chosen_show
from stayfinite.report.live.screen import screen, sparkline
from stayfinite.report.live.words import Spell, number, one_line, pace, progress, spell_line, spells, standing

HOSTILE = "\x1b[2J\x1b]0;owned\x07[bold red]name\u202e\n\ttwo"


def a_status(**more):
    health = Health(word=HealthWord.HEALTHY, reason="no problem in 50 steps")
    told = {"name": "first", "path": "runs/first", "health": health, "state": "running", "step": 50, "seen": 50}
    figures = {"total_steps": 200, "loss": 2.5, "grad_norm": 1.0, "lr": 1e-4, "rate": 2.0, "eta_seconds": 75.0}
    return RunStatus(**told | figures | more)


def drawn(statuses, *, width=120, height=30, **settings):
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, **settings)
    console.print(screen(statuses, console))
    return out.getvalue()


def test_a_sparkline_shows_low_high_and_what_is_not_finite():
    line = sparkline(strokes_of([1.0, 2.0, math.nan, 4.0], 4), 10)
    assert line.plain == "▁▃\N{MULTIPLICATION SIGN}█"
    assert sparkline(strokes_of([1.0, 2.0, math.nan, 4.0], 4), 10, plain=True).plain == "_-x#"


def test_wide_ranges_are_drawn_on_a_log_scale():
    assert sparkline(strokes_of([1.0, 10.0, 100.0], 3), 3).plain == "▁▅█"


@pytest.mark.parametrize("values", [[-1.7e308, 1.7e308], [5.0, 5.0], [0.0, -1.0], [math.inf, 1.0], [1e-320, 1.0]])
def test_no_curve_is_too_odd_to_draw(values):
    assert len(sparkline(strokes_of(values, 8), 8).plain) == len(values)


def test_a_squeezed_sparkline_keeps_the_newest_and_every_bad_place():
    strokes = [Stroke(float(place), place == 30) for place in range(60)]
    line = sparkline(strokes, 10)
    assert len(line.plain) == 10
    assert line.plain[-1] == "█"
    assert line.plain.count("\N{MULTIPLICATION SIGN}") == 1


def test_one_run_is_shown_in_full():
    losses = strokes_of([3.0, 2.5], 2)
    veto = Happening(step=49, event="veto", text="loss is nan", time="2026-11-15T12:00:00+00:00", grave=True)
    text = drawn([a_status(losses=losses, happenings=[veto], refused=1)])
    for words in ("healthy", "first", "no problem", "step 50 of 200 (25%)", "2 steps/s, 1 min 15 s to go", "█▁",
                  "lr 0.0001", "1 refused", "loss is nan"):  # fmt: skip
        assert words in text


@pytest.mark.parametrize("width", [40, 80, 110, 160])
def test_many_runs_are_a_table_no_wider_and_no_taller_than_the_terminal(width):
    runs = [a_status(name=f"run-{place}", path=f"runs/{place}") for place in range(60)]
    sick = Health(word=HealthWord.CRITICAL, reason="stopped: the budget is spent")
    runs[45] = a_status(name="the-sick-one", path="runs/sick", health=sick)
    lines = drawn(runs, width=width, height=24).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    if width >= 80:
        assert any("the-sick-one" in line and "critical" in line for line in lines)
        assert any("more runs do not fit" in line for line in lines)


def test_nothing_in_a_run_acts_on_the_terminal():
    health = Health(word=HealthWord.WARNING, reason=HOSTILE, fix=HOSTILE)
    hostile = Happening(step=1, event=HOSTILE, text=HOSTILE, time=HOSTILE, grave=True)
    status = a_status(name=HOSTILE, health=health, happenings=[hostile])
    line = spell_line(Spell(hostile, hostile), HOSTILE)
    for text in (drawn([status]), drawn([status, status]), one_line(status), line):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "\u202e" not in text
        assert "[bold red]" in text
    assert "\n" not in one_line(status) + line


def test_a_terminal_without_block_characters_gets_plain_ones():
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=out, width=100, height=24)
    console.print(screen([a_status(losses=strokes_of([3.0, 1.0], 2))], console))
    out.seek(0)
    assert "#_" in out.read()


def test_figures_are_told_as_people_say_them():
    assert [number(value) for value in (None, 0.27221, 65536.0, 1.7e-5, math.nan, -math.inf)] == [
        "-", "0.2722", "65,536", "1.7e-05", "nan", "-inf",
    ]  # fmt: skip
    assert progress(a_status(total_steps=None)) == "step 50"
    assert pace(a_status(rate=0.05, eta_seconds=None)) == "20 s a step"
    assert pace(a_status(rate=None, eta_seconds=75.0)) == "1 min 15 s to go"
    assert pace(a_status(rate=None, eta_seconds=None)) == ""
    assert pace(a_status(state="ended")) == ""
    assert standing(a_status(state="silent", quiet_seconds=600.0)) == "last step 10 min ago"


def test_lines_in_a_pipe_tell_what_is_new_and_nothing_twice():
    lines = []
    show = PlainLines(lines.append).show
    veto = Happening(step=51, event="veto", text="loss is nan", time="", grave=True)
    show([a_status()])
    show([a_status(step=51)])
    assert lines == [one_line(a_status())]
    show([a_status(step=52, happenings=[veto])])
    show([a_status(step=53, happenings=[veto])])
    assert lines[1:] == ["step 51 refused: loss is nan"]
    sick = a_status(health=Health(word=HealthWord.WARNING, reason="refused"), happenings=[veto])
    show([sick])
    assert lines[2:] == [one_line(sick)]
    show([a_status(state="ended", happenings=[veto])])
    assert len(lines) == 4


def test_what_is_said_several_times_in_a_row_is_one_line():
    refused = [Happening(step=step, event="veto", text="loss is nan", time="", grave=True) for step in range(201, 1221)]
    cut = Happening(step=1221, event="cut", text="21 steps in a row were refused", time="", grave=True)
    after = Happening(step=1222, event="veto", text="loss is nan", time="", grave=True)
    happenings = [*refused, cut, after]
    lines = []
    PlainLines(lines.append).show([a_status(happenings=happenings)])
    assert lines[:3] == [
        "steps 201-1,220 refused x1,020: loss is nan", "step 1,221 cut: 21 steps in a row were refused",
        "step 1,222 refused: loss is nan",
    ]  # fmt: skip
    assert sum(spell.count for spell in spells(happenings)) == len(happenings)
    shown = drawn([a_status(happenings=happenings)], height=12)
    assert "201-1,220" in shown
    assert "refused x1,020" in shown
    assert "cut" in shown


def test_what_happens_now_and_then_or_at_no_step_is_told_each_time():
    apart = [Happening(step=step, event="veto", text="loss is nan", time="") for step in (37, 74, 111)]
    nowhere = [Happening(step=None, event="finding", text="slow", time="")] * 2
    assert [spell_line(spell) for spell in spells([*apart, *nowhere])] == [
        "step 37 refused: loss is nan", "step 74 refused: loss is nan", "step 111 refused: loss is nan",
        "finding: slow", "finding: slow",
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "moves"), [("dumb", False), ("xterm", True)])
def test_a_terminal_that_cannot_move_its_cursor_gets_lines(kind, moves, monkeypatch):
    out = io.StringIO()
    out.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", kind)
    with chosen_show(as_json=False) as show:
        show([a_status()])
        at_once = out.getvalue()
    assert (one_line(a_status()) in at_once) is not moves


def test_json_lines_are_strict_json_and_come_only_with_a_change():
    lines = []
    show = JsonLines(lines.append).show
    veto = Happening(step=51, event="veto", text="loss is nan", grave=True)
    show([a_status(loss=math.nan, happenings=[veto])])
    show([a_status(loss=math.nan, happenings=[veto], quiet_seconds=3.0, eta_seconds=70.0)])
    show([a_status(step=51, loss=math.inf, happenings=[veto])])

    def refuse(word):
        raise AssertionError(word)

    first, second = (json.loads(line, parse_constant=refuse) for line in lines)
    assert (first["loss"], second["loss"]) == ("nan", "inf")
    assert [happening["event"] for happening in first["happenings"]] == ["veto"]
    assert second["happenings"] == []
