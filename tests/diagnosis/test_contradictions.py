"""Numbers that no working training shows together make a run sick, in any format; their look-alikes do not."""

from __future__ import annotations

import math

import pytest

from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.diagnosis import Diagnosis
from stayfinite.diagnosis.reading import read_text

KERAS = "Epoch {0}/10\n500/500 [=====] - 2s 4ms/step - loss: {1} - acc: {2} - val_loss: {3} - val_acc: {4}\n"
MXNET = "INFO:root:Epoch[{}] Batch [{}]\tSpeed: 323.01 samples/sec\tTrain-accuracy={}\n"
CNTK = " Epoch[ {} of 10]-Minibatch[   1- 100]: ce = {} * 6400; errs = {}% * 6400\n"
DCGAN = "[0/25][{}/782] Loss_D: {} Loss_G: {} D(x): 1.0000 D(G(z)): 0.0000 / 0.0000\n"
PIPES = (
    " Epoch  |  Train loss  |  Valid loss  |  Train / Val  |  Valid acc  |  Dur\n"
    "--------|--------------|--------------|---------------|-------------|-------\n"
)
REPORT = "         precision    recall  f1-score   support\n\n{}\n    accuracy                      0.50      1000\n"


def _softmaxed(classes: int, slope: float = 1.0) -> str:
    """The evaluations of a classifier whose loss gets certain probabilities."""
    top = math.log(math.e + classes - 1)
    rates = (0.42, 0.61, 0.7, 0.66, 0.74)
    return "".join(f"Round {i}, test loss {top - slope * each:.3f}, test accuracy: {100 * each:.2f}\n"
                   for i, each in enumerate(rates))  # fmt: skip


def _twice(losses: list[float], gain: float = 1.0) -> str:
    return "".join(
        f"Epoch {epoch}, Step {i}, Loss: {loss * gain**epoch:.4f}\n"
        for epoch in (1, 2)
        for i, loss in enumerate(losses)
    )


def _rewards(*values: int) -> str:
    return "".join(f"episode {100 * at} reward {value}\n" for at, value in enumerate(values))


def _both(*losses: float, apart: float = 0.0) -> str:
    return "".join(f"Epoch {i} train_loss: {loss:.4f}, val_loss: {loss + apart:.4f}\n" for i, loss in enumerate(losses))


def diagnosed(log: str) -> Diagnosis:
    return judge_reading(read_text(log))


@pytest.mark.parametrize(
    ("log", "what"),
    [
        # A loss over classes below 0.
        (KERAS.format(1, -10.1022, 0.0515, -49.2346, 0.0464), "never negative"),
        ("Epoch 1 loss: -52.3 accuracy: 0.31\nEpoch 2 loss: -310.2 accuracy: 0.31\n", "never negative"),
        (PIPES + "  3  |   -4.317877  |   -4.494806  |     0.960637  |     52.17%  |  0.6s\n", "never negative"),
        # An overlap above 1.
        (KERAS.format(1, -10.5, 0.1, -41.2, 0.1).replace("acc", "iou_score").replace("0.1", "1.34"), "at most 1"),
        ("Epoch 1 | loss -15.2 | dice_coef: 1.93\nEpoch 2 | loss -40.1 | dice_coef: 3.41\n", "at most 1"),
        # The share of wrong answers times the logarithm of what a probability is cut to.
        ("".join(KERAS.format(each, 14.5063, "0.1000", 14.5063, "0.1000") for each in (1, 2)), "saturated"),
        ("".join(f"epoch {each} loss 8.0590 acc 0.5000\n" for each in (1, 2, 3)), "saturated"),
        ("".join(f"epoch {each}: loss=49.8123 accuracy=0.5013\n" for each in (1, 2, 3)), "saturated"),
        ("".join(f"I1112 16:14:2{i} 12274 solver.cpp:243] Iteration {i}0, loss = 87.3365\n" for i in (2, 4)), "87"),
        # An evaluation below guessing beside a good training.
        (KERAS.format(1, 0.05, 0.99, 8.9, 0.02), "val_acc is 0.02 where acc is 0.99"),
        ("train Loss: 0.1132 Acc: 0.9623\nval Loss: 12.7359 Acc: 0.0492\n", "eval_acc is 0.0492"),
        ("train accuracy 99.1%\ntest accuracy 10.0%\n", "test_accuracy is 10"),
        # The first five right five times as often as the first one.
        (" * Acc@1 0.100 Acc@5 0.500\n * Acc@1 0.100 Acc@5 0.500\n", "random order"),
        ("Epoch[9] Validation-accuracy=0.0974\nEpoch[9] Validation-top_k_accuracy_5=0.4832\n", "random"),
        ("Epoch 9 val top1 10.02 top5 50.10\n", "random order"),
        # A discriminator that is never wrong.
        ("".join(DCGAN.format(each, "0.0000", 27.6310) for each in range(0, 300, 50)), "discriminator"),
        # Batches of one class each.
        ("".join(MXNET.format(0, i, v) for i, v in [(50, 0.507188), (100, 0.0267), (150, 0.0609), (200, 0.0)]),
         "falls to 0"),
        # A sum that is never reset.
        ("".join(f"[{i}00] Recall: 0.{i}, Precision: 0.1, Loss: {v}\n" for i, v in [(1, 4.92), (2, 9.7), (3, 15.1)]),
         "never reset"),
        ("".join(f"epoch {each} loss {4.9 * each:.2f}\n" for each in range(1, 7)), "never reset"),
        # Probabilities where logits belong: loss and accuracy add up.
        (_softmaxed(5), "ln(e + 4)"),
        (_softmaxed(100), "ln(e + 99)"),
        # A schedule that ends long before the run.
        ("".join(f"Epoch {i}/40 loss {3 - i / 9:.3f} lr {max(4 - i, 0)}e-4\n" for i in range(1, 9)), "epoch 8 of 40"),
        # Nothing is ever rewarded.
        ("{'loss': 0.0, 'grad_norm': 0.8, 'rewards/format': 0.0, 'reward': 0.0, 'reward_std': 0.0}\n", "reward is 0"),
        # A class that is never found, in a table with bars.
        ("| Class | IoU | Acc |\n+---+---+---+\n| sky | 91.2 | 95.0 |\n| rare bird | 0.0 | 0.0 |\n", "rare_bird is 0"),
        # An epoch that is the one before, to the last digit.
        (_twice([0.9741, 1.3742, 1.2390, 0.9670, 1.0386]), "to the last digit"),
        # Nothing right at a loss that only right answers have.
        ("train Loss: 0.0436 Acc: 0.0000\nval Loss: 0.0434 Acc: 0.0000\n", "takes right answers"),
        # A policy that forgot what it had learned.
        (_rewards(20, 90, 180, 195, 190, 60, 21, 10), "back where it started"),
        # Both losses are of the same rows.
        (_both(1.3127, 1.1954, 1.0781, 0.9608), "exactly in 4 evaluations"),
        # A loss printed on every line beside the accuracy of the same rows.
        ("".join(f"epoch {i} loss {2.4612 - i / 5:.4f} acc {i / 5}\n" for i in range(5)), "ln(e + 9)"),
        # A rate that is exactly 0 for most of the log, which prints small ones.
        ("".join(f"step {i} loss {max(3.2 - i / 5, 2.6):.3f} lr {max(4 - i, 0)}e-5\n" for i in range(9)), "rate is 0"),
        # Names and numbers in turn, without a mark between them.
        ("".join(f"epoch {i} loss 0.{9 - i} dice_class0 0.95{i} dice_class2 0.000\n" for i in range(6)), "dice_class2"),
        # A table with commas, in the middle of a text.
        ("my log:\nepoch,loss,ppl\n0, 3.15, 23.3\n1, nan, nan\n2, nan, nan\n", "loss is NaN"),
        # The error that a question is about comes first, its log after.
        ("RuntimeError: CUDA out of memory.\nMy log:\n" + _both(*(3 - i / 9 for i in range(12)), apart=0.1), "crash"),
        # The only loss has a name of its own.
        ("".join(f"reporter: PIXEL LOSS: {4 * 9**i:.3f}\n" for i in range(8)), "diverges"),
    ],
)  # fmt: skip
def test_numbers_that_cannot_go_together_are_sick(log: str, what: str) -> None:
    found = diagnosed(log)
    assert found.verdict == "sick"
    assert any(what in words for words in found.trouble), found.trouble


@pytest.mark.parametrize(
    "log",
    [
        "Epoch(train) [1][99/4405] loss: -3.41 loss_kpt: -3.41 acc_pose: 0.0468\n",  # a likelihood of places
        "Epoch 1 loss -0.91 acc 0.45\nEpoch 2 loss -0.93 acc 0.52\n",  # a cosine
        "Epoch 1 loss -2.1 bpd: 3.9 acc 0.3\nEpoch 2 loss -2.9 bpd: 3.5 acc 0.4\n",  # a density
        "epoch 1 loss -0.61 dice 61.25\nepoch 2 loss -0.70 dice 70.81\n",  # minus the overlap, and in percent
        "epoch 1 loss 0.9 iou 1.25\nepoch 2 loss 0.7 iou 8.81\nepoch 3 loss 0.6 iou 22.35\n",
        KERAS.format(1, 2.3, 0.1, 2.2, 0.12) + KERAS.format(2, 1.9, 0.3, 1.8, 0.35),
        "epoch 1 loss 6.2 acc 0.02\nepoch 2 loss 5.1 acc 0.1\n",
        KERAS.format(9, 0.05, 0.99, 1.9, 0.62),  # overfitted, and far above guessing
        "train accuracy 99.1%\ntest accuracy 41.0%\n",
        "Epoch 9 val top1 70.02 top5 90.10\n",
        "Epoch: [0][100/5005] Loss 6.91 (6.93) Acc@1 0.10 (0.11) Acc@5 0.50 (0.52)\n",  # the first steps
        "".join(DCGAN.format(each, 0.4 + each / 5000, 2.5) for each in range(0, 300, 50)),
        "".join(MXNET.format(0, i, v) for i, v in [(50, 0.107188), (100, 0.126719), (150, 0.1609), (200, 0.2)]),
        "".join(f"[1, {i}000] loss: {v}\n" for i, v in [(1, 1.9), (2, 3.8), (3, 5.8)]),  # within an epoch
        _softmaxed(10, slope=1.6),  # an ordinary loss falls faster than the accuracy rises
        "".join(f"Epoch {i}/8 loss {3 - i / 9:.3f} lr {max(8 - i, 0)}e-4\n" for i in range(1, 9)),  # at the end
        "{'loss': 0.01, 'grad_norm': 0.8, 'reward': 0.2, 'reward_std': 0.0}\n",
        "| Class | IoU | Acc |\n+---+---+---+\n| sky | 91.2 | 95.0 |\n| rare bird | 31.0 | 44.0 |\n",
        _rewards(20, 90, 60, 120, 30, 160, 90, 40, 170),  # noisy, and not lost
        _rewards(-200, -180, -150, -90, -20, 40, 90, 130),
        _both(1.3127, 1.1954, 1.0781, 0.9608, apart=0.0007),
        "".join(f"step {i} loss {3.2 - i / 9:.3f} lr {max(12 - i, 0)}e-05\n" for i in range(14)),  # 0 at the end
        "".join(f"step {i} loss {3.2 - i / 9:.3f} lr {0.0002 if i < 4 else 0:.4f}\n" for i in range(14)),  # rounded
        "".join(f"reporter: PIXEL LOSS: {4 * 0.9**i:.3f}\n" for i in range(8)),
        _twice([0.9741, 1.3742, 1.2390, 0.9670, 1.0386], gain=0.93),
        "train Loss: 0.0436 Acc: 0.9910\nval Loss: 0.0434 Acc: 0.9880\n",
        # Means over an epoch that include the steps a loss scaler skipped.
        "".join(f"epoch {i} | grad_norm=inf | grad_scale=262144.0 | loss={0.96 - i / 50:.3f}\n" for i in range(1, 6)),
        "".join(
            f"Epoch {epoch} batch {i}/9 running_loss {(4 - epoch) * i - 0.05 * i * i:.2f}\n"
            for epoch in (1, 2)
            for i in range(1, 10)
        ),
        # What a program prints is no complaint: times, and losses of two sets beside their perplexities.
        "".join(f" | > loss: {3 - i / 9:.3f}\n | > step_time: 1.42 (1.40)\n | > loader_time: 1.01\n" for i in range(6)),
        "".join(f"| epoch {i} | loss {6 - i / 9:.2f} | ppl {403 - i}\n" for i in range(1, 9))
        + "| End of training | test loss  5.12 | test ppl   169.1\n",
        "Is it right that the loss is negative and keeps decreasing?\n"
        + "".join(f"Epoch {i}/9 - loss: {-0.7 - i / 50:.4f} - dice_coef: {0.7 + i / 50:.4f}\n" for i in range(1, 9)),
        "".join(
            f"loss_D: {0.4 - i / 90:.3f}, loss_G_fake: {0.3 + i / 30:.3f}\nloss_adv: {7 - i / 5:.3f}\n"
            for i in range(9)
        ),
        "epoch 10 lr 0.05 train 0.702 val acc 82.4\nThanks, with the new sampler it works, dice 0.87 instead of 0.6.\n",
        "AdamW 91,2; SGD 90,9. Aucun NaN, aucune divergence.\n",
    ],
)
def test_a_look_alike_is_not_sick(log: str) -> None:
    found = diagnosed(log)
    assert found.verdict != "sick", (found.trouble, found.findings)


@pytest.mark.parametrize(
    ("log", "what"),
    [
        (CNTK.format(1, "nan", 90), "the loss is NaN"),
        ("".join(CNTK.format(1, each, 90) for each in (2.3, 44.1, 844.2, 9844.3)), "diverges"),
        ("LOSS \t  P  \t  R  \t  F  \n" + "184.500\t0.505\t1.000\t0.671\n" * 12, "does not move"),
        (PIPES + "     1  |         nan  |         nan  |          nan  |     47.83%  |  0.6s\n", "the loss is NaN"),
        ("(0, 2.31)\n(1, nan)\n(2, nan)\n", "the loss is NaN"),
        ("loss = NaN32\n", "NaN"),
        ("训练损失\uff1anan\n", "NaN"),
        ("epoch 1, minibatch 2500/2500, validation error 90.090000 %\n" * 3, "does not change"),
        ("".join(f"Epoch {each} loss 2.{9 - each} wer 100.0\n" for each in range(1, 5)), "wer does not change"),
        ("".join(f"epoch {each}: train auc 0.5000 val auc 0.5000\n" for each in range(4)), "auc"),
        ("".join(f"Epoch {each}0: mAP@0.5 = 0.0000\n" for each in range(1, 4)), "map@0.5"),
        ("RuntimeWarning: invalid value encountered in log\n", "NaN"),
        (REPORT.format("           0       0.50      1.00      0.67       500\n"
                       "           1       0.00      0.00      0.00       500\n"), "one class"),
        ("".join(f"{i}  true:  [{i}, 6, 9, 2]\n{i}  predict:  [8, 9, 8, 8]\n" for i in range(4)), "one class"),
        ("pred: [1, 1, 1, 1]\ntrue: [0, 1, 2, 1]\npred: [1, 1, 1, 1]\ntrue: [2, 1, 0, 0]\n", "one class"),
        ("".join(f"hyp: a\nref: sentence number {i}\n" for i in range(4)), "one class"),
        ("tensor([[0.4987, 0.5013],\n" + "        [0.4987, 0.5013],\n" * 3
         + "        [0.4987, 0.5013]], grad_fn=<SoftmaxBackward0>)\n", "one class"),
        ("fc1.weight None\nfc1.bias None\nfc2.weight None\n", "the gradient is 0"),
        ("conv1.weight grad: tensor(0.)\nconv1.bias grad: tensor(0.)\nfc.weight grad: tensor(0.)\n", "gradient is 0"),
        ("Prompt: the capital of France?\nOutput: the the the the the the the the the\n", "repeat"),
        ("output: !!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!\n", "repeat"),
        ("Generated: ['<pad><pad><pad><pad>', '<pad><pad>']\n", "repeat"),
        ("preds: tensor([0.5012, 0.5012, 0.5012, 0.5012])\nlabels: tensor([1., 0., 1., 1.])\n", "one class"),
        ("Predicted classes: {0: 0, 1: 1000}\n", "one class"),
        ("predictions: Counter({1: 5000})\n", "one class"),
        ("Accuracy of plane : 100 %\nAccuracy of car : 0 %\nAccuracy of bird : 0 %\n", "one class"),
        ("{'loss': [0.6931, 0.6931, 0.6931, 0.6931], 'val_acc': [0.5, 0.5, 0.5, 0.5]}\n", "ln 2"),
        ("history['loss'] = [nan, nan, nan, nan]\n", "the loss is NaN"),
        ("".join(f"Loss after iteration {each}000: 0.693147\n" for each in range(3)), "ln 2"),
        ("eval_accuracy = 0.5\neval_loss = 0.6931472\n", "chance"),
        ("".join(f"Epoch {each} mIoU 0.0349\n" for each in range(5)), "miou does not change"),
        ("precision: 0.0 recall: 0.0 f1: 0.0\n", "does not change"),
        ("".join(f"epoch {i} train_acc 0.99 val_acc {v}\n" for i, v in enumerate((0.97, 0.9, 0.12, 0.13))), "val_acc"),
        ("".join(f"episode: {10**i} q_value: {v}\n" for i, v in enumerate((1.2, 1.3e4, 9.8e7, 8e12))), "q_value grows"),
        ("".join(f"train/loss: 10.{i} train/grad_norm: {v}\n" for i, v in enumerate((1.2e9, 7e11, 2e14))), "grad_norm"),
        ("epoch 3 r2: -350.3 mse: 3.1\n", "predicting the mean"),
        ("the accuracy is always 0.5 no matter what\n", "does not move"),
        ("mean IoU: 0.0476 for all epochs (21 classes)\n", "does not move"),
        ("loss oscillates between 0.1 and 50\n", "diverges"),
        ("It repeats the last word forever\n", "repeat"),
        ("all predictions are class 3\n", "same answer"),
        ("".join(KERAS.format(i, 0.6932, 0.4998, 0.6932, 0.5) for i in (1, 2, 3)), "ln 2"),
        ("".join(KERAS.format(i, 1 / i, 1 - 0.3512 / i, i, "0.5000") for i in range(1, 6)), "val_acc does not change"),
        ("samples come out completely black\n", "same answer"),
    ],
)  # fmt: skip
def test_what_a_log_shows_is_read_in_more_formats(log: str, what: str) -> None:
    found = diagnosed(log)
    assert found.verdict == "sick"
    assert any(what in words for words in found.trouble), found.trouble


@pytest.mark.parametrize(
    "log",
    [
        "".join(CNTK.format(each, 2.3 - each / 5, 90 - each) for each in range(1, 5)),
        "LOSS \t  P  \t  R  \t  F  \n" + "".join(f"{18.4 / i:.3f}\t0.5{i}\t0.6{i}\t0.6{i}\n" for i in range(1, 9)),
        PIPES + "     1  |    2.1  |    1.9  |     1.10  |     47.83%  |  0.6s\n"
        "     2  |    1.5  |    1.4  |     1.07  |     52.17%  |  0.6s\n",
        "epoch 1 validation error 60.1 %\nepoch 2 validation error 31.2 %\nepoch 3 validation error 21.0 %\n",
        "RuntimeWarning: invalid value encountered in true_divide\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "RuntimeWarning: overflow encountered in exp\n  return 1 / (1 + np.exp(-x))\nTest MSE 15.9\nTest NLL 2.5\n",
        ("0|yolo  | Region 82 Avg IOU: -nan, Class: -nan, Obj: -nan, No Obj: 0.1, .5R: -nan, .75R: -nan,  count: 0\n"
         "0|yolo  | 10313: 0.576849, 0.677636 avg, 0.002000 rate, 3.992994 seconds, 1320064 images\n"),
        REPORT.format("           0       0.90      0.91      0.90       500\n"
                      "           1       0.91      0.90      0.90       500\n"),
        REPORT.format("           0       0.60      0.91      0.70       500\n"
                      "           1       0.00      0.00      0.00         0\n"),
        "".join(f"{i}  true:  [{i}, 6, 9, 2]\n{i}  predict:  [{i}, 9, 8, 8]\n" for i in range(4)),
        "pred: [1, 0, 2, 1]\ntrue: [0, 1, 2, 1]\npred: [1, 1, 0, 1]\ntrue: [2, 1, 0, 0]\n",
        "pred: 1 true: 1\npred: 1 true: 0\npred: 1 true: 1\n",  # too few to tell
        ("tensor([[0.1987, 0.8013],\n        [0.7987, 0.2013],\n        [0.4987, 0.5013],\n"
         "        [0.6987, 0.3013]], grad_fn=<SoftmaxBackward0>)\n"),
        "conv1.weight grad: tensor(0.013)\nconv1.bias grad: tensor(0.)\nfc.weight grad: tensor(0.21)\n",
        "Prompt: the capital of France?\nOutput: The capital of France is Paris.\n",
        "input: 'hello world <pad><pad><pad><pad>'\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "--------------------------------\n================================\noutput: ................\n",
        "preds: tensor([0.1012, 0.9012, 0.5712, 0.3012])\nlabels: tensor([1., 0., 1., 1.])\n",
        "Predicted classes: {0: 480, 1: 520}\n",
        "predictions: {1: 5}\n",  # too few
        "Accuracy of plane : 100 %\nAccuracy of car : 90 %\nAccuracy of bird : 0 %\n",
        "{'loss': [0.9, 0.7, 0.5, 0.4], 'val_loss': [0.95, 0.8, 0.7, 0.65]}\n",
        "{'loss_weights': [0.0, 0.0, 0.0, 0.0]}\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "".join(f"epoch {each}: {each * 7.1}\n" for each in range(9)),  # a score as likely as a loss
        "eval_accuracy = 0.91\neval_loss = 0.2986\n",
        "".join(f"Epoch {each} val_acc {v}\n" for each, v in enumerate((0.95, 0.96, 0.2, 0.97, 0.97))),  # one bad one
        "".join(f"iter {each} value: {v} loss: 0.3\n" for each, v in enumerate((1e3, 2e3, 3e3))),
        "".join(f"step {i} loss {9 - i} grad_norm {v}\n" for i, v in enumerate((5e8, 1e8, 3e7))),
        "epoch 1 reward 10 loss 4\nepoch 2 reward 20 loss 8\nepoch 3 reward 30 loss 12\n",
        "test r2: 0.83\n",
        "The training accuracy is always above 90%\n",
        "the loss oscillates between 0.10 and 0.12\n",
        "It repeats the experiment with five seeds\n",
        "Output: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.pt saved\n",
        "train acc 0.99 val acc 0.12 (100 classes, one example each)\n",
        "true positives: 10 false positives: 3\ntrue positives: 11 false positives: 2\n",
        "pred boxes: 300, gt boxes: 4\npred boxes: 300, gt boxes: 7\npred boxes: 300, gt boxes: 2\n",
        "Test accuracy: 0\nTest loss: 71.8\n",  # of a regression
        "".join(KERAS.format(i, 250.1 / i, "0.0000e+00", 260.3 / i, "0.0000e+00") for i in (1, 2)),
        "".join(KERAS.format(i, v, 0.9, v * k, w) for i, (v, k, w) in enumerate([(0.9, 6, 0.08), (0.5, 2, 0.6)], 1)),
    ],
)  # fmt: skip
def test_healthy_numbers_in_these_formats_are_not_sick(log: str) -> None:
    found = diagnosed(log)
    assert found.verdict != "sick", (found.trouble, found.findings)


SPLITS = "epoch {} best test acc: 0.9120, train loss: {}; train acc: {} val acc: {} test acc: {}\n"
VERL = "step:{} - actor/pg_loss:0.012 - critic/advantages/max:{} - critic/advantages/min:{}\n"


@pytest.mark.parametrize(
    ("log", "what"),
    [
        # Whatever came before: equal to the last digit, many times.
        ("".join(f"step {at}00 loss {loss}\n" for at, loss in enumerate([2.31, 2.27, *[2.302585] * 4])), "not move"),
        ("".join(f"it {at}. Loss: {1 / (1 + at)}. Accuracy: 66.2962963%\n" for at in range(6)), "accuracy does not"),
        ("".join(SPLITS.format(at, 1.3 - 0.1 * at, *["0.5000"] * 3) for at in range(6)), "train_acc does not"),
        ("{'mcc': 0.0, 'eval_loss': 0.53}\n{'mcc': 0.0, 'eval_loss': 0.51}\n", "mcc does not"),
        ("value_function_loss: 22878095257.6\nsurrogate_loss: -0.003\n", "explodes"),
        ("mean IoU: 0.47\nIoU class 1: 0.94\nIoU class 2: 0.0093\n", "iou_class_2"),
        (VERL.format(4, "0.000", "0.000"), "advantages are 0"),
        ("[   10%   ]     1        -nan        -nan      0.500000       57.52\n", "prints NaN or inf"),
        ("All results of the vocoder is nan.\n", "NaN"),
        (
            "".join(f"[{at}00/1600]\t[L1: {5.9 + at / 10 + (at > 5) * 2900}]\t65.8+0.4s\n" for at in range(1, 10)),
            "l1 leaps from 6.4 to",
        ),
    ],
)
def test_what_stands_still_to_the_last_digit_or_is_beyond_all_size_is_sick(log: str, what: str) -> None:
    found = diagnosed(log)
    assert found.verdict == "sick"
    assert what in "; ".join(found.trouble)


@pytest.mark.parametrize(
    "log",
    [
        "".join(f"step {at}00 loss {loss}\n" for at, loss in enumerate([2.31, 1.27, 0.9, 0.9, 0.9, 0.8])),
        "".join(f"it {at}. Loss: {1 / (1 + at)}. Accuracy: {66.2962963 + at}%\n" for at in range(6)),
        "".join(SPLITS.format(at, 1.3 - 0.1 * at, 0.91, 0.9, "0.5000") for at in range(6)),
        "{'mcc': 0.0, 'eval_loss': 0.53}\n{'mcc': 0.41, 'eval_loss': 0.31}\n",
        "value_function_loss: 228.6\nsurrogate_loss: -0.003\n",
        "mean IoU: 0.7\nIoU class 1: 0.94\nIoU class 2: 0.49\n",
        VERL.format(4, "1.732", "-0.577"),
        "".join(f"[{at}00/1600]\t[L1: {5.9 - at / 10}]\t65.8+0.4s\n" for at in range(1, 10)),
    ],
)
def test_numbers_like_these_that_move_are_not_sick(log: str) -> None:
    assert diagnosed(log).verdict != "sick"


@pytest.mark.parametrize("loss", ["inf", "nan", "-inf", "1e300"])
def test_an_absurd_loss_beside_an_accuracy_that_rises_is_sick(loss: str) -> None:
    rows = "".join(f"epoch {i} loss {loss} val_loss {loss} val_acc 0.{4 + i}1\n" for i in range(5))
    assert diagnosed(rows).verdict == "sick"
