"""A line when something happens, none when nothing does, and a summary at the end."""

from __future__ import annotations

import io
import re
import sys
from collections import Counter

import pytest
import torch
from rich.console import Console
from torch import nn

from stayfinite import Guard, Policy
from stayfinite.core.decision import Action, Code, Decision
from stayfinite.core.signals import Signals
from stayfinite.guard.telling.tally import Tally
from stayfinite.report.terminal import Totals
from stayfinite.report.terminal import summary as summed_up
from tiny_training import Lines, TinyNet, Training, batch, both_gates


@both_gates
def test_nothing_is_said_while_nothing_happens(policy):
    training = Training("AdamW-fused", policy=policy, max_norm=1e-3)
    training.good(30)  # every one of them clipped, which is everyday business
    training.guard.flush()
    assert training.console.lines == []


@both_gates
def test_a_veto_is_one_line_with_step_code_and_reason(policy):
    training = Training("AdamW-fused", policy=policy)
    training.good(2)
    training.bad("nan-element")
    training.guard.flush()
    (line,) = training.console.lines
    assert line.startswith("stayfinite: step 3 refused (gradient-not-finite): loss is ")
    assert line.endswith(
        "1 of 6 gradients are NaN or inf, first up.weight. Weights unchanged. Pass forward= to Guard to get the cause."
    )


def test_the_summary_counts_steps_vetoes_scale_and_worst_layers(tmp_path):
    training = Training("AdamW-plain", "fp16-autocast", run_dir=tmp_path)
    training.good(2)
    for _ in range(2):
        training.bad("last-parameter")
        training.good()
    training.guard.step(training.loss() * 0 + float("nan"))
    training.good()
    training.guard.close()
    summary = training.console.lines[-1]
    assert "8 steps, 3 refused (2 scale-search, 1 loss-not-finite)" in summary
    assert re.search(r"; last loss \d", summary)
    assert "; lowest loss scale 64" in summary
    assert "worst layers: down.bias (NaN or inf in 2 steps)" in summary
    assert f"saved to {tmp_path}" in summary


def test_the_summary_of_a_healthy_run_is_one_line():
    training = Training(max_norm=None)
    training.good(3)
    training.guard.close()
    (summary,) = training.console.lines
    assert "3 steps, none refused, 0 clipped" in summary
    assert "\n" not in summary
    assert "loss scale" not in summary


NOTHING_MORE = {"unlearned": "", "groups": (), "directory": None}


def test_the_summary_counts_as_people_do():
    one = summed_up(Totals(steps=1, clipped=1, last_loss=1.0), **NOTHING_MORE)
    assert one == "1 step, none refused, 1 clipped; last loss 1"
    vetoes = Counter({"scale-search": 1_234})
    run = Totals(steps=100_000, vetoes=vetoes, clipped=2_000, last_loss=1.0, lowest_scale=2.0**24)
    assert summed_up(run, **NOTHING_MORE) == (
        "100,000 steps, 1,234 refused (1,234 scale-search), 2,000 clipped; last loss 1; lowest loss scale 16,777,216"
    )


@pytest.mark.parametrize(("share", "told"), [(0.41, True), (0.24, False)])
def test_the_summary_names_a_rank_that_the_others_wait_for(share, told):
    line = "rank 3 (node7) is slowest: 41% of each step (mean 22%)"
    run = Totals(steps=9, slowest=(3, "node7", share, 0.22))
    assert (line in summed_up(run, **NOTHING_MORE)) is told


def test_a_stop_is_said_and_then_summed_up():
    training = Training(policy=Policy(max_vetoes_in_a_row=1, max_cuts=0))
    with pytest.raises(RuntimeError):
        training.bad_ones(["nan-loss"] * 3)
    assert [re.split(r",| \(", line)[0] for line in training.console.lines] == [
        "stayfinite: step 1 refused", "stayfinite: step 2 stopped", "stayfinite: 2 steps",
    ]  # fmt: skip


def test_repeated_lines_are_thinned_out():
    training = Training(policy=Policy(max_vetoes_in_a_row=200, max_vetoes=None))
    for _ in range(40):
        training.bad()
    shown = [int(re.search(r"step (\d+)", line).group(1)) for line in training.console.lines]
    assert shown == [1, 2, 3, 4, 5, 8, 16, 32]
    assert training.console.lines[-1].endswith("(32 of this kind so far)")


def test_one_kind_of_line_does_not_silence_another():
    training = Training(policy=Policy(max_vetoes_in_a_row=200))
    for _ in range(10):
        training.bad("nan-loss")
    training.bad("last-parameter")
    assert "gradient-not-finite" in training.console.lines[-1]


@pytest.mark.parametrize("terminal", [True, False])
def test_names_with_brackets_survive_a_rich_console(terminal):
    model = nn.ModuleDict({"[bold]experts[0][/bold]": nn.Linear(8, 4)})
    model.forward = next(iter(model.values())).forward
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=400, color_system="truecolor" if terminal else None)
    guard = Guard(model, torch.optim.AdamW(model.parameters()), console=console)
    guard.step(model(batch(1)[0]).square().mean() * float("nan"))
    guard.close()
    assert out.getvalue().count("[bold]experts[0][/bold].weight") == 1
    assert ("\x1b[33m" in out.getvalue()) is terminal  # yellow


def test_without_a_console_lines_go_to_stderr_unbroken(capsys):
    model = TinyNet()
    guard = Guard(model, torch.optim.AdamW(model.parameters()))
    guard.step(model(batch(1)[0]).square().mean() * float("nan"))
    guard.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    line = captured.err.splitlines()[0]
    assert line.startswith("stayfinite: step 1 refused")
    assert line.endswith("all 6 gradients are NaN or inf. Weights unchanged. Pass forward= to Guard to get the cause.")


def test_slow_trouble_is_said_once_with_its_remedy():
    training = Training(policy=Policy(zero_steps=4))
    for _ in range(12):
        training.guard.step(training.loss() * 0)
    said = [line for line in training.console.lines if "zero-gradient" in line]
    assert len(said) == 1
    assert "every gradient is exactly zero" in said[0]
    assert "check for a detached or clamped loss" in said[0]


def test_a_terminal_that_has_gone_away_does_not_stop_training(monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Gone())
    model = TinyNet()
    guard = Guard(model, torch.optim.AdamW(model.parameters()))
    guard.step(model(batch(1)[0]).square().mean() * float("nan"))
    guard.close()


def regression_at(rate: float, *, steps: int = 100, noise: float = 0.0) -> str:
    """Summary of a small regression; with noise, its gradients are heavy-tailed."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    console = Lines()
    guard = Guard(model, torch.optim.SGD(model.parameters(), lr=rate), console=console)
    for step in range(steps):
        x = torch.randn(32, 8)
        factor = 1.0 + noise * (step % 5 == 4)
        guard.step((model(x)[:, 0] - x.sum(1)).square().mean() * factor)
    guard.close()
    return console.lines[-1]


@pytest.mark.parametrize("rate", [0.5, 3.0])
def test_a_run_that_bounding_does_not_save_is_named_with_the_likely_cause(rate):
    words = re.findall(
        r"\n  (\d+) of 100 steps were bounded: the learning rate is likely too high", regression_at(rate)
    )
    assert len(words) == 1
    assert 50 < int(words[0]) <= 100


@pytest.mark.parametrize(
    ("rate", "steps", "noise"), [(0.01, 100, 0.0), (0.1, 100, 0.0), (0.01, 100, 20.0), (3.0, 30, 0.0)]
)
def test_a_healthy_heavy_tailed_or_short_run_is_not_blamed_on_the_learning_rate(rate, steps, noise):
    assert "likely too high" not in regression_at(rate, steps=steps, noise=noise)


@pytest.mark.parametrize(
    ("share", "losses", "named"),
    [
        (0.9, (2.0, 50.0), True),
        (0.9, (2.0, 5.0), False),  # as the losses of two players drift
        (0.9, (2.0, 0.5), False),  # it learns all the same
        (0.4, (2.0, 50.0), False),  # other steps did that
        (0.9, (-3.0, -1.0), False),
        (0.9, (-3.0, 40.0), True),
    ],
)
def test_only_a_run_whose_loss_ends_far_above_its_start_with_most_steps_bounded_is_named(share, losses, named):
    tally = Tally()
    first, last = losses
    for step in range(100):
        loss = first + (last - first) * step / 99
        action = Action.BOUND if step < 100 * share else Action.ACCEPT
        signals = Signals(step=step, loss=loss, grad_norm=1.0)
        tally.count(Decision(action=action, code=Code.FINITE, reason="", signals=signals))
    assert bool(tally.mostly_bounded) == named
