"""A run in which a number is lost, stuck or blown up is sick, whatever its log looks like; a look-alike is not."""

from __future__ import annotations

import pytest

from stayfinite.diagnosis.diagnose import judge_reading, read_text
from stayfinite.diagnosis.diagnosis import Diagnosis

FRAMES = """Detected inf/nan during batch_number=0
Last 21 forward frames:
abs min  abs max  metadata
                  encoder.block.2.layer.1.DenseReluDense.wo Linear
1.01e-06 6.44e+00 weight
0.00e+00 9.74e+03 input[0]
3.18e-04 {last} output
                  encoder.block.2.layer.1.dropout Dropout
3.18e-04 {last} input[0]
0.00e+00 {end} output
"""


def diagnosed(log: str) -> Diagnosis:
    return judge_reading(read_text(log))


@pytest.mark.parametrize(
    ("log", "where"),
    [
        ("11 2.31\n12 2.29\n13 nan\n14 nan\n", "13"),
        ("tensor([[nan, nan, nan],\n        [nan, nan, nan]], device='cuda:0', grad_fn=<AddmmBackward0>)\n", "printed"),
        ("hidden: [nan nan nan]\n", "hidden"),
        ("iter 0: activation mean 0.1 std 1.2\niter 10: activation mean nan std nan\n", "activation_mean"),
        ("Iteration 100: weights norm 1.2e3\nIteration 200: weights norm inf\n", "weights_norm"),
        ("mean reward -20.1\nmean reward -20.5\nmean reward nan\n", "mean_reward"),
        ("loss_rpn_box_reg: nan\n", "loss_rpn_box_reg"),
        ("step 1 loss 1.9\nstep 2 loss 11.4\n", "diverges"),
        ("".join(f"[1, {each}000] loss: 2.302\n" for each in range(1, 5)), "ln 10"),
        ("".join(f"epoch {each} loss {3 / each:.2f}\nbleu 0.0\n" for each in range(1, 5)), "bleu is 0"),
        ("".join(f"Epoch {each}: acc=0.1\n" for each in range(1, 6)), "acc does not change"),
        ("train loss is always 0\n", "the loss is 0"),
        ("after 10 epochs the weights are not changing\n", "weights"),
        ("the model predicts the same class for every image\n", "same answer"),
        ("run 1: step 14000: loss 1.2 -> 16000\n", "diverges"),
    ],
)
def test_a_sick_run_is_called_sick_with_what_is_wrong(log: str, where: str) -> None:
    found = diagnosed(log)
    assert found.verdict == "sick"
    assert any(where in words for words in found.trouble), found.trouble


@pytest.mark.parametrize(
    "log",
    [
        "11 2.31\n12 2.29\n13 2.21\n14 2.20\n",
        "mask = tensor([[0., -inf, -inf], [0., 0., -inf], [0., 0., 0.]])\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "{'best_valid_loss': inf, 'best_train_loss': inf}\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "val_loss improved from inf to 0.4213, saving model\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "ep_rewmean nan\npolicy_loss -0.0118\nvalue_loss 0.4478\n",
        "".join(f"epoch {each} loss {3 / each:.2f}\nbleu {each}.5\n" for each in range(1, 5)),
        "".join(f"Epoch {each}: acc=1.0\n" for each in range(1, 6)),
        "val_loss did not improve from 0.45\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "Moving average ignored a value of inf\nepoch 1 loss 6.1\nepoch 2 loss 6.0\n",
        "loss descends from 16 to 1.2\n",
    ],
)
def test_a_look_alike_is_not_sick(log: str) -> None:
    found = diagnosed(log)
    assert found.verdict != "sick", (found.trouble, found.findings)


def test_frames_of_activations_prove_the_overflow_and_name_its_module() -> None:
    cause = diagnosed(FRAMES.format(last="6.27e+04", end="     inf")).cause
    assert cause is not None
    assert (cause.cause, cause.confidence > 0.9) == ("fp16-overflow", True)
    assert "encoder.block.2.layer.1.dropout" in cause.fix
    traced = FRAMES.replace("Detected inf/nan during batch_number=0", "*** Starting batch number=1 ***")
    assert diagnosed(traced.format(last="6.27e+02", end="6.31e+02")).verdict != "sick"
