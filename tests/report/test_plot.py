"""Pictures of runs."""

import math
import re

import pytest

from stayfinite.cli import main
from stayfinite.core.series import RunSeries
from stayfinite.errors import UsageError
from stayfinite.report.plot import save_plot


def run_with_a_fault(source="train.log"):
    run = RunSeries(source)
    for step in range(200):
        loss = math.nan if 120 <= step < 125 else 3 / (1 + step / 40)
        run.add(
            step, step=step, loss=loss, grad_norm=1 + step % 7 / 10, lr=1e-4 * min(1, step / 50), skipped=step == 60
        )
    run.measure("eval_loss", 2.0, step=100)
    return run


@pytest.mark.parametrize("kind", ["png", "svg", "pdf", "html"])
def test_a_plot_is_written_in_the_kind_that_its_name_says(kind, tmp_path):
    out = tmp_path / "deep" / f"loss.{kind}"
    save_plot([run_with_a_fault(), run_with_a_fault("other.log")], out, title="two runs")
    head = out.read_bytes()[:200]
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "html": b"<!doctype html>"}
    assert head.startswith(starts[kind])


def test_bad_and_skipped_steps_are_marked(tmp_path):
    save_plot([run_with_a_fault()], tmp_path / "loss.svg")
    drawn = (tmp_path / "loss.svg").read_text()
    assert "#d62728" in drawn
    assert "#e8a33d" in drawn


def test_among_several_runs_the_legend_tells_once_what_the_marks_are(tmp_path):
    save_plot([run_with_a_fault(), run_with_a_fault("other.log")], tmp_path / "loss.svg")
    assert (tmp_path / "loss.svg").read_text().count("<!-- not finite, 0 or skipped -->") == 1


def test_the_numbers_at_a_logarithmic_axis_are_plain(tmp_path):
    run = RunSeries("train.log")
    for step in range(50):
        run.add(step, step=step, loss=4.0 - step * 0.05)
    save_plot([run], tmp_path / "loss.svg")
    drawn = (tmp_path / "loss.svg").read_text()
    labels = re.findall(r"<!-- (.*?) -->", drawn)  # matplotlib's note of each text that it draws as paths
    assert {"2", "3", "4"} <= set(labels)
    assert not any("10^" in label or "times" in label for label in labels)


def test_an_unknown_kind_and_an_empty_run_are_refused(tmp_path):
    with pytest.raises(UsageError, match="ending in .png"):
        save_plot([run_with_a_fault()], tmp_path / "loss.bmp")
    with pytest.raises(UsageError, match="nothing to plot"):
        save_plot([RunSeries("empty.log")], tmp_path / "loss.png")


def test_the_command_draws_a_log_and_says_so(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("".join(f"{{'loss': {2 - i / 50}, 'grad_norm': 1.0, 'learning_rate': 1e-4}}\n" for i in range(50)))
    assert main(["plot", str(log), "-o", str(tmp_path / "a.png")]) == 0
    assert "50 points" in capsys.readouterr().out
    assert main(["plot", str(tmp_path / "none.log"), "-o", str(tmp_path / "b.png")]) == 2
    assert "no such file" in capsys.readouterr().err
