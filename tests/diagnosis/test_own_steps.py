"""A step that the guard refused never touched the weights: it is told as refused, and is no symptom of the training."""

from __future__ import annotations

import json

import pytest
import torch

from guarded_training import NAN, GuardedTraining
from planted_runs import plant_run
from stayfinite import Policy, TrainingDiverged, diagnose
from stayfinite.cli import main
from stayfinite.diagnosis.own_steps import refusals_in

INFINITY = float("inf")


def causes(found):
    return [finding.cause for finding in found.findings]


def foreign(directory, losses):
    log = directory / "train.jsonl"
    lines = [{"step": step, "loss": loss, "lr": 1e-3} for step, loss in enumerate(losses, start=1)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return log


def steps_file(directory, decisions, **columns):
    path = directory / "steps.jsonl"
    lines = [
        {"version": 1, "step": step, "loss": 1.0 + 1.0 / step, "grad_norm": 1.0, "lr": 1e-3, "loss_scale": None}
        | {"decision": decision, "code": "finite" if decision == "accept" else "loss-spike"} | columns
        for step, decision in enumerate(decisions, start=1)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_nan_that_was_refused_is_told_with_its_proved_cause_and_nothing_else(tmp_path):
    training = GuardedTraining(tmp_path)
    training.steps(24)
    training.steps(1, NAN)
    training.steps(10)
    training.guard.close()
    found = diagnose(tmp_path)
    assert (list(found.trouble), causes(found)) == ([], ["bad-data-row"])
    told = "1 of 35 steps was refused and did not touch the weights (loss-not-finite, step 25)"
    assert list(found.refused) == [told]


def test_a_bounded_spike_is_no_explosion_either(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy(max_incidents=0))
    training.steps(24)
    training.guard.step(50 * training.guard.forward(training.batch()))
    training.steps(10)
    training.guard.close()
    found = diagnose(tmp_path)
    assert (found.verdict, list(found.trouble), causes(found), list(found.refused)) == ("healthy", [], [], [])


def test_a_refused_spike_is_no_explosion(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy.refuse_spikes(max_incidents=0))
    training.steps(24)
    training.guard.step(50 * training.guard.forward(training.batch()))
    training.steps(10)
    training.guard.close()
    found = diagnose(tmp_path)
    assert (found.verdict, list(found.trouble), causes(found)) == ("healthy", [], [])
    assert found.refused[0].startswith("1 of 35 steps was refused")
    assert found.refused[0].endswith("; cause not captured: pass forward= to Guard")


def test_a_nan_that_was_refused_without_an_autopsy_is_wrong_and_nothing_is_blamed_for_it(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy(max_incidents=0))
    training.steps(24)
    training.steps(1, NAN)
    training.steps(10)
    training.guard.close()
    found = diagnose(tmp_path)
    assert (found.verdict, list(found.trouble), causes(found)) == ("warning", [], ["nan-loss"])
    assert found.findings[0].where.endswith("steps.jsonl:25")
    assert "forward=" in found.findings[0].fix


def test_the_same_numbers_without_a_guard_are_a_symptom(tmp_path):
    sick = diagnose(foreign(tmp_path, [2.0] * 30 + [NAN] + [1.9] * 30))
    assert any("NaN or inf" in word for word in sick.trouble)
    explodes = diagnose(foreign(tmp_path, [2.0] * 20 + [2.0 * 1.8**step for step in range(40)] + [NAN]))
    assert "the loss explodes" in explodes.trouble
    assert not explodes.refused


def trainer_log(directory, losses, refused=()):
    """As the Trainer prints it, a row a step."""
    log, vetoes = directory / "trainer.log", 0
    rows = []
    for step, loss in enumerate(losses, start=1):
        row = {"loss": str(loss), "grad_norm": str(loss), "learning_rate": "0.001", "epoch": f"{step / 100:.2f}"}
        if step in refused:
            vetoes += 1
            row |= {"stayfinite/refused_loss": str(loss), "stayfinite/vetoes": vetoes}
        rows.append(f"{row}\n")
    log.write_text("".join(rows))
    return log


def test_a_row_of_a_trainers_log_that_was_refused_is_no_symptom(tmp_path):
    losses = [3.0 - step / 40 for step in range(60)]
    losses[30] = NAN
    found = diagnose(trainer_log(tmp_path, losses, refused=(31,)))
    assert (list(found.trouble), causes(found)) == ([], ["nan-loss"])
    assert "stayfinite diagnose OUTPUT_DIR/stayfinite" in found.findings[0].fix
    assert list(found.refused) == ["1 step was refused and did not touch the weights (loss-not-finite)"]
    taken = diagnose(trainer_log(tmp_path, losses))
    assert any("NaN or inf" in word for word in taken.trouble)
    assert not taken.refused


def test_a_trainers_log_that_ends_in_refused_rows_is_sick(tmp_path):
    losses = [3.0 - step / 40 for step in range(40)] + [NAN] * 5
    found = diagnose(trainer_log(tmp_path, losses, refused=range(41, 46)))
    assert found.verdict == "sick"
    assert any("NaN or inf" in word for word in found.trouble)
    assert list(found.refused) == ["5 steps were refused and did not touch the weights (loss-not-finite)"]


def test_of_a_row_with_refused_and_taken_steps_the_loss_counts(tmp_path):
    losses = [3.0 - step / 40 for step in range(40)] + [1e6] * 20
    found = diagnose(trainer_log(tmp_path, losses, refused=(30,)))
    assert "the loss explodes" in found.trouble


def test_steps_that_were_only_watched_are_judged(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy.watch())
    training.steps(24)
    training.steps(1, NAN)
    training.steps(10)
    training.guard.close()
    found = diagnose(tmp_path)
    assert any("the loss is NaN or inf from step 25" in word for word in found.trouble)
    assert not found.refused


def test_a_run_that_the_guard_had_to_stop_is_sick_and_says_so(tmp_path):
    training = GuardedTraining(
        tmp_path,
        policy=Policy.refuse_spikes(max_incidents=0, snapshots=False),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e4),
        max_norm=None,
    )
    with pytest.raises(TrainingDiverged):
        training.steps(400)
    found = diagnose(tmp_path)
    assert found.verdict == "sick"
    assert "the loss explodes" in found.trouble
    assert "the guard stopped the run at step" in found.refused[0]
    assert "lr-too-high" in causes(found)


def test_steps_that_are_refused_to_the_end_are_how_the_run_ended(tmp_path):
    found = diagnose(plant_run(tmp_path, vetoes=(117, 118, 119, 120)))
    assert any("the loss is NaN or inf from step 117" in word for word in found.trouble)
    assert found.refused[0].startswith("4 of 120 steps were refused")


def test_a_loss_near_0_that_differs_from_batch_to_batch_blames_no_high_rate(tmp_path):
    noisy = [0.45, 0.09, 1.47, 0.29, 0.81, 1.42, 0.62]
    losses = [4.5 * 0.9**step for step in range(20)] + noisy * 4
    log = tmp_path / "train.jsonl"
    lines = [{"step": step, "loss": loss, "lr": 1e-2} for step, loss in enumerate(losses, start=1)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = tmp_path / "config.yaml"
    config.write_text("optimizer: AdamW\nlr: 0.01\n")
    assert "lr-too-high" not in causes(diagnose(log, config))
    lost = [{"step": step, "loss": loss, "lr": 1e-2} for step, loss in enumerate([*losses, 9.0, 14.0, 21.0], start=1)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lost))
    assert "lr-too-high" in causes(diagnose(log, config))


def test_without_a_loss_scale_no_scale_has_collapsed(tmp_path):
    found = diagnose(steps_file(tmp_path, ["accept"] * 30 + ["veto"] * 20, loss=NAN))
    assert not any("scale" in word for word in found.trouble)
    assert "loss-scale-collapse" not in causes(found)


def test_many_refused_steps_without_an_explanation_are_not_called_healthy(tmp_path):
    found = diagnose(steps_file(tmp_path, ["accept"] * 30 + ["veto"] * 5 + ["accept"] * 30))
    assert (found.verdict, list(found.trouble)) == ("unknown", [])


def test_a_rung_counts_as_more_than_a_bad_batch(tmp_path):
    lasting = refusals_in(steps_file(tmp_path, ["accept", "rollback", "accept"]))
    assert lasting is not None
    assert lasting.lasting
    assert lasting.lines == {2}


def test_the_search_for_a_scale_is_no_refusal(tmp_path):
    found = refusals_in(steps_file(tmp_path, ["veto"] * 4 + ["accept"] * 20, code="scale-search", loss_scale=8.0))
    assert (found.codes.total(), found.lines, found.searches) == (0, set(), {1, 2, 3, 4})


def searching(directory, searches, *, start, steps=100):
    """A run under a scaler: at the given steps the gradients overflow and the scale is halved."""
    scale, lines = start, []
    for step in range(1, steps + 1):
        refused = step in searches
        lines.append(
            {"version": 1, "step": step, "loss": 1.0 + 1.0 / step, "grad_norm": INFINITY if refused else 1.0}
            | {"lr": 3e-3, "loss_scale": scale, "decision": "veto" if refused else "accept"}
            | {"code": "scale-search" if refused else "finite"}
        )
        scale = scale / 2 if refused else scale
    (directory / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


@pytest.mark.parametrize(
    ("searches", "start"),
    [(range(1, 17), 2.0**24), ({70}, 2.0**16), ({1, 2, 3, 40, 90}, 2.0**16)],
    ids=["from far above", "once in the middle", "now and then"],
)
def test_a_scale_that_is_looked_for_and_found_is_held_against_nobody(searches, start, tmp_path):
    found = diagnose(searching(tmp_path, set(searches), start=start))
    assert (found.verdict, list(found.trouble), list(found.refused)) == ("healthy", [], [])
    assert causes(found) == ["amp-initial-scale-search"]


def test_a_scale_that_is_looked_for_to_the_end_is_how_the_run_ended(tmp_path):
    found = diagnose(searching(tmp_path, set(range(80, 101)), start=2.0**22))
    assert found.verdict == "sick"
    assert any("gradient norm is NaN or inf from step 80" in word for word in found.trouble)


def test_a_guard_that_leaves_autocast_to_the_loop_does_not_speak_against_fp16(tmp_path):
    searching(tmp_path, {1, 2, 3}, start=2.0**16)
    (tmp_path / "run.json").write_text(json.dumps({"version": 1, "launches": [{"policy": {"precision": None}}]}))
    assert causes(diagnose(tmp_path)) == ["amp-initial-scale-search"]


@pytest.mark.parametrize(
    "text", ["", "\n", "{", "[]", '{"step": 1, "decision": "veto"}', '{"version": 1, "step": 1, "decision": 7}', "\0"]
)
def test_a_file_of_that_name_that_is_not_the_guards_is_passed_over(text, tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text(text)
    assert refusals_in(path) is None


def test_the_words_for_people_say_refused_and_that_the_rest_is_fine(tmp_path, capsys):
    path = steps_file(tmp_path, ["accept"] * 39 + ["veto"] + ["accept"] * 80)
    assert main(["diagnose", str(path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("healthy 1 of 120 steps was refused and did not touch the weights (loss-spike, step 40)")
    assert "All steps taken are fine." in shown
    assert main(["diagnose", "--json", str(path)]) == 0
    assert len(json.loads(capsys.readouterr().out)["refused"]) == 1


def test_a_first_step_of_nan_is_blamed_on_no_update_and_on_no_scale(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy(max_incidents=0, max_vetoes_in_a_row=4, max_cuts=0))
    with pytest.raises(TrainingDiverged):
        training.steps(40, NAN)
    found = diagnose(tmp_path)
    assert found.verdict == "sick"
    assert not set(causes(found)) & {
        "no-clipping",
        "lr-too-high",
        "adam-eps-underflow",
        "fp16-overflow",
        "fp8-zero-amax",
    }


def test_what_an_autopsy_proved_of_the_last_step_comes_before_what_the_numbers_suggest(tmp_path):
    training = GuardedTraining(tmp_path, policy=Policy.strict())
    for factor in (1, 4, 20, 100):
        training.guard.step(factor * training.guard.forward(training.batch()))
    with pytest.raises(TrainingDiverged):
        training.steps(1, NAN)
    found = diagnose(tmp_path)
    assert (found.verdict, causes(found)[0], found.differential) == ("sick", "bad-data-row", None)
