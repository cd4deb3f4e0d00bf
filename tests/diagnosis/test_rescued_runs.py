"""A run that the guard rescued does not read like one that died."""

import json

from guarded_training import NAN, GuardedTraining
from stayfinite.cli import main
from stayfinite.diagnosis.diagnose import diagnose


def test_a_run_whose_bad_step_was_refused_is_a_warning_with_its_cause(tmp_path, capsys):
    training = GuardedTraining(tmp_path / "run")
    training.steps(20)
    training.steps(1, NAN)
    training.steps(20)
    training.guard.close()
    found = diagnose(tmp_path / "run")
    assert (found.verdict, found.cause.cause) == ("warning", "bad-data-row")
    capsys.readouterr()
    assert main(["diagnose", str(tmp_path / "run")]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "warning 1 of 41 steps was refused" in shown
    assert "All steps taken are fine." in shown
    assert shown.count("drop or repair row 3 of the batch") == 1, "the fix stands once"
    assert "Origin:" not in shown
    assert main(["diagnose", str(tmp_path / "run/incidents/0001")]) == 1
    assert "sick one bad step, in" in " ".join(capsys.readouterr().out.split())
    assert "why" in json.loads((tmp_path / "run/incidents/0001/autopsy.json").read_text())


def test_a_cause_that_is_a_guess_is_no_alarm_of_watch(tmp_path, capsys):
    rows = [f"step {n} loss {3 - n / 100:.3f} grad_norm 1.0" for n in range(100)]
    (tmp_path / "train.log").write_text(
        "\n".join([*rows, *(f"step {n} loss nan grad_norm nan" for n in range(100, 120))])
    )
    assert main(["watch", str(tmp_path / "train.log"), "--once"]) == 1
    shown = capsys.readouterr().out
    assert "critical: the loss is NaN or inf" in shown
    assert "%" not in shown


def test_settings_alone_lead_to_check(tmp_path, capsys):
    (tmp_path / "train.yaml").write_text("learning_rate: 1.0e-4\nbf16: true\n")
    assert main(["diagnose", str(tmp_path / "train.yaml")]) == 0
    assert "stayfinite check" in capsys.readouterr().out
