"""A run in which a number is lost, stuck or blown up is sick, whatever its log looks like; a look-alike is not."""

from __future__ import annotations

import pytest

from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.diagnosis import Diagnosis
from stayfinite.diagnosis.reading import read_text

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


NOT_FINITE = "[2026-11-17 02:33:51,123] [WARNING] [logging.py:107:log_dist] [Rank 0] [deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated.\n"  # noqa: E501
SCALED = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {}, reducing to {}\n"
MEGATRON = " iteration {:8}/  10000 | learning rate: 1.000E-04 | lm loss: {:.3E} | loss scale: 1.0 | number of skipped iterations: {:3} | number of nan iterations:   0 |\n"  # noqa: E501
PROGRESS = "[Rank 0] step={}, skipped={}, lr=[0.0001], mom=[[0.9, 0.95]]\n"


def steps(count: int, skipped: range | tuple[int, ...] = (), line: str = NOT_FINITE) -> str:
    return "".join(
        (line if step in skipped else "") + f"step {step} loss {2.5 - 0.02 * step:.3f}\n"
        for step in range(1, count + 1)
    )


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


@pytest.mark.parametrize(
    "log",
    [
        steps(8, range(1, 9)),
        "bf16: true\n" + steps(8, range(1, 9)),
        steps(8, range(1, 9), "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1024.0\n"),
        steps(8, range(1, 9), "WARNING: The grad norm is nan. Skipping updating the model.\n"),
        "".join(PROGRESS.format(step, step) for step in range(10, 60, 10)),
        "".join(MEGATRON.format(step, 10.8, 10) for step in range(10, 60, 10)),
    ],
)
def test_a_run_whose_every_step_is_skipped_is_sick(log: str) -> None:
    found = diagnosed(log)
    assert found.verdict == "sick"
    assert found.trouble[0].startswith("every step is skipped"), found.trouble


@pytest.mark.parametrize(
    "log",
    [
        steps(40, (1, 2, 3)),  # the first ones, and then none
        steps(40, range(2, 40, 2)),  # every second one: half of the steps are taken
        "".join(
            NOT_FINITE + f"step {step} loss {2.5 - step / 1000:.3f}\n" for step in range(100, 600, 100)
        ),  # 1 in 100
        "".join(f"epoch {each} loss {2 - 0.1 * each:.2f}\n" + SCALED.format(4096, 2048) for each in range(1, 9)),
        "".join(PROGRESS.format(step, 3) for step in range(10, 60, 10)),
        "".join(PROGRESS.format(step, step // 2) for step in range(10, 60, 10)),
        "".join(MEGATRON.format(step, 10.8 - step / 20, 2) for step in range(10, 60, 10)),
        # Eight ranks tell of each skip while the scale is looked for.
        "".join(SCALED.format(2**power, 2 ** (power - 1)) * 8 for power in range(16, 8, -1)) + steps(20),
    ],
)
def test_a_run_that_takes_some_of_its_steps_is_not_said_to_take_none(log: str) -> None:
    assert not any("ever updated" in words for words in diagnosed(log).trouble)


@pytest.mark.parametrize("log", [steps(8, range(1, 9)), steps(30, (11, 12, 13))])
def test_skips_without_a_loss_scale_are_no_overflow_of_fp16(log: str) -> None:
    found = diagnosed(log)
    assert not {"fp16-overflow", "loss-scale-collapse", "amp-initial-scale-search"} & {
        each.cause for each in found.findings
    }
    assert "bf16=True" not in f"{found}"
