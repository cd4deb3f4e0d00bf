"""Detectors that are lost: a rate meant for eight cards is blamed only where recipes are written for them."""

from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.reading import read_text

ULTRALYTICS = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n" + "".join(
    f"     {epoch}/30      2.61G      {loss}      {loss}      {loss}         22        640: 100%| 50/50 [00:10]\n"
    for epoch, loss in enumerate(["2.1", "1.6", "1.2", *["nan"] * 5], start=1)
)
MMDET = "".join(
    f"mmdet - INFO - Epoch [1][{50 * number}/7330] lr: 2.000e-02, loss_cls: {loss}, loss_bbox: {loss}, loss: {loss}\n"
    for number, loss in enumerate(["2.1", "1.6", "1.2", *["nan"] * 5], start=1)
)


def test_a_program_for_one_card_is_not_blamed_for_a_rate_of_eight():
    found = judge_reading(read_text(ULTRALYTICS))
    assert found.verdict == "sick"
    assert not any("eight GPUs" in line for finding in found.findings for line in finding.evidence)
    assert all(finding.confidence < 0.5 for finding in found.findings)  # nothing but NaN is to be seen


def test_a_recipe_for_eight_cards_is():
    cause = judge_reading(read_text(MMDET)).cause
    assert (cause.cause, cause.confidence > 0.7) == ("lr-too-high", True)
    assert any("eight GPUs" in line for line in cause.evidence)


BREAKS = [
    "{'loss': 5.6, 'learning_rate': 0.0002}",
    "{'loss': 5.3, 'learning_rate': 0.0002}",
    "{'loss': 153318.9, 'grad_norm': nan}",
]
NAN, FINE = "{'loss': nan, 'learning_rate': 0.0002}", "{'loss': 5.4, 'learning_rate': 0.0002}"


def causes(lines: list[str]) -> list[str]:
    found = judge_reading(read_text("\n".join(lines))).findings
    return [each.cause for each in found if not any("a guess" in line for line in each.evidence)]


def test_a_nan_that_comes_and_goes_is_not_the_learning_rate():
    assert "lr-too-high" not in causes([*BREAKS, FINE, NAN, FINE, NAN, NAN, FINE, FINE, NAN])
    assert causes([*BREAKS, NAN, NAN, NAN, NAN, NAN, NAN])[0] == "lr-too-high"


def test_an_epsilon_that_rounds_away_explains_a_division_by_zero():
    code = "loss = -torch.log(1 - y_pred.clamp(1e-8, 1 - 1e-8))"
    assert causes([code, "ZeroDivisionError: float division by zero"])[0] == "loss-formula-singularity"
    kept = code.replace("1e-8", "1e-4")
    assert "loss-formula-singularity" not in causes([kept, "ZeroDivisionError: float division by zero"])
