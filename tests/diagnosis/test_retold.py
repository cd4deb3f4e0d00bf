"""A log of one's own prints the NaN of a step that the guard refuses a moment later: the judgment knows both."""

from __future__ import annotations

import math

import pytest

from guarded_training import NAN, GuardedTraining
from planted_runs import plant_run, write_lines
from stayfinite import diagnose

REFUSED = (40, 77)


def guarded_run(directory):
    """120 steps of which two were refused, without an autopsy."""
    return plant_run(directory, vetoes=REFUSED)


def printed(steps, *, count_from=1, every=1, refused=REFUSED):
    """What a loop prints: the mean of the losses since it printed last."""
    lines, losses = [], []
    for step in range(1, steps + 1):
        losses.append(NAN if step in refused else 1.0 + 1.0 / step)
        if step % every == 0:
            lines.append(f"step {step - 1 + count_from} loss {math.fsum(losses) / len(losses):.4f}\n")
            losses = []
    return "".join(lines)


def judged(found):
    return found.verdict, list(found.trouble), [finding.cause for finding in found.findings]


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("count_from", [0, 1])
def test_a_nan_that_a_log_of_ones_own_tells_again_is_no_symptom(count_from, every, tmp_path):
    run = guarded_run(tmp_path)
    alone = judged(diagnose(run))
    (run / "train.log").write_text(printed(120, count_from=count_from, every=every))
    assert judged(diagnose(run)) == alone == ("warning", [], ["nan-loss"])


def test_it_may_lie_elsewhere_and_be_given_beside_the_steps(tmp_path):
    run = guarded_run(tmp_path / "run")
    (tmp_path / "train.log").write_text(printed(120))
    assert judged(diagnose(tmp_path / "train.log", run / "steps.jsonl"))[1] == []
    assert "the loss is NaN or inf from step 40" in judged(diagnose(tmp_path / "train.log"))[1][0]


def test_of_a_log_in_a_run_directory_the_guard_is_heard_and_so_is_its_autopsy(tmp_path):
    training = GuardedTraining(tmp_path)
    training.steps(24)
    training.steps(1, NAN)
    training.steps(10)
    training.guard.close()
    (tmp_path / "train.log").write_text(printed(35, refused=(25,)))
    assert judged(diagnose(tmp_path / "train.log")) == ("warning", [], ["bad-data-row"])


def test_a_log_without_step_numbers_is_counted(tmp_path):
    run = guarded_run(tmp_path)
    losses = "".join(f"loss: {NAN if step in REFUSED else 1.0 + 1.0 / step:.4f}\n" for step in range(1, 121))
    (run / "train.log").write_text(losses)
    assert judged(diagnose(run))[1] == []


def test_a_refused_spike_that_is_printed_is_no_explosion(tmp_path):
    losses = [1.0 + 1.0 / step for step in range(1, 61)]
    losses[39] = 3.2109e14
    write_lines(
        tmp_path / "steps.jsonl",
        [
            {"version": 1, "step": step, "loss": loss, "grad_norm": 1.0, "lr": 1e-3, "loss_scale": None}
            | {"decision": "veto" if step == 40 else "accept", "code": "loss-spike" if step == 40 else "finite"}
            for step, loss in enumerate(losses, start=1)
        ],
    )
    log = "".join(f"step {step} loss {loss:.4g}\n" for step, loss in enumerate(losses))
    (tmp_path / "train.log").write_text(log)
    assert judged(diagnose(tmp_path)) == ("healthy", [], [])
    (tmp_path / "steps.jsonl").unlink()
    assert judged(diagnose(tmp_path))[0] == "sick"


def test_a_nan_at_a_step_that_nobody_refused_stays_a_symptom(tmp_path):
    run = guarded_run(tmp_path)
    (run / "train.log").write_text(printed(120, refused=(40, 60, 77)))
    assert "the loss is NaN or inf from step 60" in judged(diagnose(run))[1][0]


def test_a_log_that_stays_bad_after_the_refused_step_is_judged(tmp_path):
    run = guarded_run(tmp_path)
    (run / "train.log").write_text(printed(120, refused=range(40, 121)))
    assert any("the loss is NaN or inf" in word for word in judged(diagnose(run))[1])


def test_steps_that_the_guard_refused_to_the_end_are_told_by_both(tmp_path):
    run = plant_run(tmp_path, vetoes=(117, 118, 119, 120))
    (run / "train.log").write_text(printed(120, refused=range(117, 121)))
    assert any("the loss is NaN or inf from step 117" in word for word in judged(diagnose(run))[1])
