"""What beside the points: named metrics, and lines that are no measurements."""

from __future__ import annotations

import math

import pytest

from readers.logs.reading_text import points_of, same, series_of

NAN = math.nan

METRICS = [
    (
        "{'eval_loss': nan, 'eval_runtime': 12.5, 'eval_bleu': 0.5, 'epoch': 1.0}\n",
        {"eval_loss": [NAN], "eval_bleu": [0.5]},
    ),
    (
        "{'loss': 1.0, 'rewards/mean': 0.25, 'mean_token_accuracy': 0.5, 'kl': nan}\n",
        {"rewards/mean": [0.25], "mean_token_accuracy": [0.5], "kl": [NAN]},
    ),
    ("Epoch 2: Training Loss: 9.5, Validation Loss: nan, BLEU: 0.5\n", {"validation_loss": [NAN], "bleu": [0.5]}),
    ("[val] step 31 | loss 1.5\n", {"eval_loss": [1.5]}),
    (
        "| epoch 002 | valid on 'valid' subset | valid loss 1.5 | valid ppl 3.5\n",
        {"valid_loss": [1.5], "valid_ppl": [3.5]},
    ),
    ("step 20: train loss 4.5, val loss 4.25\n", {"val_loss": [4.25]}),
    (
        "mmdet - INFO - Epoch [1][50/600]\tlr: 2.5e-03, loss_cls: 0.5, loss_bbox: nan, loss: nan\n",
        {"loss_cls": [0.5], "loss_bbox": [NAN]},
    ),
    (
        " validation loss at iteration 500 | lm loss value: 2.5E+00 | lm loss PPL: 12.5E+00 |\n",
        {"lm_loss_value": [2.5], "lm_loss_ppl": [12.5]},
    ),
    ("[2023-01-02 03:04:05,678 INFO] Validation perplexity: 12.5\n", {"valid_perplexity": [12.5]}),
    (
        "trainable params: 0 || all params: 1,500,000 || trainable%: 0.0\n",
        {"trainable_params": [0.0], "all_params": [1.5e6]},
    ),
    ("  Number of trainable parameters = 4,194,304\n", {"trainable_params": [4194304.0]}),
    ("Iter: 100 D_loss: nan G_loss: 0.5\n", {"d_loss": [NAN], "g_loss": [0.5]}),
    (
        '{"step": 3, "loss": 1.0, "parts": {"text": 0.25, "latent": NaN}}\n',
        {"parts/text": [0.25], "parts/latent": [NAN]},
    ),
    ('{"mode": "val", "epoch": 1, "iter": 50, "loss": 0.5}\n', {"eval_loss": [0.5]}),
]


@pytest.mark.parametrize(("text", "expected"), METRICS)
def test_every_other_number_with_a_name_is_a_metric(text: str, expected: dict[str, list[float]]) -> None:
    metrics = series_of(text)[0].metrics
    found = {name: metrics[name].values for name in expected if name in metrics}
    assert same(found, expected), {name: track.values for name, track in metrics.items()}


@pytest.mark.parametrize(
    "text",
    [
        "[val] step 31 | loss nan",
        "{'eval_loss': 1.5, 'epoch': 1.0}",
        "Test set: Average loss: 0.5, Accuracy: 99/100 (99%)",
        "Validation: loss 3.5, acc 0.5",
        "Epoch(val) [1][735/735]  loss: 0.5",
        '{"mode": "val", "epoch": 1, "iter": 50, "loss": 0.5}',
    ],
)
def test_an_evaluation_is_no_training_point(text: str) -> None:
    series = series_of(f"{text}\n")[0]
    assert not len(series)
    assert series.metrics


@pytest.mark.parametrize(
    "text",
    [
        "loss = 0.5 * (first + second)",
        "    loss = criterion(output, target)",
        "learning_rate=5e-05,",
        '  "loss_scale": 0,',
        'config: {"train_batch_size": 8, "fp16": {"enabled": true, "loss_scale": 0}}',
        "Namespace(lr=0.0001, epochs=10, loss_scale=128, clip_norm=0.0, batch_size=4)",
        "{'lr': 0.001, 'batch_size': 8, 'epochs': 10}",
        "The final loss was 0.5 after 10 epochs",
        "Resuming from step 1000",
        "  Total optimization steps = 300",
        "loss weight: 0.5",
        "max_grad_norm: 1.0",
        "python train.py --lr 0.001 --epochs 10 --loss 3 --loss_scale 128",
        "ValueError: loss: 3 is not finite",
        "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
        "NCCL WARN Call to ibv failed: loss of 3 packets",
        'File "train.py", line 12, in step: loss = 3',
        "Loading checkpoint shards at step 5, 2/2",
        "we skip batches if the loss is nan",
        "the loss is not nan",
        "the loss is 5",
        "no nan loss found",
        "5/42 samples got nan grad. These were ignored for CTC loss.",
        "time cost: 0.23",
        "epoch 3 cost 12.5 s",
        "API cost: 0.02",
        "cost: 5.1",
        "nll: 1.0, kld: 0.5",
        "lr: 0.1, epochs: 90",
        "base lr 0.1, step 30",
        "learning rate: 0.001",
        "max_lr = [0.1]",
        "Loss scale: 128",
        "num losses: 3",
        "W tensorflow/core/util/ctc/ctc_loss_calculator.cc:144] No valid path found.",
    ],
)
def test_prose_settings_and_code_are_messages_and_no_measurements(text: str) -> None:
    series = series_of(f"{text}\n")[0]
    assert points_of(series) == []
    assert not series.metrics
    assert [message.text for message in series.messages] == [text]
    assert series.kind == ""


@pytest.mark.parametrize(
    "text",
    [
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 8, reducing to 4",
        "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 4096.0",
        "NOTE: overflow detected, setting loss scale to: 0.25",
        "WARNING: The grad norm is nan. Skipping updating the model.",
        "Loss is nan, stopping training",
        "trainable params: 0 || all params: 1,066 || trainable%: 0.0",
    ],
)
def test_what_is_both_is_a_point_and_a_message(text: str) -> None:
    series = series_of(f"{text}\n" * 3)[0]
    assert [(message.text, message.count, message.line, message.last_line) for message in series.messages] == [
        (text, 3, 1, 3)
    ]


def test_messages_are_grouped_with_their_like() -> None:
    lines = [f"WARNING: tokenization mismatch: {i} vs. {i + 1}. (ignored)" for i in range(50)]
    lines[10:10] = ["step 1 | loss 2.5"]
    (message,) = series_of("\n".join(lines))[0].messages
    assert (message.text, message.line, message.count, message.last_line) == (lines[0], 1, 50, 51)
    assert message.where == "train.log:1"


def test_a_flood_of_different_messages_leaves_room_for_trouble() -> None:
    letters = "abcdefghijklmnopqrst"
    flood = [f"note {a}{b}{c}{d}" for a in letters for b in letters for c in letters for d in letters[:1]]
    messages = series_of("\n".join([*flood, "CUDA error: out of memory"]))[0].messages
    assert len(messages) <= 4_001
    assert messages[-1].text == "CUDA error: out of memory"


def test_a_very_long_message_keeps_its_head_and_its_tail() -> None:
    (message,) = series_of("begin " + "x" * 50_000 + " finish\n")[0].messages
    assert len(message.text) <= 8_192
    assert message.text.startswith("begin")
    assert message.text.endswith("finish")


TRACEBACK = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 7, in <module>
[rank0]:     loss = 3.5
[rank0]:   File "model.py", line 9, in forward
[rank0]:     return x / 0
[rank0]: ZeroDivisionError: division by zero
[rank0]: During handling of the above exception, another exception occurred:
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 8, in <module>
[rank0]:     raise ValueError("bad") from None
[rank0]: ValueError: bad
"""


def test_a_traceback_is_one_message_besides_its_lines() -> None:
    series = series_of(TRACEBACK)[0]
    texts = [message.text for message in series.messages]
    whole = [text for text in texts if text.startswith("Traceback") and "\n" in text]
    assert "line 9, in forward" in whole[0]
    assert whole[0].endswith("ZeroDivisionError: division by zero")
    assert "ZeroDivisionError: division by zero" in texts
    chained = [text for text in texts if "ValueError: bad" in text and "\n" in text]
    assert "ZeroDivisionError" in chained[0]
    assert not len(series)


def test_a_traceback_at_the_end_of_a_log_is_not_lost() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    import b'
    assert any("\n" in message.text for message in series_of(text)[0].messages)


FRAMES = """\
Detected inf/nan during batch_number=3
Last 21 forward frames:
abs min  abs max  metadata
                  encoder.block.2.layer.1.DenseReluDense.wo Linear
1.01e-06 6.44e+00 weight
1.79e-06 4.65e+03 input[0]
3.18e-04 6.27e+04 output
                  lm_head Linear
0.00e+00      inf output
step 3 | loss 1.5
"""


def test_overflow_frames_give_the_largest_value_of_each_module() -> None:
    series = series_of(FRAMES)[0]
    assert series.metrics["overflow/encoder.block.2.layer.1.DenseReluDense.wo"].values == [6.44, 4650.0, 62700.0]
    assert series.metrics["overflow/lm_head"].values == [math.inf]
    assert any(message.text.startswith("Detected inf/nan") for message in series.messages)
    assert any("lm_head Linear" in message.text for message in series.messages)
    assert points_of(series) == [{"step": 3.0, "loss": 1.5}]


def test_the_average_at_the_end_does_not_pose_as_the_last_step() -> None:
    text = "{'loss': 0.5, 'epoch': 0.9}\n{'train_runtime': 9.5, 'train_loss': 2.5, 'epoch': 1.0}\n"
    series = series_of(text)[0]
    assert points_of(series) == [{"loss": 0.5, "epoch": 0.9}]
    assert series.metrics["train_loss"].values == [2.5]


def test_the_average_is_a_point_where_there_is_no_other() -> None:
    series = series_of("{'train_runtime': 9.5, 'train_loss': 0.0, 'epoch': 1.0}\n")[0]
    assert [point.loss for point in series.points] == [0.0]


def test_what_another_process_printed_behind_the_numbers_stays_a_message() -> None:
    bar = " 7/10 [===>....] - ETA: 5s - loss: 28.7215"
    series = series_of(f"{bar} 2018-12-26 11:04:36: W ctc_loss_calculator.cc:144] No valid path found.\n")[0]
    assert points_of(series) == [{"step": 7.0, "loss": 28.7215}]
    assert [message.line for message in series.messages] == [1]


def test_perplexities_and_parts_of_the_loss_are_metrics() -> None:
    series = series_of(
        "Train perplexity: 8.5\nEpoch 5 | train ppl 3.5 | valid ppl inf\nKLD Loss: 2.5, NLL Loss: 3.5, Loss: 6.0\n"
    )[0]
    assert {name: track.values for name, track in series.metrics.items()} == {
        "train_perplexity": [8.5],
        "train_ppl": [3.5],
        "valid_ppl": [float("inf")],
        "kld_loss": [2.5],
        "nll_loss": [3.5],
    }
