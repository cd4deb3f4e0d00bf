"""Where no clue decides, causes are weighed by what labelled runs had; and what people say of a run is understood."""

from __future__ import annotations

import pytest

from stayfinite.diagnosis.diagnose import facts_of, judge_reading
from stayfinite.diagnosis.reading import read_text
from stayfinite.rules.experience.features import features, words
from stayfinite.rules.experience.likely import from_lines, judged, to_lines, weights
from stayfinite.rules.registry import all_rules


def test_every_cause_that_experience_knows_is_one_of_a_sick_run():
    loud = {rule.slug for rule in all_rules() if rule.severity != "info"}
    assert set(weights().bias) <= loud


def test_shares_are_those_of_all_runs_and_reasons_were_seen():
    found = {"the loss is not finite", "precision fp16", "fp16 somewhere", "bad from the start"}
    said = judged(found, weights())
    assert sum(each.share for each in said) == pytest.approx(1.0)
    assert said[0].share >= said[-1].share
    assert all(set(each.because) <= found for each in said)
    assert "fp16-overflow" in said[0].cause


def test_a_cause_that_no_labeled_run_had_is_guessed_from_what_describes_it():
    said = "BatchNorm with eps=1e-12: the variance of a constant channel is 0 and 1/sqrt(0+eps) is inf"
    assert "norm-eps" in [each.cause for each in judged(words([said]), weights())][:2]


def test_a_model_is_read_as_it_was_written():
    assert from_lines(to_lines(weights())) == weights()


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("softmax-before-cross-entropy", "My loss stays at 1.74. I apply nn.Softmax and then nn.CrossEntropyLoss."),
        ("references-transposed", "sacrebleu is nonsense: references are a list per sentence, not per reference set."),
        ("grpo-zero-advantage", "All completions of a group get the same reward: the advantage is zero, no learning."),
        ("flipped-sign", "The reward goes down steadily: policy loss is (log_prob * advantage).mean(), no minus."),
    ],
)
def test_what_a_person_describes_without_numbers_is_found_by_its_words(cause: str, said: str):
    assert cause in [each.cause for each in judge_reading(read_text(said + "\n")).findings[:3]]


def test_an_error_that_is_not_about_nan_is_not_blamed_on_the_learning_rate():
    log = "epoch 1 loss 2.31\nepoch 1 loss 2.11\nRuntimeError: the frobnicator wants two operands, got three\n"
    found = judge_reading(read_text(log))
    assert found.verdict == "sick"
    assert not {"lr-too-high", "no-warmup", "unscaled-input"} & {each.cause for each in found.findings}


def test_words_are_those_inside_of_names():
    found = words(["nn.CrossEntropyLoss(), learning_rates"])
    assert {"cross", "entropy", "loss", "learn", "rate", "cross+entropy", "learn+rate"} <= found


FORM = """### System Info
- `transformers` version: 4.44.0
- Platform: Linux-5.15.0-x86_64
- PyTorch version (GPU?): 2.3.1+cu121 (True)
- [x] My own modified scripts
accelerate==1.2.3
"""


def test_what_a_form_asks_for_says_nothing():
    def found(text: str) -> set[str]:
        return features(facts_of(read_text(text)))

    log = "epoch 1: lr 0.001 loss 2.5\nRuntimeError: index 40 is out of bounds for dimension 0\n"
    assert found(FORM + log) == found(log)
    assert {"index", "bound"} <= found(log)


def test_a_guess_is_said_to_be_one_and_never_sure():
    found = judge_reading(read_text("loss: nan\n"))
    causes = [each for each in found.findings if "a guess" in " ".join(each.evidence)]
    assert len(causes) >= 2
    assert all(each.confidence < 0.6 for each in causes)


def test_a_cause_that_is_proved_keeps_experience_out():
    log = "RuntimeError: value cannot be converted to type at::Half without overflow\n"
    assert not any("a guess" in line for each in judge_reading(read_text(log)).findings for line in each.evidence)


@pytest.mark.parametrize(
    "said",
    [
        "loss 2.98\n(stays at 2.98)", "acc never goes above 10%", "the network always predicts class 0",
        "generated images are all black", "nan after 3 epochs", "mAP is 0 after 50 epochs", "WER is 100%",
        "the agent does not learn anything", "weights don't change", "results are much worse than in the paper",
        "accuracy drops to 10% after epoch 5", "PSNR around 12", "step_loss == nan", "the loss is negative",
        "loss: 0.35 -> nan", "| 2 | nan | nan |",
        "iter 0 loss 2.3\niter 1 loss 8.9\niter 2 loss 45.1\niter 3 loss 912.4",
        "epoch 1 loss 0.6932\nepoch 2 loss 0.6931\nepoch 3 loss 0.6931",
    ],
)  # fmt: skip
def test_what_people_say_of_a_sick_run_is_understood(said: str):
    assert judge_reading(read_text(said + "\n")).verdict == "sick"


@pytest.mark.parametrize(
    "said",
    [
        "val_loss did not improve from 0.31", "expected time: 3 hours", "batch size 4 instead of 16", "psnr 31.2",
        "loss starts at 10.8 and falls quickly", "All inputs are expected on cuda:0", "no nan anywhere",
        "step 10 loss 119743.9\nstep 20 loss 119688.3\nstep 30 loss 122734.3",
        "Mean Reward: -82.9\nMean Reward: -4\nRuntimeWarning: Mean of empty slice.\nMean Reward: nan\nMean Reward: nan",
    ],
)  # fmt: skip
def test_what_people_say_of_a_healthy_run_alarms_nobody(said: str):
    assert judge_reading(read_text(said + "\n")).verdict != "sick"


def test_a_rate_of_infinity_has_no_size():
    found = features(facts_of(read_text("learning_rate: inf\nepoch 1 loss nan\nepoch 2 loss nan\n")))
    assert not any(each.startswith("a rate from") for each in found)
