"""Settings that logs repeat, and the measurements that must not be taken for settings."""

import ast
import pathlib
import time

import pytest

from stayfinite.readers.configs import settings_in_text


def read(text):
    return settings_in_text(
        [(f"train.log:{number}", line) for number, line in enumerate(text.strip("\n").split("\n"), 1)]
    )


def examples():
    """Of `logged_settings.txt`: after `==` a name, then the lines of a log, then after `->` what they tell."""
    text = pathlib.Path(__file__).with_name("logged_settings.txt").read_text().replace("<ESC>", "\x1b")
    for section in text.split("== ")[1:]:
        name, *lines = section.rstrip("\n").split("\n")
        log = [line for line in lines if not line.startswith("-> ")]
        pairs = [line.removeprefix("-> ").partition(" = ") for line in lines if line.startswith("-> ")]
        yield name, "\n".join(log), {key: ast.literal_eval(value) for key, _, value in pairs}


LOGS = {name: (log, expected) for name, log, expected in examples()}


@pytest.mark.parametrize("what", LOGS)
def test_a_log_tells_its_settings(what):
    text, expected = LOGS[what]
    settings = read(text)
    found = {name: settings.find(name) for name in expected}
    assert {name: setting.value if setting else "(missing)" for name, setting in found.items()} == expected
    assert {setting.kind for setting in settings} == {"log"}
    assert all(setting.where.startswith("train.log:") for setting in settings)


MEASURED = [
    "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 5e-05, 'epoch': 0.97}",
    "{'eval_loss': nan, 'eval_runtime': 12.1, 'epoch': 1.0}",
    "{'train_runtime': 494.8, 'train_samples_per_second': 9.1, 'train_loss': 0.18, 'epoch': 0.99}",
    '{"loss": 1e-08, "grad_norm": 0.03865505, "global_step/max_steps": "2/4389"}',
    '{"step": 92261, "loss": NaN, "text_loss": 2.1, "grad_norm": NaN, "lr": 0.0001}',
    "{'rewards/mean': 0.1, 'kl': 0.2, 'learning_rate': 1e-06, 'epoch': 0.1}",
    "TrainOutput(global_step=1276, training_loss=nan, metrics={'train_runtime': 340.4428, 'epoch': 1.0})",
    "  train_loss               =        0.0",
    "  epoch                    =     2.9268",
    "  train_runtime            = 0:02:59.80",
    "[Rank 0] step=2, skipped=0, lr=[2.8e-07, 2.8e-07], mom=[[0.9, 0.95], [0.9, 0.95]]",
    " iteration 122/ 250000 | learning rate: 9.150E-06 | lm loss: 2.504220E+00 | loss scale: 1.0 | grad norm: 0.231 |",
    "| INFO | train_inner | epoch 003:      5 / 356 loss=9.44, lr=0.000175, gnorm=156.036, loss_scale=0, ups=4, bsz=2",
    "iter 3010: loss nan, time 1019.95ms, mfu 14.12%",
    "Epoch 0:  22%|..| 4/18 [00:17<01:02, 4.47s/it, loss=9.926, v_num=193315]",
    "[rank0]:[titan] - root - INFO - step:  3  loss:  4.9925  grad_norm:  2.6422  tps: 30,768",
    "mmdet - INFO - Epoch [1][250/29317]    lr: 6.653e-03, loss_cls: 13794.6467, loss: nan",
    "Epoch(train) [1][240/735]  lr: 1.0000e-03  loss: 2.31  grad_norm: nan",
    "maskrcnn_benchmark.trainer: ... iter: 5100  loss: nan (nan)  lr: 0.000467",
    "[INFO] Step 100/100000; acc: 16.1; ppl: 6103.2; xent: 8.7; lr: 0.00002;",
    "Epoch 1: Training Loss: 7129515.3131, Validation Loss: nan, BLEU: 0.00, chrF++: 0.00",
    "loss_dict = {'loss_cls': tensor(nan, device='cuda:0'), 'loss_box_reg': tensor(0.25, device='cuda:0')}",
    "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
    "ZeroDivisionError: float division by zero",
    "ValueError: Attempting to unscale FP16 gradients.",
    "INFO:Loading Wizard-Vicuna-13B-Uncensored-HF...",
    "WARNING: tokenization mismatch: 276 vs. 272. (ignored)",
    "  0%| 98/24128",
    '  File "/usr/lib/python3/site-packages/torch/nn/modules/module.py", line 1501, in _call_impl',
    "    return forward_call(*args, **kwargs)",
    "without fp16 it works",
    "I do not use fp16",
    "with fp16 works, and so does it with bf16",
    "NOTE: overflow detected, setting loss scale to: 0.000244140625",
]


@pytest.mark.parametrize("line", MEASURED)
def test_a_measurement_or_a_message_is_no_setting(line):
    assert [(setting.name, setting.value) for setting in read(line)] == []


def test_measurements_are_no_settings_together_either():
    assert list(read("\n".join(MEASURED))) == []


def test_settings_point_at_their_own_line():
    settings = read(LOGS["the arguments of transformers"][0])
    assert settings.find("fp16").where == "train.log:4"
    assert settings.find("optim").where == "train.log:8"


def test_a_program_that_is_pasted_becomes_notes_and_the_line_of_a_traceback_does_not():
    program = "for x, y in loader:\n    loss = model(x, y)\n    loss.backward()"
    assert [text for _, text in read(f"my loop:\n{program}\nwhy?").notes] == [
        line.strip() for line in program.split("\n")
    ]
    assert read('  File "train.py", line 3\n    loss.backward()\nValueError: no').notes == []


def test_what_every_rank_repeats_is_told_once():
    settings = read("\n".join(["  fp16 ............ True"] * 8))
    assert len(settings) == 1


def test_thousands_of_lines_take_a_fraction_of_a_second():
    lines = [(f"train.log:{number}", line) for number, line in enumerate(MEASURED * 150, 1)]
    began = time.process_time()
    settings_in_text(lines)
    assert time.process_time() - began < 1.0


def test_a_place_without_a_line_is_kept_as_it_is():
    assert [setting.where for setting in settings_in_text([("stdin", "fp16=True,")])] == ["stdin"]
