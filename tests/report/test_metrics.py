"""Prometheus metrics of runs, in its text format."""

import math
import re

from planted_runs import plant_run
from stayfinite.cli.watch import run
from stayfinite.core.run_status import Health, HealthWord, RunStatus
from stayfinite.report.live.lines import metrics_text

LINE = re.compile(r'stayfinite_[a-z_]+\{run="(?:[^"\\\n]|\\.)*"\} (?:NaN|[+-]Inf|-?\d[\d.e+-]*)')


def test_every_line_is_of_the_text_format_whatever_a_run_is_called_and_measures():
    hostile = RunStatus(
        name='a"b\\c\nd', path="x", health=Health(word=HealthWord.CRITICAL, reason="r"), state="running", step=3,
        seen=3, refused=1, loss=math.nan, grad_norm=math.inf, lr=1e-5,
    )  # fmt: skip
    text = metrics_text([hostile])
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in lines)
    assert 'stayfinite_loss{run="a\\"b\\\\c\\nd"} NaN' in lines
    assert any(line.startswith("stayfinite_health") and line.endswith(" 4.0") for line in lines)
    assert "stayfinite_loss_scale{" not in text  # not known


def test_watch_writes_them(tmp_path, capsys):
    plant_run(tmp_path / "run")
    run([str(tmp_path / "run"), "--once", "--metrics", str(tmp_path / "runs.prom")])
    text = (tmp_path / "runs.prom").read_text()
    assert 'stayfinite_refused_steps_total{run="run"} 3.0' in text
    assert 'stayfinite_step{run="run"} 120.0' in text
