"""Courses as tutorials publish them, that once gave a false alarm, each with a sick look-alike."""

from __future__ import annotations

import pytest

from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.reading import read_text

BAR = "75/75 [==============================] - 15s 194ms/step"


def verdict(lines: list[str]) -> str:
    return judge_reading(read_text("\n".join(lines) + "\n")).verdict


def accuracies(last: str) -> list[str]:
    told = ["10.0", "33.333335876464844", "86.66667175292969", last]
    return [f"Epoch: {n}\nLoss: {4 - n / 2}\nTraining accuracy: {each}" for n, each in enumerate(told)]


def trainings(second: str) -> list[str]:
    """Two models, one after the other in one notebook."""
    lines = []
    for level, starts in ((0.1, "1"), (6000.0, second)):
        for n in range(5):
            lines += [f"Epoch {int(starts) + n}/9", f"{BAR} - loss: {level * (1 - n / 20):.4f}"]
    return lines


def variational(kl: str) -> list[str]:
    return [
        f"Epoch {n}/9\n{BAR} - gen_loss: {110 - n}.5 - {kl}: 83.{8 + n % 2} - vgg_loss: {16 - n / 9:.3f}"
        for n in range(1, 9)
    ]


def top_five(name: str) -> list[str]:
    course = [
        f"Epoch {n}/9\n{BAR} - accuracy: 0.{50 + n} - loss: {2 - n / 9:.3f} - val_accuracy: 0.{48 + n}"
        for n in range(1, 9)
    ]
    return [*course, "Test accuracy: 57.1%", f"{name}: 98.42%"]


def falling() -> list[str]:
    return [f"epoch {n} loss {2 - n / 9:.3f}" for n in range(9)]


def overfitting() -> list[str]:
    return [
        f"epoch {n} - loss: {0.6**n:.4f} - acc: {1 - 0.2 * 0.6**n:.4f} - "
        f"val_loss: {0.34 + n / 9:.4f} - val_acc: 0.88{n % 3}"
        for n in range(9)
    ]


def rare_class() -> list[str]:
    return [
        f"epoch {n} loss {2 - n / 9:.3f} eval_cat_f1 0.7{n} eval_dog_f1 0.6{n} eval_cow_f1 0.5{n} eval_newt_f1 0.0"
        for n in range(9)
    ]


def batches(gain: float) -> list[str]:
    """Accuracies of batches beside a speed, without a loss."""
    noise = (0.007, 0.001, -0.003, 0.0, -0.002, -0.001)
    return [
        f"Node[0] Epoch[0] Batch [{50 * n}]  Speed: {2504 - 9 * n}.86 samples/sec  "
        f"Train-accuracy={0.1 + n * gain + off:.6f}"
        for n, off in enumerate(noise)
    ]


def found(rate: float) -> list[str]:
    return [
        f"{{'eval_loss': 0.0{59 - n}, 'eval_precision': {rate}, 'eval_recall': {rate}, "
        f"'eval_f1': {rate}, 'epoch': {n}}}"
        for n in range(3)
    ]


def update(kl: float, clipped: float) -> list[str]:
    return [
        "| train/           |       |", f"|    approx_kl     | {kl} |", f"|    clip_fraction | {clipped} |",
        "|    value_loss    | 1.05  |", "---------------------------",
    ]  # fmt: skip


def players(name: str) -> list[str]:
    """Two losses that add up to nothing, or a loss that is nothing."""
    second = "/0.0000" if "/" in name else ""
    return [f"Epoch: {n}/9 | {name}: 0.0000{second}" for n in range(9)]


def rewarded(name: str) -> list[str]:
    return [f"{name} = {1 + n / 9:.3f}\n{n}998 loss:{0.00008 * 1.9**n:.5f}" for n in range(9)]


def scores(*, rises: bool) -> list[str]:
    """An accuracy that falls a little after its peak, or back below where it began; no step stands beside it."""
    fall = 0.001 if rises else 0.006
    course = [*(0.41 + n / 40 for n in range(10)), *(0.66 - n * fall for n in range(60))]
    return [f"46s - loss: {2 - each:.4f} - acc: {each:.4f}" for each in course]


WARNED = (
    "conv.py:456: UserWarning: Plan failed with a cudnnException: cudnn_status: CUDNN_STATUS_NOT_SUPPORTED",
    "  return F.conv2d(input, weight, bias, self.stride,",
    "{'eval_loss': 9.745, 'eval_map': 0.4751, 'eval_map_50': 0.7251, 'epoch': 10.0}",
)


@pytest.mark.parametrize(
    ("healthy", "sick"),
    [
        (accuracies("100.00000762939453"), accuracies("104.16666793823242")),
        (trainings("1"), trainings("6")),
        (players("Gen/Dis Loss"), players("Loss")),
        (rewarded("AverageReturn"), rewarded("Memory")),
        (
            ["Skipped loading some models, missing a dependency. No module named 'jax'", *falling()],
            ["Traceback (most recent call last):", "ModuleNotFoundError: No module named 'jax'"],
        ),
        (batches(0.02), batches(0.0)),
        (found(0.02), found(0.0)),
        (update(0.02, 0.21), update(33.2, 0.999)),
        (scores(rises=True), scores(rises=False)),
        (list(WARNED), ["RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED", *WARNED[1:2]]),
    ],
    ids=[
        "an accuracy of 100 % in 32-bit floats",
        "another model, trained afterwards",
        "two players whose losses cancel",
        "a loss that rises with the rewards",
        "an optional dependency",
        "batches that begin at chance",
        "a positive class that is found",
        "an update of a policy",
        "a score after its peak",
        "a warning of cuDNN",
    ],
)
def test_a_healthy_course_gives_no_alarm_and_its_sick_look_alike_does(healthy: list[str], sick: list[str]) -> None:
    assert verdict(healthy) != "sick"
    assert verdict(sick) == "sick"


@pytest.mark.parametrize(
    "healthy",
    [
        overfitting(),
        rare_class(),
        variational("kl_loss"),
        top_five("Test top 5 accuracy"),
        [
            "WARNING:tensorflow:The parameters `use_cache` cannot be updated when calling a model.",
            *(
                f"459/459 [=====] - 49s 81ms/step - loss: {0.7 - n / 9:.4f} - val_loss: {0.72 - n / 9:.4f}"
                for n in range(4)
            ),
        ],
        [
            "Prediction: the an an an an an an an an an an an house",
            *(
                f"Prediction: {each}"
                for each in ("a green house", "two boats", "no idea", "the old sea", "her hat", "rain")
            ),
            *falling(),
        ],
        [
            "Every effort moves you the the the the the the the the the the the the",
            *(f"Every effort moves you {each}." for each in ("home", "on", "up to him", "away", "far", "no more")),
            *falling(),
        ],
    ],
    ids=[
        "rows learned by heart",
        "a class that few rows have",
        "a KL term of a variational model",
        "accuracy among the first five",
        "arguments of a call",
        "answers that improve",
        "a prompt whose answers improve",
    ],
)
def test_a_healthy_course_gives_no_alarm(healthy: list[str]) -> None:
    assert verdict(healthy) != "sick"
