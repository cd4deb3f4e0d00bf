"""What looks like a cause and is another, or none: the knowledge that tells them apart."""

import pytest

from rules.example import Example
from stayfinite.rules.ranking import rank
from stayfinite.rules.registry import all_rules

HEALTHY = "".join(
    f"step {10 * i} loss {5 - 0.2 * i:.3f} grad_norm {1.2 - 0.02 * i:.3f} lr 1e-4\n" for i in range(1, 13)
)


def causes(log: str, config: str = "") -> list[str]:
    found = rank(Example(log=log, config=config).facts(), all_rules())
    return [finding.cause for finding in found if finding.severity != "info"]


@pytest.mark.parametrize(
    "warning",
    [
        "Corrupt JPEG data: 18 extraneous bytes before marker 0xd9",
        "W tensorflow/core/util/ctc/ctc_loss_calculator.cc:144] No valid path found.",
        "RuntimeWarning: overflow encountered in exp",
        "This instance will be ignored in loss calculation.",
        "grad norm is nan. Do not update model.",
        'Missing key(s) in state_dict: "head.weight" (ignored, strict=False)',
        "dlerror: libnvinfer.so.7: cannot open shared object file: No such file or directory",
        "Failed to import triton: No module named 'triton'",
        "UserWarning: cudnnFinalizeDescriptor Failed cudnn_status: CUDNN_STATUS_NOT_SUPPORTED",
        "W tensorflow: called on an input with incompatible shapes (32, 32) and (None, 32).",
        "caught KeyError: 'caption' in sample 12, using empty caption instead",
        "Is loss.mean() over tokens better? It works fine.",
        "The scaler skipped the very first step, afterwards all is normal.",
        "Without gradient checkpointing it works as well.",
    ],
)
def test_a_warning_beside_healthy_numbers_is_no_finding(warning: str) -> None:
    assert causes(warning + "\n" + HEALTHY) == []


def test_a_sigmoid_may_overflow_inside() -> None:
    warned = "RuntimeWarning: overflow encountered in exp\n  return 1.0 / (1.0 + np.exp(-x))\n"
    assert causes(warned + "round 1 logloss 0.55\n") == []


def test_a_pairwise_loss_broadcasts_on_purpose() -> None:
    sizes = "(torch.Size([32, 1, 64])) that is different to the input size (torch.Size([32, 64, 1]))"
    assert causes(f"UserWarning: Using a target size {sizes}. This will likely lead to incorrect results.\n") == []


def test_nothing_is_trainable_in_an_export_after_training() -> None:
    log = (
        "Number of trainable parameters = 4,194,304\n$ python export_model.py\ntrainable params: 0 || trainable%: 0.0\n"
    )
    assert causes(log) == []


def test_a_roberta_of_514_rows_holds_512_tokens() -> None:
    config = "model: roberta-base\nmax_position_embeddings: 514\nmax_length: 514\n"
    assert causes("IndexError: index out of range in self\n", config)[0] == "position-out-of-range"


def test_the_first_missing_row_of_a_small_table_is_a_position() -> None:
    log = "RuntimeError: index out of range: Tried to access index 150 out of table with 149 rows.\n"
    assert causes(log, "max_length: 150\nlearned positional embedding\n")[0] == "position-out-of-range"


def test_numpy_speaks_of_the_targets_and_not_of_the_graph() -> None:
    warning = "lib/bbox.py:29: RuntimeWarning: invalid value encountered in log\n  dh = np.log(gt_h / ex_h)\n"
    log = warning + "iter: 30, loss: nan\n"
    assert causes(log, "dataset: own\n")[0] == "bad-data-row"


def test_a_card_younger_than_its_cuda_is_a_matter_of_the_environment() -> None:
    assert causes("epoch 1 loss nan\n", "gpu: RTX 3080\ncuda 10.0, tensorflow-gpu 1.15\n")[0] == "environment"
    assert "environment" not in causes(HEALTHY, "gpu: RTX 3080\ncuda 10.0\n")


def test_targets_outside_the_unit_range_are_labels_and_not_scores() -> None:
    log = "Loss.cu:106: block: [1,0,0] Assertion `target_val >= zero && target_val <= one` failed.\n"
    assert causes(log)[0] == "label-out-of-range"
    assert causes("RuntimeError: all elements of input should be between 0 and 1\n")[0] == "probability-loss-on-logits"
