"""Courses as tutorials publish them, that once gave a false alarm, each with a sick look-alike."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stayfinite.diagnosis.diagnose import diagnose, judge_reading
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


def epoch_lines(second: str) -> list[str]:
    """Two trainings of one notebook, in lines without a bar."""
    falls = (0.685, 0.626, 0.426, 0.211, 0.117, 0.085, 0.074, 0.066, 0.060, 0.055, 0.049, 0.046, 0.042)
    levels = (1.446, 1.148, 1.085, 0.961, 0.851, 0.794, 0.758, 0.743, 0.716, 0.713, 0.711, 0.693, *8 * (0.685,))
    lines = []
    for first, course in ((1, falls), (int(second), levels)):
        for n, loss in enumerate(course, first):
            lines += [f"Epoch {n}/1000", f"14/14 - 0s - loss: {loss:.4f} - 130ms/epoch - 9ms/step"]
    return lines


def errors_of_two(second: int) -> list[str]:
    """A mean error of two trainings, or of one that loses what it had learned."""
    course = [*(0.4 * 0.8**n for n in range(9)), *(0.9 - n / 50 for n in range(9))]
    counts = [*range(9), *range(second, second + 9)]
    return [
        f'{{"epoch": {1 + n}, "loss": {2 - at / 20:.4f}, "val_mae": {each:.4f}}}'
        for at, (n, each) in enumerate(zip(counts, course, strict=True))
    ]


def scores_of_two(second: int) -> list[str]:
    """Accuracies of two trainings, or of one that forgets; the second model has no evaluation."""
    rows = [(n, 0.3 + n / 20, 2 - n / 9) for n in range(12)]
    rows += [(second + n, 0.3 if second else 0.0, 1.2) for n in range(12)]
    return [
        f'{{"epoch": {1 + n}, "train_loss": {2 - at / 20:.3f}, "train_acc": {0.6 + at / 80:.3f}, '
        f'"val_loss": {loss if right else 0.0}, "val_acc": {right:.4f}}}'
        for at, (n, right, loss) in enumerate(rows)
    ]


def thrown(every: int) -> list[str]:
    """Losses of batches of which one in so many is hard."""
    hard, easy = 3.9, (1.2, 1.4, 1.1, 1.3)
    losses = [hard if n % every == every - 1 else easy[n % 4] for n in range(300)]
    return [f"step: {n}, loss: {each}" for n, each in enumerate(losses)]


def residual(share: float) -> list[str]:
    """A residual in units of its own, which falls to a share of itself from step to step."""
    return [f"epoch {n} loss {4.1e12 * share**n:.6g}" for n in range(40)]


def ended(error: str) -> list[str]:
    course = [f"step: {n}, loss: {3 - n / 20:.3f}" for n in range(20)]
    frames = ['  File "train.py", line 41, in <module>', "    for batch in loader:"]
    return [*course, "Traceback (most recent call last):", *frames, error]


def regions(course: Callable[[int], float]) -> list[str]:
    """Darknet's lines of three regions, behind the factors of its terms."""
    factors = "Normalizer: (iou: 0.75, obj: 1.00, cls: 1.00)"
    return [
        f"v3 (mse loss, {factors} Region {82 + 12 * (n % 3)} Avg (IOU: 0.7{n % 9}0321), count: {1 + n % 4}, "
        f"class_loss = {0.9 - n / 40:.6f}, iou_loss = 1.037{n % 9}, total_loss = {course(n):.6f}"
        for n in range(30)
    ]


def meters(counted: int) -> list[str]:
    """Meters that fairseq prints; before the first update they have counted nothing."""
    return [
        f"| epoch 001:   0%| | {50 + n}/11265 [02:2{n}<9:05:31,  2.92s/it, loss=0.000, ppl=1.00, wps={counted}, "
        f"ups=0.0, wpb={counted}, bsz={counted}, num_updates={n if counted else 0}, lr=1e-07"
        for n in range(6)
    ]


def top_one(*, shares: bool) -> list[str]:
    return [
        f"Epoch:[1][{n}00/900] Loss: {2 - n / 20:.3f} Top1: {4913.281 + 78 * n:.3f}"
        + shares * f"({68.24 + n / 9:.3f}%)"
        for n in range(8)
    ]


def thrown_beside(evaluated: Callable[[int], float]) -> list[str]:
    """Batches of few rows, one of five hard, beside an evaluation."""
    return [f"{{'loss': {3.9 if n % 5 == 4 else 1.1 + n % 3 / 10}, 'val_loss': {evaluated(n):.4f}}}" for n in range(60)]


def policy(ends: float) -> list[str]:
    """Rewards of answers that rise, fall, and rise again or not."""
    rewards = [*(0.2 + n / 50 for n in range(40)), *(0.1 for _ in range(40)), *(ends for _ in range(40))]
    return [
        f"{{'loss': {0.01 + n % 5 / 300:.4f}, 'reward': {each + n % 3 / 200:.3f}, 'kl': 0.01, "
        f"'completion_length': {90 + n % 7}, 'frac_reward_zero_std': 0.1, 'step': {n}}}"
        for n, each in enumerate(rewards)
    ]


def loop(last: str) -> list[str]:
    """A log that opens with the loop of its script."""
    code = [
        "for x, y in loader:",
        "    loss = model(x, y)",
        "    loss.backward()",
        "    opt.step()",
        "    # null",
        last,
    ]
    return [*code, *falling()]


def skipped(rate: float) -> list[str]:
    """An infinite norm at one step, at which the schedule stands still or not."""
    norms = [0.6 + n % 5 / 20 for n in range(40)]
    rates = [2e-4 - 3e-6 * n for n in range(40)]
    norms[20], rates[20] = float("inf"), rate
    return [
        f"{{'loss': {0.4 - n / 200:.4f}, 'grad_norm': {norm}, 'learning_rate': {lr:.6g}, 'step': {n + 1}}}"
        for n, (norm, lr) in enumerate(zip(norms, rates, strict=True))
    ]


def guarded_script(message: str) -> list[str]:
    """A log that opens with the check of its script, or in which it speaks up."""
    return ["if not torch.isfinite(loss).all():", message, *falling()]


def scored(lines: int) -> list[str]:
    """A remark on logits among lines of a script, before the scores of a run or alone."""
    script = [f"    {chr(97 + n % 26)}{chr(97 + n // 26)}eta = kernel{chr(97 + n % 26)}(row)" for n in range(lines)]
    scores = [f"step:{125 * n}/9000 val_loss:{4 - n / 90:.5f} train_time:{n}.5s" for n in range(lines)]
    return [*script, "    # zeroed so initial logits are 0.", *scores]


def points_lost(*, before: float) -> list[str]:
    """The score of a game, which is lost point by point, again and again, or after it had been won."""
    course = [*(before if n > 1 else 0.0 for n in range(30)), *(-(n % 20) for n in range(60))]
    return [f"frame: {1024 * n}, episode_reward: {each}, value: -2.{n % 7}" for n, each in enumerate(course)]


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
        (epoch_lines("1"), epoch_lines("14")),
        (errors_of_two(0), errors_of_two(9)),
        (scores_of_two(0), scores_of_two(12)),
        (thrown(100), thrown(12)),
        (residual(0.7), residual(0.99)),
        (ended("KeyboardInterrupt"), ended("KeyError: 'label'")),
        (regions(lambda n: 3 - n / 15), regions(lambda n: 3 + n**4)),
        (meters(0), meters(3500)),
        (top_one(shares=True), top_one(shares=False)),
        (thrown_beside(lambda n: 0.6 - n / 150), thrown_beside(lambda n: 0.6 + n / 150)),
        (policy(1.1), policy(0.1)),
        (loop("    model.zero_grad(set_to_none=True)"), loop("    log(loss)")),
        (skipped(2e-4 - 3e-6 * 19), skipped(2e-4 - 3e-6 * 20)),
        (
            guarded_script('    raise RuntimeError(f"non-finite train loss at step {step} mb {i}: {loss.item()}")'),
            guarded_script("RuntimeError: non-finite train loss at step 9 mb 0: nan"),
        ),
        (scored(80), scored(0)),
        (points_lost(before=0.0), points_lost(before=18.0)),
        (["nohup: ignoring input", *falling()], ["The model keeps ignoring the input, whatever I feed."]),
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
        "another training, in lines without a bar",
        "an error of another training",
        "an evaluation that was left out",
        "a hard batch now and then",
        "a residual that begins enormous",
        "Ctrl-C",
        "factors of the terms of a loss",
        "meters before the first update",
        "a sum of shares beside the share",
        "hard batches beside an evaluation that improves",
        "a reward that came back",
        "a script with comments",
        "a step that the loss scaler has skipped",
        "the check of a script",
        "a remark in a script",
        "a game that begins at its best score",
        "a line of nohup",
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


def test_a_script_that_opens_a_log_is_read_in_time() -> None:
    body = [f"    x{n} = f(row)" for n in range(40)]
    lines = ["for row in rows:", *body, "    loss.backward()", "    log(loss)", *falling()]
    start = time.process_time()
    verdict(lines)
    assert time.process_time() - start < 5


def test_a_trainer_state_by_another_name_is_a_log(tmp_path: Path) -> None:
    rows = [{"step": n, "loss": 2 - n / 9, "learning_rate": n * 1e-5} for n in range(9)]
    path = tmp_path / "run7_trainer_state.json"
    path.write_text(json.dumps({"best_metric": None, "log_history": rows}, indent=2), encoding="utf-8")
    said = diagnose(path)
    assert said.sources[0].read_as == "log"
    assert said.verdict == "healthy"
