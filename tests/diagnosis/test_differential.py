"""Where the text cannot decide, the causes that remain are told apart by one cheap experiment."""

from __future__ import annotations

from pathlib import Path

import pytest

from stayfinite import diagnose
from stayfinite.diagnosis.asking import next_question
from stayfinite.diagnosis.diagnose import context_of, judge_reading
from stayfinite.diagnosis.diagnosis import Diagnosis
from stayfinite.diagnosis.reading import read_text
from stayfinite.diagnosis.telling import SYMPTOMS, Told, understand_told
from stayfinite.diagnosis.weighing import NAN_ONLY
from stayfinite.errors import UsageError
from stayfinite.rules.experiments import EXPERIMENTS

LOST = "".join(f"{{'loss': {loss}, 'learning_rate': 5e-05, 'epoch': {at}}}\n" for at, loss in
               ((0.1, 2.31), (0.2, 2.12), (0.3, "nan")))  # fmt: skip


def diagnosed(*told: str, log: str = LOST) -> Diagnosis:
    return judge_reading(read_text(log), understand_told(told))


def test_what_remains_predicts_different_outcomes_of_what_is_to_be_tried() -> None:
    found = diagnosed().differential
    assert found is not None
    assert 2 <= len(found.remaining) <= 3
    assert len({each.predicts for each in found.remaining}) > 1
    assert found.experiment.do


def share_of(cause: str, found: Diagnosis) -> float:
    causes = {each.cause: each.confidence for each in found.findings}
    return causes.get(cause, 0.0) / sum(causes.values())


def test_a_cause_gains_by_the_outcome_that_it_predicts_and_loses_by_the_other() -> None:
    open_question = diagnosed().differential
    assert open_question is not None
    tried = open_question.experiment
    fine, bad = diagnosed(f"{tried.key}=fine"), diagnosed(f"{tried.key}=bad")
    for each in open_question.remaining:
        if each.predicts == tried.fine:
            assert share_of(each.cause, fine) > share_of(each.cause, bad)
        elif each.predicts == tried.bad:
            assert share_of(each.cause, bad) > share_of(each.cause, fine)


def test_what_was_tried_is_not_asked_for_again() -> None:
    first = diagnosed().differential
    assert first is not None
    again = diagnosed(f"{first.experiment.key}=bad").differential
    assert again is None or again.experiment.key != first.experiment.key


def test_a_decided_cause_and_a_healthy_run_have_no_differential() -> None:
    proof = "RuntimeError: value cannot be converted to type at::Half without overflow\n"
    assert diagnosed(log=proof).differential is None
    assert diagnosed(log="epoch 1 loss 2.3\nepoch 2 loss 1.9\nepoch 3 loss 1.7\n").differential is None


def test_a_fact_that_is_told_counts_as_if_a_file_had_said_it(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 5e-05}\n" * 3)
    told = diagnose(log, tell=["fp16=true", "model=google/mt5-small"]).cause
    assert told is not None
    assert told.cause == "fp16-overflow-model-family"
    assert any("--tell" in line for line in told.evidence)


@pytest.mark.parametrize("pair", ["precision", "=fp16", "precision=", ""])
def test_what_is_no_pair_is_refused_with_an_example(pair: str) -> None:
    with pytest.raises(UsageError, match="name=value") as refused:
        understand_told([pair])
    assert "precision=fp16" in str(refused.value.fix)


def test_a_number_is_a_setting_and_a_word_the_outcome_of_an_experiment() -> None:
    setting, outcome = understand_told(["lr=0.1"]), understand_told(["lr=fine"])
    assert (setting.settings.value("lr"), list(setting.tried)) == (0.1, [])
    assert (len(outcome.settings), [world.good for world in outcome.tried]) == (0, [True])


def test_the_fact_that_would_change_most_is_asked_for_first_and_a_known_one_never() -> None:
    reading = read_text(LOST)

    def judged_with(pair: str) -> Diagnosis:
        return diagnosed(pair)

    first = next_question(context_of(reading, Told()), [], judged_with)
    assert first is not None
    assert first.name == "precision"
    known = context_of(reading, understand_told(["precision=fp16"]))
    second = next_question(known, ["precision"], judged_with)
    assert second is None or second.name != "precision"


def test_every_experiment_says_what_to_do_and_can_come_out_two_ways() -> None:
    assert len({experiment.key for experiment in EXPERIMENTS}) == len(EXPERIMENTS)
    for experiment in EXPERIMENTS:
        assert experiment.do
        assert experiment.fine != experiment.bad
        assert experiment.says


AT_CHANCE = "".join(f"iter {100 * at} | loss {loss} | lr 1.0e-03\n" for at, loss in
                    enumerate((2.3012, 2.3027, 2.3025, 2.3026, 2.3026, 2.3025), 1))  # fmt: skip


def test_a_finite_standstill_is_not_blamed_on_what_acts_through_nan_alone() -> None:
    found = diagnosed(log=AT_CHANCE)
    assert found.verdict == "sick"
    assert not {each.cause for each in found.findings} & (NAN_ONLY | {"lr-zero"})
    assert found.differential is not None
    assert found.differential.experiment.key not in ("anomaly", "guarded", "compile", "one_gpu")


def test_the_same_guesses_may_be_made_as_soon_as_a_value_is_nan() -> None:
    sick = diagnosed(log=AT_CHANCE.replace("2.3025", "nan"))
    assert {each.cause for each in sick.findings} & NAN_ONLY


SILENT = "Using device cuda\nLoaded 1200 images\nEpoch 1 done\nEpoch 2 done\n"


@pytest.mark.parametrize("word", [*SYMPTOMS, "the loss does not decrease at all"])
def test_a_log_that_shows_nothing_is_judged_by_what_somebody_sees(word: str) -> None:
    assert diagnosed(log=SILENT).verdict == "unknown"
    found = diagnosed(f"symptom={word}", log=SILENT)
    assert found.verdict == "sick"
    assert found.findings


def test_a_complaint_counts_also_where_the_numbers_look_fine() -> None:
    falling = "".join(f"step {at} loss {3.0 - 0.1 * at:.2f}\n" for at in range(12))
    assert diagnosed(log=falling).verdict == "healthy"
    assert diagnosed("symptom=same", log=falling).verdict == "sick"


def test_a_symptom_that_nobody_knows_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="not a known symptom") as refused:
        understand_told(["symptom=purple"])
    assert all(word in str(refused.value.fix) for word in SYMPTOMS)


ASKED = "I changed the scheduler to OneCycleLR and call scheduler.step() once per epoch. How should max_lr be chosen?\n"


def test_where_nothing_shows_trouble_the_causes_of_similar_reports_are_remarks_and_no_alarm() -> None:
    found = diagnosed(log=ASKED)
    assert found.verdict == "unknown"
    assert found.cause is None
    assert found.findings[0].cause == "lr-schedule-bug"
    assert {each.severity for each in found.findings} == {"info"}


def test_a_healthy_log_that_nobody_asks_about_gets_no_such_remark() -> None:
    healthy = "".join(f"epoch {at} loss {2.4 - 0.2 * at:.3f} OneCycleLR scheduler\n" for at in range(8))
    assert diagnosed(log=healthy).verdict == "healthy"
    assert not diagnosed(log=healthy).findings


@pytest.mark.parametrize(
    ("complaint", "losses", "verdict"),
    [
        ("the model is not learning", (4.21, 4.09, 4.08, 4.07, 4.07), "sick"),
        ("the model is not learning", (4.21, 3.5, 2.9, 2.2, 1.8), "healthy"),
        ("the loss keeps increasing", (2.2, 1.9, 2.1, 2.4, 2.6), "sick"),
        ("the loss keeps increasing", (2.2, 1.9, 1.8, 1.7, 1.6), "healthy"),
    ],
)
def test_a_complaint_about_the_loss_counts_where_the_numbers_bear_it_out(
    complaint: str, losses: tuple[float, ...], verdict: str
) -> None:
    log = "".join(f"epoch {at} loss {loss}\n" for at, loss in enumerate(losses))
    assert diagnosed(log=f"{complaint}\n{log}").verdict == verdict
