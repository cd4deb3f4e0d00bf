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
