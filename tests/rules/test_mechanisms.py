"""Code and words that a rule has never met, told by their mechanism; each beside a look-alike that is left in peace."""

import pytest

from rules.example import Example
from stayfinite.rules.ranking import rank
from stayfinite.rules.registry import all_rules

FALLS = "".join(f"step {20 * i} loss {2.6 * 0.9**i:.4f} lr 2e-4\n" for i in range(16))
LOST = "".join(f"step {20 * i} loss {2.6 * 0.9**i:.4f}\n" for i in range(12)) + "step 240 loss nan\nstep 260 loss nan\n"
NEVER = "step 0 loss nan\nstep 1 loss nan\nstep 2 loss nan\n"
STILL = "".join(f"epoch {i} loss 0.6931 acc 0.5\n" for i in range(12))
SAMPLING = "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0\n"
PLAYED = "".join(
    f"[0/25][{50 * i}/1583]\tLoss_D: {d}\tLoss_G: {g}\n"
    for i, (d, g) in enumerate([(1.741, 4.776), (0.841, 9.776), (0.111, 17.776), (0.001, 25.1), (0.0002, 27.63)])
)
DPO = "{{'loss': {2}, 'learning_rate': 1e-05, 'rewards/chosen': {0}, 'rewards/rejected': {0}, 'step': {1}}}\n"
ONE_VALUE = "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 256])\n"
CUT_OFF = """Traceback (most recent call last):
  File "fit.py", line 30, in <module>
    loss = self.loss(*batch)
  File "vae.py", line 88, in forward
    mean, variance = self.encoder(x)
"""
EMPTY_SIZE = "    logits = logits.view(-1, self.vocab)\nRuntimeError: shape '{}' is invalid for input of size 40961\n"
EMPTY_LIST = "ValueError: optimizer got an empty parameter list\n"
TWO_DEVICES = """Traceback (most recent call last):
  File "train.py", line 51, in <module>
    engine.step()
  File "{}", line 1900, in step
    grad.mul_(1.0 / scale)
RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!
"""
PROBABILITIES = "class Net(nn.Module):\n    def forward(self, x):\n        {}\n        return x\n"
PROBABILITIES += "criterion = nn.CrossEntropyLoss()\noptimizer = optim.Adam(model.parameters(), lr=0.001)\n"
ZEROS = "for l in range(1, L):\n    parameters['W' + str(l)] = np.zeros((layers_dims[l], layers_dims[l-1]))\n"
ALL_RIGHT = [(0, 6.9085, 0.0), (10, 2.9971, 100.0), *((i, 0.0, 100.0) for i in range(20, 90, 10))]
REFUSED_LABEL = "W op_kernel.cc:1767] Received a label value of 67 which is outside the valid range of [0, 1).\n"
NO_SUCH_ROW = "Assertion `srcIndex < srcSelectDimSize` failed.\n"
TWO_EVALUATIONS = "eval_loss = 1.454614281\neval_micro_f1 = {0}\neval_macro_f1 = 0.0694363648\nEpoch 2\n"
TWO_EVALUATIONS += "eval_loss = 1.454613924\neval_micro_f1 = {0}\neval_macro_f1 = {1}\n"
NARROWS = "step {}00 entropy {:.3f} reward {:.3f}\n"
ADDS_UP = "epoch {} loss {:.3f} val accuracy {:.4f}\n"
BF16_WEIGHTS = "torch_dtype=torch.bfloat16, the backbone is frozen\nHF Trainer, learning_rate=1e-6, 2 epochs\n"
NO_NORM = "".join(f"{{'loss': {0.6 + i % 3 / 5}, 'grad_norm': nan, 'epoch': {i / 5}}}\n" for i in range(1, 6))
ONLY_EVALUATION = "train loss: {} val_loss: {}\n"
ANSWERS = (
    "step:{} - actor/pg_loss:0.0 - critic/score/mean:{} - critic/advantages/max:{} - response_length/clip_ratio:{}\n"
)
FLAIR = "EPOCH\tTIMESTAMP\tBAD_EPOCHS\tLEARNING_RATE\tTRAIN_LOSS\tDEV_LOSS\tDEV_PRECISION\tDEV_RECALL\tDEV_F1\n"
AT_CHANCE = "".join(f"| {i} | loss 2.303{i} |\n" for i in range(9))
TRAINED = "{{'train_runtime': {}, 'train_samples_per_second': 0.857, 'train_loss': {}, 'epoch': 1.0}}\n"
REPORT = "              precision    recall  f1-score   support\n"
SQUASHED = "".join(f"Conv2d({2**i}, {2 ** (i + 1)}, 3) + Sigmoid + MaxPool2d(2)\n" for i in range(3))
COSTS = "".join(f"Cost after iteration {i}000: {0.63 * 0.9**i:.6f}\n" for i in range(1, 9))
DRAWN = [f"{i}0000/ 90000: {x}\n" for i, x in enumerate((27.8817, 3.2133, 2.5633, 2.4045, 2.1546, 2.0461, 1.9804))]
WAITING = "mmdet - INFO - Epoch [1][5{}01/9000] lr: 1e-2, time: {2}, data_time: {1}, loss: {3:.4f}\n".replace(
    "{}", "{0}"
)
SPLIT = "6/6 - 5s 593ms/step - accuracy: {:.4f} - loss: 0.9 - val_accuracy: {:.4f} - val_loss: 3.5\n"
OVERFLOWS = "RuntimeWarning: overflow encountered in exp\nRuntimeWarning: invalid value encountered in maximum\n"
NORMS = "".join(f'"grad_norm": {norm},\n' for norm in ("Infinity", "NaN", 1.31, "NaN", 1.28, "NaN", 1.29, "NaN", 1.3))


def _epochs(values: list[float]) -> str:
    return "".join(f"Epoch {i}: loss {value:.3f}\n" for i, value in enumerate(values, start=1))


MISFITS = (
    "size mismatch for roi.classifier.{}: copying a param with shape torch.Size([{}]) from checkpoint, "
    "the shape in current model is torch.Size([{}]).\n"
)
LOOP = "for x, y in loader:\n    loss = crit(model(x), y)\n    {}\n    loss.backward()\n    opt.step()\n"
MEASURED = "train_loss = metrics.Mean()\nfor epoch in range(9):\n    {}\n    print(train_loss.result())\n"
RATE = "def rate(step):\n    lr = 0.1\n    if step > {}:\n        lr = 0.01\n"
RATE += "    elif step > {}:\n        lr = 0.001\n    return lr\n"
EVALUATED = "| Training Loss | Epoch | Step | Validation Loss |\n|:---:|:---:|:---:|:---:|\n" + "".join(
    f"| No log        | {epoch}.0   | {5 * epoch}    | {{}}          |\n" for epoch in range(1, 5)
)
PAIRS = {
    "an-overlap-above-1": (
        "metric-impossible",
        Example("Epoch finished ! Loss: 0.1654\nValidation Dice Coeff: 1.00414748\n"),
        Example("Epoch finished ! Loss: 0.1654\nValidation Dice Coeff: 0.90414748\n"),
    ),
    "a-forward-that-returns-probabilities": (
        "softmax-before-cross-entropy",
        Example(FALLS, PROBABILITIES.format("x = F.softmax(self.out(x), dim=1)")),
        Example(FALLS, PROBABILITIES.format("x = self.out(x)")),
    ),
    "weights-that-begin-at-zero": (
        "bad-init",
        Example("".join(f"Cost after iteration {i}000: 0.6931471805599453\n" for i in range(12)), ZEROS),
        Example("".join(f"Cost after iteration {i}000: {0.69 * 0.8**i:.6f}\n" for i in range(12)), ZEROS),
    ),
    "a-rate-of-zero-in-words": (
        "lr-zero",
        Example("".join(f"epoch {i} loss 2.331{i % 2}\n" for i in range(1, 9)), "a convnet, SGD, learning rate 0\n"),
        Example(FALLS, "a convnet, SGD, learning rate 0.01\n"),
    ),
    "preferences-that-begin-at-four-times-ln-2": (
        "accumulation-unscaled",
        Example("".join(DPO.format(0.001 * i, i, 0.6914 if i % 4 == 3 else 2.7656 - 0.004 * i) for i in range(8))),
        Example("".join(DPO.format(0.001 * i, i, 2.7656 - 0.01 * i) for i in range(8))),
    ),
    "an-output-that-has-no-logarithm": (
        "probability-loss-on-logits",
        Example(NEVER, "model.add(Dense(10, activation='tanh'))\nmodel.compile(loss='categorical_crossentropy')\n"),
        Example(FALLS, "model.add(Dense(10, activation='tanh'))\nmodel.compile(loss='mse')\n"),
    ),
    "fp16-twice-under-an-adapter": (
        "double-fp16",
        Example(NO_NORM, 'kwargs = {"torch_dtype": torch.float16}\nTrainingArguments(fp16=True)\nadapter: LoRA\n'),
        Example(NO_NORM.replace("nan", "1.3"), 'kwargs = {"torch_dtype": torch.float32}\nfp16: true\nadapter: LoRA\n'),
    ),
    "a-squared-error-below-zero": (
        "flipped-sign",
        Example("".join(f"epoch {i} loss: {-2.5e5 * 3**i:.4e}\n" for i in range(5)), "weights = 1 + a * y, MSE\n"),
        Example("".join(f"epoch {i} loss: {2.5 / 3**i:.4e}\n" for i in range(5)), "weights = 1 + a * y, MSE\n"),
    ),
    "an-output-that-goes-through-numpy": (
        "detached-loss",
        Example("the loss does not change at all\n", "out_a = torch.tensor(out.detach().cpu().numpy()[rows])\n"),
        Example(FALLS, "rows = torch.tensor(out.detach().cpu().numpy() > 0)\n"),
    ),
    "weights-whose-names-are-skipped": (
        "architecture-mismatch",
        Example("the accuracy stays at 0.1 from the first epoch on\n", "net.load_state_dict(state, strict=False)\n"),
        Example(FALLS, "net.load_state_dict(state, strict=False)\n"),
    ),
    "labels-that-a-map-does-not-know": (
        "bad-data-row",
        Example(5 * ONLY_EVALUATION.format(0.58, "nan"), "y_val = y_val.map({'no': 0, 'yes': 1})\n"),
        Example("".join(ONLY_EVALUATION.format(9 / 2**i, 9 / 2**i) for i in range(5)), "y_val = y.map({'no': 0})\n"),
    ),
    "rows-longer-than-the-limit": (
        "truncation",
        Example("# 9684 tokens\n# 9458 tokens\n# 8864 tokens\n" + FALLS, "max_seq_length: 4096\n"),
        Example("# 684 tokens\n# 458 tokens\n# 864 tokens\n" + FALLS, "max_seq_length: 4096\n"),
    ),
    "a-column-far-from-unit-scale": (
        "unscaled-input",
        Example("| Feature | Min | Max |\n|---|---|---|\n| time | 5,714 | 77,785 |\n" + NEVER),
        Example("| Feature | Min | Max |\n|---|---|---|\n| time | -1.7 | 2.1 |\n" + FALLS),
    ),
    "answers-that-are-all-worth-nothing": (
        "grpo-zero-advantage",
        Example("".join(ANSWERS.format(i, 0.0, 0.0, 0.2 + i / 50) for i in range(24))),
        Example("".join(ANSWERS.format(i, i / 40, 1.2, 0.2) for i in range(24))),
    ),
    "scores-beside-times-of-day": (
        "label-imbalance",
        Example(FLAIR + "".join(f"{i}\t18:5{i}:16\t0\t0.15\t{9.6 - i / 5}\t9.5\t0.0\t0.0\t0.0\n" for i in range(6))),
        Example(FLAIR + "".join(f"{i}\t18:5{i}:16\t0\t0.15\t{9.6 / 2**i}\t2.5\t0.7\t0.7{i}\t0.7\n" for i in range(6))),
    ),
    "two-trainings-that-end-alike": (
        "params-not-in-optimizer",
        Example(TRAINED.format(9.34, 1.5291342735290527) + TRAINED.format(9.32, 1.5291342735290527)),
        Example(2 * TRAINED.format(9.34, 1.5291342735290527) + TRAINED.format(9.32, 1.4062342735290527)),
    ),
    "columns-with-fewer-values-than-rows": (
        "bad-data-row",
        Example("       a      b\ncount  338171.0  338199.0\nmean  22.9  0.1\n" + NEVER),
        Example("       a      b\ncount  338199.0  338199.0\nmean  22.9  0.1\n" + FALLS),
    ),
    "a-rate-below-zero": (
        "flipped-sign",
        Example("mean_reward=0.133\n", "python -m bandit --steps 30 --lr -0.5 --baseline\n"),
        Example("mean_reward=0.933\n", "python -m bandit --steps 30 --lr 0.5 --baseline\n"),
    ),
    "a-frozen-base-that-nobody-trained": (
        "params-frozen",
        Example("the loss is stuck at 6.9\n", "apply_lora(model, freeze_base=True)\ntrained from scratch\n"),
        Example(FALLS, "apply_lora(model, freeze_base=True)\nbase: bert-base-uncased\n"),
    ),
    "one-infinite-loss-before-any-update": (
        "bad-init",
        Example("Cost after iteration 0: inf\n" + COSTS, "W = np.random.randn(sizes[l], sizes[l - 1]) * 10\n"),
        Example(COSTS, "W = np.random.randn(sizes[l], sizes[l - 1]) * 0.01\n"),
    ),
    "outputs-that-are-zero-to-the-last-digit": (
        "bad-init",
        Example("".join(f"(Epoch {i}) loss: {2.302585 - i * 1e-5:.6f} acc: 0.11\n" for i in range(9)), "10 classes\n"),
        Example("".join(f"(Epoch {i}) loss: {2.302585 * 0.9**i:.6f} acc: 0.{i}1\n" for i in range(9)), "10 classes\n"),
    ),
    "weights-drawn-without-a-scale": (
        "bad-initial-loss",
        Example("".join(DRAWN), "W = torch.randn((30, 27))\n27 characters\n"),
        Example("".join(DRAWN[1:]), "W = torch.randn((30, 27))\n27 letters\n"),
    ),
    "perfect-batches-that-cost-much": (
        "softmax-before-cross-entropy",
        Example("".join(f"batch: {i}, loss is: [{1.4612 + 0.8 / 4**i:.4f}], acc is: [1.]\n" for i in range(9))),
        Example("".join(f"batch: {i}, loss is: [{1.4612 / 4**i:.4f}], acc is: [1.]\n" for i in range(9))),
    ),
    "steps-that-wait-for-data": (
        "loader-too-slow",
        Example("my epochs are far too slow\n" + "".join(WAITING.format(i, 1.7, 2.0, 0.9 - i / 99) for i in range(9))),
        Example("my epochs are fine\n" + "".join(WAITING.format(i, 0.1, 2.0, 0.9 - i / 99) for i in range(9))),
    ),
    "classes-that-the-last-rows-hold-alone": (
        "unshuffled",
        Example("".join(SPLIT.format(i / 9, 0.0) for i in range(9)) + "5/5 - 1s - accuracy: 0.7 - loss: 9.3\n",
                "model.fit(x, y, validation_split=0.2)\n"),
        Example("".join(SPLIT.format(i / 9, i / 11) for i in range(9)), "model.fit(x, y, validation_split=0.2)\n"),
    ),
    "a-softmax-that-subtracts-the-maximum": (
        "naive-exp",
        Example(OVERFLOWS, "p = np.exp(scores) / np.sum(np.exp(scores))\nloss = -np.log(p[y])\n"),
        Example(OVERFLOWS, "s = scores - np.max(scores, axis=1)\np = np.exp(s) / np.sum(np.exp(s))\n"),
    ),
    "a-scale-that-a-recipe-calls-small": (
        "loss-scale-collapse",
        Example("WARNING [train.py:1047] Grad scale is small: 3.0517578125e-05\n"),
        Example("INFO [train.py:1047] grad_scale: 8.0\n" + FALLS),
    ),
    "a-label-refused-in-the-last-line": (
        "label-out-of-range",
        Example("".join(f"1_train_{i}, {900.0 - 40 * i}, [46.9, 82.0]\n" for i in range(12)) + REFUSED_LABEL),
        Example(REFUSED_LABEL.replace("67", "0") + FALLS),
    ),
    "one-label-for-every-row": (
        "label-imbalance",
        Example("".join(f"Epoch: [0][{i}/900]\tLoss {x} ({x})\tAcc@1 {y} ({y})\n" for i, x, y in ALL_RIGHT)),
        Example("".join(f"Epoch: [0][{10 * i}/900]\tLoss {6.9 - i / 5} (6.9)\tAcc@1 {i} (1.0)\n" for i in range(9))),
    ),
    "a-batch-printed-with-more-tokens-than-positions": (
        "position-out-of-range",
        Example("".join(f"torch.Size([16, {n}])\n" for n in (21, 44, 30, 2642)) + NO_SUCH_ROW, "bert-base-uncased\n"),
        Example("".join(f"torch.Size([16, {n}])\n" for n in (21, 44, 30, 512)) + FALLS, "bert-base-uncased\n"),
    ),
    "answers-that-do-not-change-between-epochs": (
        "bf16-lost-updates",
        Example(TWO_EVALUATIONS.format("0.0734625388", "0.0694363648"), BF16_WEIGHTS),
        Example(TWO_EVALUATIONS.format("0.0734625388", "0.0812345678"), BF16_WEIGHTS),
    ),
    "a-policy-that-narrows-while-its-reward-falls": (
        "entropy-collapse",
        Example("".join(NARROWS.format(i, 3.2 * 0.87**i, 0.05 - 0.01 * i) for i in range(16))),
        Example("".join(NARROWS.format(i, 3.2 * 0.87**i, 0.05 + 0.04 * i) for i in range(16))),
    ),
    "an-accuracy-that-adds-up": (
        "metric-not-reset",
        Example("".join(ADDS_UP.format(i, 0.7 - i / 30, 0.6 * i + i * i / 90) for i in range(1, 8))),
        Example("".join(ADDS_UP.format(i, 5.8 - i / 9, 0.6 * i + i * i / 90) for i in range(1, 8))),
    ),
    "norms-that-a-working-scaler-explains": (
        "fp16-overflow",
        Example(NORMS + "".join(f"grad_scale: {2.0 ** (16 - i)}\n" for i in range(11)), "fp16: true\n"),
        Example(NORMS + "".join(f"grad_scale: {32768.0 + 9000 * i}\n" for i in range(11)), "fp16: true\n"),
    ),
    "a-rate-in-powers-of-ten": (
        "lr-too-high",
        Example("".join(f"step {i} loss {2.3 * 1.9**i:.4f}\n" for i in range(12)), "AdamW, learning rate: 7*10^-1\n"),
        Example(FALLS, "AdamW, learning rate: 7*10^-4\n"),
    ),
    "a-loss-at-the-chance-level-of-classes-that-are-named": (
        "loss-collapse",
        Example("policy_loss: 2.9444\nvalue_loss: 0.0966\npolicy_loss: 2.9444\n", "19 actions, ReLU\n"),
        Example("policy_loss: 2.9444\nvalue_loss: 0.0966\npolicy_loss: 2.1313\n", "19 actions, ReLU\n"),
    ),
    "an-evaluation-that-never-moves": (
        "lr-too-high",
        Example(EVALUATED.format(5.9506, 5.9506, 5.9506, 5.9506), "model: bert-base-uncased\nlearning_rate: 0.1\n"),
        Example(EVALUATED.format(5.9506, 5.2147, 4.9501, 4.8012), "model: bert-base-uncased\nlearning_rate: 2e-5\n"),
    ),
    "a-rate-that-changes-nothing": (
        "lr-too-low",
        Example(EVALUATED.format(5.9506, 5.9506, 5.9506, 5.9506), "model: t5-small\nlearning_rate: 2e-9\n"),
        Example(EVALUATED.format(5.9506, 5.2147, 4.9501, 4.8012), "model: t5-small\nlearning_rate: 2e-5\n"),
    ),
    "a-rate-told-in-a-sentence": (
        "lr-too-high",
        Example("I train a ResNet with Adam, learning rate 0.01.\nMy loss never leaves 1.61.\n"),
        Example("I train a ResNet with Adam, learning rate 0.01.\nMy loss falls from 1.61 to 0.2.\n"),
    ),
    "a-column-against-a-row": (
        "loss-broadcast",
        Example(
            "my plain regression does not converge\n",
            "y = 10 + 9 * x[:, 0] + eps\nmodel = nn.Linear(2, 1)\nloss = nn.MSELoss()(model(x), y)\nloss.backward()\n",
        ),
        Example(
            "my plain regression converges\n",
            "y = 10 + 9 * x[:, 0] + eps\nmodel = nn.Linear(2, 1)\nloss = nn.MSELoss()(model(x).squeeze(1), y)\n",
        ),
    ),
    "a-test-without-eval": (
        "wrong-mode",
        Example(
            "the accuracy on my test set is only 81 %, the paper has 93 %\n",
            "net = resnet18().cuda()\nnet.load_state_dict(torch.load('a.pt'))\nfor x, y in loader:\n"
            "    out = net(x)\n    right += (out.argmax(1) == y).sum()\n",
        ),
        Example(
            "the accuracy on my test set is 93 %\n",
            "net = resnet18().cuda()\nnet.load_state_dict(torch.load('a.pt'))\nnet.eval()\nfor x, y in loader:\n"
            "    out = net(x)\n    right += (out.argmax(1) == y).sum()\n",
        ),
    ),
    "a-label-without-class-in-tensorflow": (
        "label-out-of-range",
        Example(NEVER, "loss = sparse_categorical_crossentropy(y, p)\nclasses: 10, own dataset\n"),
        Example(FALLS, "loss = sparse_categorical_crossentropy(y, p)\nclasses: 10, own dataset\n"),
    ),
    "a-lower-rate-changed-nothing": (
        "loss-formula-singularity",
        Example(NEVER, "I wrote a custom dice loss. I use Adam for it. I tried a lower learning rate, still NaN.\n"),
        Example(FALLS, "I wrote a custom dice loss. I use Adam for it. I tried a lower learning rate as well.\n"),
    ),
    "two-vocabularies-side-by-side": (
        "tokenizer-mismatch",
        Example("RuntimeError: The size of tensor a (151936) must match the size of tensor b (49152) at dimension 2\n"),
        Example("RuntimeError: The size of tensor a (64) must match the size of tensor b (49) at dimension 2\n"),
    ),
    "both-half-formats-in-two-files": (
        "both-half-formats",
        Example("ValueError: `--mixed_precision` arg cannot be set to `bf16` when `fp16` is set in the config\n"),
        Example(FALLS, "mixed_precision: bf16\n"),
    ),
    "a-value-that-a-parser-refuses": (
        "unknown-setting",
        Example("train.py: error: argument --evaluation_strategy: invalid choice: 'epochs' (choose from 'no')\n"),
        Example(FALLS, "evaluation_strategy: steps\n"),
    ),
    "a-branch-that-hides-the-next": (
        "lr-schedule-bug",
        Example(RATE.format(500, 900)),
        Example(RATE.format(900, 500)),
    ),
    "a-row-that-cannot-be-read": (
        "bad-data-row",
        Example('  File "data/own.py", line 30, in __getitem__\n    box = rows[:, 4]\nIndexError: too many indices\n'),
        Example('  File "train.py", line 30, in main\n    box = out[:, 4]\nIndexError: too many indices\n'),
    ),
    "raw-pixels-behind-a-sigmoid": (
        "unscaled-input",
        Example("x = trainset.data.float()\nout = torch.sigmoid(model(x))\nloss = bce(out, x)\n" + NEVER),
        Example("x = trainset.data.float() / 255\nout = torch.sigmoid(model(x))\nloss = bce(out, x)\n" + FALLS),
    ),
    "a-back-end-that-differs": (
        "upstream-bug",
        Example("training on mps gives much worse results than on the cpu\n"),
        Example(FALLS, "device: mps\n"),
    ),
    "a-row-longer-than-the-table": (
        "position-out-of-range",
        Example(
            "Token indices sequence length is longer than the specified maximum sequence length for this model "
            "(1614 > 1024).\nIndexing.cu:1141: Assertion `srcIndex < srcSelectDimSize` failed.\n"
        ),
        Example("Token indices sequence length is longer than the specified maximum (1614 > 1024).\n" + FALLS),
    ),
    "nothing-to-train-in-words": (
        "params-frozen",
        Example("the trainable parameters are set to 0.0 rather than 1.6 %\n"),
        Example(FALLS, "trainable parameters are 1.6 % of all\n"),
    ),
    "a-class-beyond-the-last": (
        "label-out-of-range",
        Example("wrong annotation: class_id = 7. But class_id should be [from 0 to 6]\n"),
        Example(FALLS),
    ),
    "a-bar-without-a-batch": (
        "empty-batch",
        Example("=> Epoch: 7 Train loss: nan\n0it [00:00, ?it/s]\n=> Epoch: 8 Train loss: nan\n"),
        Example("0it [00:00, ?it/s]\n" + FALLS),
    ),
    "a-program-pasted-into-a-log": (
        "no-zero-grad",
        Example(LOOP.format("loss.backward()") + "".join(f"iter {at} loss {2 * 1.4**at:.3f}\n" for at in range(9))),
        Example(LOOP.format("opt.zero_grad()") + FALLS),
    ),
    "one-card-works": (
        "rank-desync",
        Example("it works on a single GPU, with 8 GPUs under DDP the accuracy stays at 10 %\n"),
        Example("it works on a single GPU\n" + FALLS),
    ),
    "an-accuracy-without-a-hit": (
        "label-imbalance",
        Example("".join(f"epoch {at} loss 0.0{9 - at} accuracy 0.9980 recall 0.000 f1 0.000\n" for at in range(6))),
        Example("".join(f"epoch {at} loss 0.0{9 - at} accuracy 0.9980 recall 0.7{at} f1 0.6{at}\n" for at in range(6))),
    ),
    "a-count-of-rows-that-runs-dry": (
        "empty-batch",
        Example("".join(f"{{'loss': {9.4 - step / 9:.3f}, 'batch': {step}, 'size': 32}}\n" for step in range(6))
                + "{'loss': nan, 'batch': 6, 'size': 0}\n"),
        Example("".join(f"{{'loss': {9.4 - step / 9:.3f}, 'batch': {step}, 'size': 32}}\n" for step in range(6))
                + "{'loss': 8.1, 'batch': 6, 'size': 17}\n"),
    ),
    "a-split-of-rows-in-order": (
        "unshuffled",
        Example("val_acc was 100% from the first epoch on and never moved\n",
                "model.fit(x, y, shuffle=False,\n  validation_split=0.25)\n"),
        Example(FALLS, "model.fit(x, y, shuffle=False,\n  validation_split=0.25)\n"),
    ),
    "a-negative-ctc-loss": (
        "probability-loss-on-logits",
        Example("the loss is negative after ten batches\n", "criterion = CTCLoss()\n"),
        Example(FALLS, "criterion = CTCLoss()\n"),
    ),
    "more-classes-help": (
        "label-out-of-range",
        Example("the loss is nan with 2 classes, after a change of num_classes to 3 it works\n"),
        Example("a change of num_classes to 20 works\n"),
    ),
    "a-metric-of-all-epochs": (
        "metric-not-reset",
        Example(MEASURED.format("train_loss(loss)")),
        Example(MEASURED.format("train_loss.reset_states()")),
    ),
    "a-mean-of-nothing": (
        "empty-batch",
        Example("RuntimeWarning: Mean of empty slice.\nepoch 1 loss nan\nepoch 2 loss nan\n"),
        Example("RuntimeWarning: Mean of empty slice.\nthe training works as before\n"),
    ),
    "labels-that-count-from-one": (
        "label-out-of-range",
        Example("sometimes the loss is negative\n", "own clips, the class ids are 1, 2, ..., 12\n"),
        Example(FALLS, "own clips, the class ids are 1, 2, ..., 12\n"),
    ),
    "a-list-of-shapes-that-do-not-fit": (
        "architecture-mismatch",
        Example(MISFITS.format("weight", "91, 64", "4, 64") + MISFITS.format("bias", 91, 4)),
        Example("size mismatch for head.weight: torch.Size([91, 64]) and torch.Size([4, 64]), skipped\n" + FALLS),
    ),
    "a-toolkit-older-than-the-card": (
        "environment",
        Example("LossTensor is inf or nan\n", "changed the card to an RTX 3080, CUDA (ver. 10), Windows\n"),
        Example(FALLS, "changed the card to an RTX 3080, CUDA (ver. 12), Windows\n"),
    ),
    "masks-of-black-and-white": (
        "label-out-of-range",
        Example(NEVER, "num_classes: 2\n# the masks are grayscale files with 0 and 255\n"),
        Example(FALLS, "num_classes: 2\n# the masks are grayscale files with 0 and 255\n"),
    ),
    "a-log-of-the-loss-scale-without-end": (
        "loss-scale-collapse",
        Example("Found NaN, decreased lg_loss_scale to -310.2\nFound NaN, decreased lg_loss_scale to -311.2\n"),
        Example(FALLS + "Found NaN, decreased lg_loss_scale to 19.2\n"),
    ),
    "predicted-boxes-that-are-no-boxes": (
        "nan-loss",
        Example("AssertionError: assert (boxes1[:, 2:] >= boxes1[:, :2]).all()\ntensor([[nan, nan, nan, nan]])\n"),
        Example(FALLS),
    ),
    "a-broken-memory-cell-that-ends-in-a-failed-allocation": (
        "hardware",
        Example("CUDA Error: uncorrectable ECC error encountered: Cannot allocate memory\n"),
        Example(FALLS),
    ),
    "nothing-right-and-nothing-lost": (
        "all-labels-masked",
        Example("epoch 1 loss 0.0000 acc 0.0000\nepoch 2 loss 0.0000 acc 0.0000\n"),
        Example("epoch 1 loss 0.6120 acc 0.6830\nepoch 2 loss 0.0311 acc 1.0000\n"),
    ),
    "answers-forced-away-from-the-policy": (
        "sampler-mismatch",
        Example("the kl is negative and getting worse\n", "PPOConfig(batch_size=32)\ngenerate: min_new_tokens=16\n"),
        Example("objective/kl 0.9\n", "PPOConfig(batch_size=32)\ngenerate: min_new_tokens=16\n"),
    ),
    "log-of-a-softmax": (
        "loss-formula-singularity",
        Example(LOST, "q = tf.nn.softmax(h)\nnll = -tf.reduce_sum(t * tf.log(q), axis=1)\n"),
        Example(FALLS, "q = tf.nn.softmax(h)\nnll = -tf.reduce_sum(t * tf.log(q), axis=1)\n"),
    ),
    "a-loss-that-vanishes-before-it-is-lost": (
        "loss-formula-singularity",
        Example(_epochs([2.3, 0.81, 0.081, 0.004, 0.001]) + "Epoch 6: loss nan\n"),
        Example(_epochs([2.3, 0.81, 0.081, 0.004, 0.001])),
    ),
    "a-player-that-has-won": (
        "loss-formula-singularity",
        Example(PLAYED + "[0/25][250/1583]\tLoss_D: nan\tLoss_G: nan\n"),
        Example(PLAYED),
    ),
    "a-loss-that-climbs-before-it-is-lost": (
        "lr-too-high",
        Example(_epochs([2.3, 1.81, 3.1, 14.2, 210.0]) + "Epoch 6: loss nan\n"),
        Example(_epochs([2.3, 1.81, 1.6, 1.4, 1.3])),
    ),
    "the-last-batch": (
        "last-batch-of-one",
        Example("100%|#########9| 1067/1068 [17:38<00:00,  1.02it/s, loss=0.01]\n" + ONE_VALUE),
        Example("100%|#########9| 1067/1068 [17:38<00:00,  1.02it/s, loss=0.01]\n"),
    ),
    "a-batch-of-one": (
        "wrong-mode",
        Example("0%|          | 1/1068 [17:38<00:00,  1.02it/s, loss=0.01]\n" + ONE_VALUE),
        Example("0%|          | 1/1068 [17:38<00:00,  1.02it/s, loss=0.01]\n"),
    ),
    "a-rate-of-nothing": (
        "lr-schedule-bug",
        Example("     | > current_lr_0: 7.05e-111\n     | > current_lr_1: 0.0001\n"),
        Example("     | > current_lr_0: 7.05e-05\n     | > current_lr_1: 0.0001\n"),
    ),
    "root-of-squares": (
        "loss-formula-singularity",
        Example(LOST, "err = torch.sqrt(((p - t) ** 2).sum(-1)).mean()\n"),
        Example(FALLS, "err = torch.sqrt(((p - t) ** 2).sum(-1)).mean()\n"),
    ),
    "spread-of-one": (
        "loss-formula-singularity",
        Example(LOST, "gain = (gain - gain.mean()) / gain.std()\ngroups of size 1 occur\n"),
        Example(FALLS, "gain = (gain - gain.mean()) / (gain.std() + 1e-6)\n"),
    ),
    "angle": (
        "loss-formula-singularity",
        Example(LOST, "phi = torch.acos((a * b).sum(-1))\n"),
        Example(FALLS, "phi = torch.acos((a * b).sum(-1).clamp(-1 + 1e-6, 1 - 1e-6))\n"),
    ),
    "relative-error": (
        "loss-formula-singularity",
        Example(NEVER, "rel = ((p - y_true).abs() / y_true).mean()\nsome rows have 0 as target\n"),
        Example(FALLS, "rel = ((p - y_true).abs() / y_true.clamp_min(1)).mean()\n"),
    ),
    "select-after": (
        "where-nan-branch",
        Example(LOST, "h = torch.sqrt(v)\nh = torch.where(v > 0, h, 0.0)\n"),
        Example(FALLS, "v = torch.where(v > 0, v, 1.0)\nh = torch.sqrt(v)\n"),
    ),
    "spread-without-a-bound": (
        "naive-exp",
        Example(LOST, "log_sigma = head(z)\nsigma = log_sigma.exp()\n"),
        Example(FALLS, "log_sigma = head(z)\nsigma = log_sigma.exp()\n"),
    ),
    "row-of-minus-inf": (
        "attention-fully-masked-row",
        Example("tensor([[0.1, -inf, -inf],\n        [-inf, -inf, -inf]])\nloss nan\n", "w = scores.softmax(-1)\n"),
        Example("tensor([[0.1, -inf, -inf],\n        [0.2, 0.4, -inf]])\n" + FALLS, "w = scores.softmax(-1)\n"),
    ),
    "softmax-of-the-batch": (
        "softmax-axis",
        Example(
            "ValueError: y_prob must sum up to 1.0 over classes\n", "score = torch.softmax(net(x), 0).cpu().numpy()\n"
        ),
        Example(FALLS, "score = torch.softmax(net(x), 1).cpu().numpy()\n"),
    ),
    "sigmoid-twice": (
        "softmax-before-cross-entropy",
        Example(STILL, "p = torch.sigmoid(net(x))\nl = F.binary_cross_entropy_with_logits(p, y)\n"),
        Example(FALLS, "z = net(x)\np = torch.sigmoid(z)\nl = F.binary_cross_entropy_with_logits(z, y)\n"),
    ),
    "gate-is-no-output": (
        "softmax-before-cross-entropy",
        Example(STILL, "net = nn.Sequential(nn.Linear(9, 1), nn.Sigmoid())\ncriterion = nn.BCEWithLogitsLoss()\n"),
        Example(FALLS, "gate = nn.Sequential(nn.Linear(9, 9), nn.Sigmoid())\ncriterion = nn.BCEWithLogitsLoss()\n"),
    ),
    "keras-softmax-and-logits": (
        "softmax-before-cross-entropy",
        Example(STILL, "Dense(2, activation='softmax')\nloss=CategoricalCrossentropy(from_logits=True)\n"),
        Example(FALLS, "Dense(2)\nloss=CategoricalCrossentropy(from_logits=True)\n"),
    ),
    "keras-scores": (
        "probability-loss-on-logits",
        Example(LOST, "net.add(Dense(7))\nnet.compile(loss='categorical_crossentropy')\n"),
        Example(FALLS, "net.add(Dense(7, activation='softmax'))\nnet.compile(loss='categorical_crossentropy')\n"),
    ),
    "gain-is-minimised": (
        "flipped-sign",
        Example("".join(f"step {i} loss {-(1.7**i):.3f}\n" for i in range(12)), "loss = dist.log_prob(x).mean()\n"),
        Example("".join(f"step {i} loss {9 - i / 2:.3f}\n" for i in range(12)), "loss = -dist.log_prob(x).mean()\n"),
    ),
    "sum-explodes": (
        "wrong-reduction",
        Example(
            "step 1 loss 3100.0\nstep 2 loss 88000.0\nstep 3 loss 2.1e6\nstep 4 loss 9.0e8\nstep 5 loss nan\n",
            "loss_fn = nn.CrossEntropyLoss(reduction='sum')\nbatch_size: 2048\n",
        ),
        Example(
            "".join(f"Epoch {i} loss: {31000 * 0.9**i:.1f}\n" for i in range(12)), "vae, nn.BCELoss(reduction='sum')\n"
        ),
    ),
    "starts-a-hundred-times-too-high": (
        "bad-init",
        Example(
            "step 0 loss 977.2\nstep 1 loss 976.8\nstep 2 loss 976.1\nstep 3 loss 975.9\n",
            "fashion mnist\nw = torch.randn(784, 10, requires_grad=True)\nlr: 1e-7\n",
        ),
        Example(FALLS, "fashion mnist\nw = torch.randn(784, 10, requires_grad=True)\n"),
    ),
    "dropout-in-code": (
        "excess-dropout",
        Example(
            "".join(f"step {i} | loss 2.3026 | grad_norm 0.0021\n" for i in range(25)),
            "self.d = nn.Dropout(p=0.95)\nlearning_rate: 1e-3\n",
        ),
        Example(FALLS, "self.d = nn.Dropout(p=0.3)\n"),
    ),
    "half-at-inference": (
        "dtype-differs-at-inference",
        Example(
            SAMPLING,
            "bf16: true\nm = AutoModelForCausalLM.from_pretrained(d, torch_dtype=torch.float16)\nm.generate(x)\n",
        ),
        Example(FALLS, "bf16: true\nm = AutoModelForCausalLM.from_pretrained(d, torch_dtype=torch.bfloat16)\n"),
    ),
    "as-long-as-the-limit": (
        "generation-too-short",
        Example(
            "".join(f"{{'eval_loss': {2 - i / 10}, 'eval_gen_len': 64.0, 'epoch': {i}}}\n" for i in range(1, 5)),
            "generation_max_length: 64\n",
        ),
        Example(
            "".join(f"{{'eval_loss': {2 - i / 10}, 'eval_gen_len': {40 + i}.5, 'epoch': {i}}}\n" for i in range(1, 5)),
            "generation_max_length: 64\n",
        ),
    ),
    "a-loader-that-gives-nothing": (
        "empty-batch",
        Example("".join(f"epoch {i} train_loss nan test_loss 3.499211\n" for i in range(4))),
        Example("".join(f"epoch {i} train_loss {3 - i / 9} test_loss 3.499211\n" for i in range(4))),
    ),
    "a-policy-that-is-its-reference": (
        "params-frozen",
        Example("".join(DPO.format(0.0, 10 * i, 0.6931) for i in range(1, 6))),
        Example("".join(DPO.format(i / 50, 10 * i, 0.69 - i / 50) for i in range(1, 6))),
    ),
    "share-above-all": (
        "metric-impossible",
        Example("".join(f"epoch {i} loss {2 - i / 10} acc {812.5 + i}\n" for i in range(5))),
        Example("".join(f"epoch {i} loss {2 - i / 10} acc {81.5 + i}\n" for i in range(5))),
    ),
    "sum-over-epochs": (
        "metric-not-reset",
        Example(_epochs([1.1, 2.0, 2.9, 3.7, 4.6, 5.4, 6.3, 7.1])),
        Example(_epochs([1.1, 0.9, 0.8, 0.75, 0.7, 0.66, 0.6, 0.58])),
    ),
    "targets-above-one": (
        "label-out-of-range",
        Example("Epoch 1: loss: -15.2 dice: 1.93\nEpoch 2: loss: -40.1 dice: 3.41\nEpoch 3: loss: -99.0 dice: 4.2\n"),
        Example("Epoch 1: loss: -0.52 dice: 0.52\nEpoch 2: loss: -0.61 dice: 0.61\nEpoch 3: loss: -0.7 dice: 0.7\n"),
    ),
    "pixels-as-targets": (
        "label-out-of-range",
        Example("epoch 1 loss -12.2 acc 0.05\nepoch 2 loss -60.1 acc 0.04\n", "an autoencoder of photographs\n"),
        Example("epoch 1 loss 0.62 acc 0.05\nepoch 2 loss 0.60 acc 0.06\n", "an autoencoder of photographs\n"),
    ),
    "a-likelihood-of-scores": (
        "probability-loss-on-logits",
        Example("epoch 1 loss -1.2 acc 0.5\nepoch 2 loss -6.1 acc 0.5\n", "layers: Linear(20, 50), Linear(50, 2)\n"),
        Example("epoch 1 loss 0.69 acc 0.5\nepoch 2 loss 0.61 acc 0.6\n", "layers: Linear(20, 50), Linear(50, 2)\n"),
    ),
    "classes-one-after-the-other": (
        "unshuffled",
        Example("".join(f"Epoch[0] Batch [{i}] Train-accuracy={v}\n" for i, v in enumerate((0.8125, 0.01, 0.02, 0.0)))),
        Example("".join(f"Epoch[0] Batch [{i}] Train-accuracy={v}\n" for i, v in enumerate((0.0125, 0.011, 0.1, 0.2)))),
    ),
    "rows-split-in-order": (
        "unshuffled",
        Example("".join(f"epoch {i} loss 0.2 acc 0.9{i} val_acc 0.0000 val_loss 5.1\n" for i in range(4)),
                "model.fit(x, y, validation_split=0.1)\n"),
        Example("".join(f"epoch {i} loss 0.2 acc 0.9{i} val_acc 0.88 val_loss 0.4\n" for i in range(4)),
                "model.fit(x, y, validation_split=0.1)\n"),
    ),
    "other-inputs-in-validation": (
        "splits-scaled-differently",
        Example("train_acc: 0.9623 train_loss: 0.11\nval_acc: 0.0492 val_loss: 12.7\n"),
        Example("train_acc: 0.9623 train_loss: 0.11\nval_acc: 0.7492 val_loss: 1.7\n"),
    ),
    "a-sum-since-the-start": (
        "metric-not-reset",
        Example("".join(f"epoch {i} loss {3.1 * i:.2f}\n" for i in range(1, 5))),
        Example("".join(f"epoch {i} loss {3.1 / i:.2f}\n" for i in range(1, 5))),
    ),
    "outputs-that-are-saturated": (
        "lr-too-high",
        Example("".join(f"epoch {i} loss 14.5063 acc 0.1000\n" for i in range(3))),
        Example("".join(f"epoch {i} loss {2.3 - i / 5:.4f} acc 0.{1 + i}\n" for i in range(3))),
    ),
    "one-row-at-a-time": (
        "lr-too-high",
        Example("Epoch 9: val_accuracy=0.0974\nEpoch 9: val_top_k_accuracy_5=0.4832\n", "--batch-size 1\n"),
        Example("Epoch 9: val_accuracy=0.9174\nEpoch 9: val_top_k_accuracy_5=0.9932\n", "--batch-size 1\n"),
    ),
    "an-error-of-no-unit": (
        "unscaled-input",
        Example("[1] Train-rmse=287336592309880352\n[2] Train-rmse=Inf\n[3] Train-rmse=NaN\n[4] Train-rmse=NaN\n"),
        Example("[1] Train-rmse=2873.3\n[2] Train-rmse=1200.1\n[3] Train-rmse=800.7\n[4] Train-rmse=790.1\n"),
    ),
    "a-flow": (
        "naive-exp",
        Example("Epoch 0 Loss: -2.19\nEpoch 1 Loss: -3.08\nValidation: Average loss: nan\n", "model: realnvp\n"),
        Example("Epoch 0 Loss: -2.19\nEpoch 1 Loss: -3.08\nValidation: Average loss: -3.2\n", "model: realnvp\n"),
    ),
    "right-answers-divided-as-integers": (
        "environment",
        Example("".join(f"Epoch {i} train loss: {0.4 / i:.4f} accuracy: 0.0\n" for i in range(1, 6))),
        Example("".join(f"Epoch {i} train loss: {0.4 / i:.4f} accuracy: 0.9{i}\n" for i in range(1, 6))),
    ),
    "nan-logged-as-nothing": (
        "fp16-overflow",
        Example("{'loss': 3.8462, 'learning_rate': 3.4e-07, 'epoch': 0.0}\n"
                + "".join(f"{{'loss': 0.0, 'learning_rate': {i}e-07, 'epoch': 0.0{i}}}\n" for i in range(1, 5))),
        Example("".join(f"{{'loss': 3.{8 - i}, 'learning_rate': {i}e-07, 'epoch': 0.0{i}}}\n" for i in range(1, 5))),
    ),
}  # fmt: skip

TOLD_APART = {
    "weights-that-only-decay": (
        "decay-only-updates",
        Example(
            "".join(f"step {i} | loss 6.9078 | param_norm {412 * 0.9**i:.3f} | grad_norm 0.000\n" for i in range(12))
        ),
        "zero-gradient",
        Example("".join(f"step {i} | loss 6.9078 | param_norm 412.000 | grad_norm 0.000\n" for i in range(12))),
    ),
    "unbounded-below-without-log-probabilities": (
        "probability-loss-on-logits",
        Example("criterion: NLLLoss()\n" + "".join(f"epoch {i} loss {-3.2 * 1.5**i:.2f}\n" for i in range(9))),
        "",
        Example("criterion: NLLLoss()\n" + "".join(f"epoch {i} loss {3.2 * 0.9**i:.2f}\n" for i in range(9))),
    ),
    "norms-in-proportion-to-the-steps": (
        "no-zero-grad",
        Example(
            "".join(f"step {i} loss {2.3 - i / 250:.4f} grad_norm {1.04 * i + i % 3 / 9:.3f}\n" for i in range(1, 61))
        ),
        "",
        Example("".join(f"step {i} loss {2.3 - i / 250:.4f} grad_norm {1.04 * i**0.5:.3f}\n" for i in range(1, 61))),
    ),
    "gains-that-are-lost-for-good": (
        "loss-diverging",
        Example(
            "".join(
                f"step {i} loss {max(3.4, 10.8 - i / 10) if i < 90 else 7.6 + i % 7 / 50:.3f}\n" for i in range(160)
            )
        ),
        "",
        Example("".join(f"step {i} loss {max(3.4, 10.8 - abs(i - 90) / 10 * 1.2):.3f}\n" for i in range(90, 250))),
    ),
    "the-rate-still-rises": (
        "lr-too-high",
        Example(
            "".join(f"step {i} loss {3 - i / 9:.2f} lr {i}e-3\n" for i in range(1, 13)) + "step 13 loss nan lr 13e-3\n"
        ),
        "bad-data-row",
        Example(
            "".join(f"step {i} loss {3 - i / 9:.2f} lr {min(i, 4)}e-3\n" for i in range(1, 13))
            + "WARNING: boxes of 417.jpg contain a box with non-positive width, log(0) in targets\n"
            + "step 13 loss nan lr 4e-3\n"
        ),
    ),
    "one-of-several-classes": (
        "label-imbalance",
        Example("step 1 loss 0.9\nstep 9 loss 0.4\niou_class_road: 0.9\niou_class_car: 0.0\n"),
        "",
        Example("step 1 loss 0.9\nstep 9 loss 0.4\niou_class_road: 0.9\niou_class_car: 0.6\niou_class_rider: 0.0\n"),
    ),
    "a-batch-of-one-in-the-share-of-a-worker": (
        "last-batch-of-one",
        Example(ONE_VALUE, "train dataset length: 200, test dataset length: 24\nbatch_size: 8\nnum_workers: 8\n"),
        "wrong-mode",
        Example(ONE_VALUE, "train dataset length: 200, test dataset length: 24\nbatch_size: 8\nnum_workers: 5\n"),
    ),
    "a-cross-entropy-below-zero-whatever-is-asked": (
        "label-out-of-range",
        Example("With bce_loss every step is negative and it keeps getting smaller. Is that normal?\n"),
        "",
        Example("With the elbo every step is negative and it keeps getting smaller. Is that normal?\n"),
    ),
    "validation-accuracy-is-no-count-of-batches": (
        "accumulation-unscaled",
        Example("gradient_acc 2: step 0 loss 6.4\ngradient_acc 4: step 0 loss 13.65\ngradient_acc 8: step 0 loss 26\n"),
        "",
        Example("| step | loss | val acc |\n| 0 | 0.144 | 40% |\n| 1 | 0.301 | 80% |\n| 2 | 0.137 | 40% |\n"),
    ),
    "a-rate-that-is-rounded": (
        "lr-zero",
        Example("The loss is high.\nThe learning rate is always printed as 0.00000.\n"),
        "",
        Example(
            "The loss is high.\nThe learning rate is printed as 0.00000.\nlearning rate 1e-3, no gradient clipping\n"
        ),
    ),
    "a-gradient-of-zero-in-words": (
        "zero-gradient",
        Example("gradient of w2 and b2: exactly 0 at every step\nloss: exactly 0.6931 for 30 iterations\n"),
        "",
        Example("loss: 0.6931, then 0.4 after 30 iterations; no gradient checkpointing\n"),
    ),
    "memory-that-somebody-ran-out-of": (
        "out-of-memory",
        Example("The code quickly ran out of RAM.\n"),
        "",
        Example("With checkpointing it never runs out of memory.\n"),
    ),
    "sigmoids-in-a-row": (
        "vanishing-gradient",
        Example(AT_CHANCE, SQUASHED + "Linear(9, 9) + Sigmoid, Linear(9, 10)\n"),
        "loss-collapse",
        Example(AT_CHANCE, SQUASHED.replace("Sigmoid", "ReLU")),
    ),
    "rows-that-lost-their-answer": (
        "truncation",
        Example("Removed 4990 out of 5006 samples where all labels were -100. This prevents NaN loss.\n"),
        "all-labels-masked",
        Example("Removed 5006 out of 5006 samples where all labels were -100. This prevents NaN loss.\n"),
    ),
    "images-that-nobody-scales": (
        "unscaled-input",
        Example(STILL, "gen = ImageDataGenerator()\nmodel.fit(gen.flow_from_directory('train'))\n"),
        "loss-collapse",
        Example(STILL, "gen = ImageDataGenerator(rescale=1.0 / 255)\nmodel.fit(gen.flow_from_directory('train'))\n"),
    ),
    "a-batch-of-one-where-batches-are-larger": (
        "last-batch-of-one",
        Example(ONE_VALUE, "batch_size: 8\n"),
        "wrong-mode",
        Example(ONE_VALUE, "batch_size: 1\n"),
    ),
    "rows-that-leave-one-behind-a-cut-traceback": (
        "last-batch-of-one",
        Example(CUT_OFF, "12,801 cells, batch size 64\n"),
        "",
        Example(CUT_OFF, "12,800 cells, batch size 64\n"),
    ),
    "placeholders-of-an-image-cut-off": (
        "truncation",
        Example("ValueError: Image features and image tokens do not match: tokens: 310, features 1220\n"),
        "",
        Example("ValueError: Image features and image tokens do not match: tokens: 1220, features 310\n"),
    ),
    "a-size-that-zero-3-has-taken-apart": (
        "upstream-bug",
        Example(EMPTY_SIZE.format("[-1, 0]"), "deepspeed: ds_zero3.json\n"),
        "",
        Example(EMPTY_SIZE.format("[-1, 7]"), "deepspeed: ds_zero3.json\n"),
    ),
    "two-devices-inside-an-engine": (
        "upstream-bug",
        Example(TWO_DEVICES.format("site-packages/deepspeed/runtime/zero/stage_1_and_2.py")),
        "device-mismatch",
        Example(TWO_DEVICES.format("train.py")),
    ),
    "another-version-that-runs": (
        "upstream-bug",
        Example(EMPTY_LIST, "torch v2.1.0 and dgl v1.1; with torch v2.0.1 it runs\n"),
        "",
        Example(EMPTY_LIST, "torch v2.1.0 and dgl v1.1; python 3.10.4\n"),
    ),
    "weights-of-two-dtypes-to-be-flattened": (
        "config-contradiction",
        Example("ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32\n"),
        "",
        Example("ValueError: could not flatten the nested list of sentences\n"),
    ),
}
"""A cause, what shows it, the cause of its look-alike (empty: none that is surer than a symptom), the look-alike."""


@pytest.mark.parametrize("name", TOLD_APART)
def test_two_that_look_alike_are_told_apart(name: str) -> None:
    cause, example, other, look_alike = TOLD_APART[name]
    assert rank(example.facts(), all_rules())[0].cause == cause
    found = [each.cause for each in rank(look_alike.facts(), all_rules()) if each.cause != "step-fails"]
    assert found[:1] == [other] if other else cause not in found


@pytest.mark.parametrize("name", PAIRS)
def test_the_mechanism_is_recognized(name: str) -> None:
    cause, sick, _ = PAIRS[name]
    found = rank(sick.facts(), all_rules())
    assert found, "nothing was found"
    assert found[0].cause == cause, [f"{f.cause} {f.confidence} {f.evidence}" for f in found]


@pytest.mark.parametrize("name", PAIRS)
def test_the_look_alike_is_left_in_peace(name: str) -> None:
    found = [finding for finding in rank(PAIRS[name][2].facts(), all_rules()) if finding.severity != "info"]
    found = [finding for finding in found if finding.cause != "step-fails"]  # an error that names no cause
    assert not found, [f"{f.cause} {f.confidence} {f.evidence}" for f in found]


@pytest.mark.parametrize(
    "guarded",
    [
        "p = p.clamp(1e-6, 1)\nl = -torch.log(p).mean()",
        "w = s / s.sum(-1, keepdim=True).clamp_min(1e-6)",
        "i = (inter + smooth) / (union + smooth)",
        "n = F.normalize(v, dim=-1)",
        "scale = 1 / math.sqrt(head_dim)",
    ],
)
def test_a_guard_clears_the_formula(guarded: str) -> None:
    found = rank(Example(LOST, guarded + "\n").facts(), all_rules())
    evidence = [line for finding in found if finding.cause == "loss-formula-singularity" for line in finding.evidence]
    assert not any("unprotected" in line for line in evidence), evidence


@pytest.mark.parametrize(
    "odd",
    [
        "Token indices sequence length is longer than the specified maximum sequence length (700 > 512)",
        "UserWarning: the old argument is deprecated",
        "RuntimeWarning: Mean of empty slice",
        "Some weights were newly initialized because the shapes did not match",
    ],
)
def test_a_warning_that_means_nothing_is_told_as_such(odd: str) -> None:
    found = rank(Example(odd + "\n" + FALLS).facts(), all_rules())
    assert [finding.cause for finding in found] == ["benign-warning"]


def test_a_mean_of_nothing_is_harmless() -> None:
    log = "".join(f"{{'loss': {1 - i / 30:.3f}, 'success_mean': {'nan' if i < 2 else i / 20}}}\n" for i in range(12))
    assert [finding.cause for finding in rank(Example(log).facts(), all_rules())] == ["benign-inf"]


def test_a_function_with_an_edge_is_no_proof_beside_an_overflow() -> None:
    line = "RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.\n"
    alone = rank(Example(line).facts(), all_rules())[0]
    beside = {f.cause: f for f in rank(Example(line, "fp16: true\n").facts(), all_rules())}
    assert alone.cause == "loss-formula-singularity"
    assert beside["loss-formula-singularity"].confidence < alone.confidence


@pytest.mark.parametrize(
    "fine",
    [
        Example("".join(f"{i} {i * 0.4:.1f}\n" for i in range(9)) + FALLS),
        Example("Training Accuracy: -nan\n" + "".join(f"Training Accuracy: 0.{i}61\n" for i in range(4, 9))),
        Example("".join(f"epoch {i} loss: {582 / 3**i:.3f} val_acc: 0.0\n" for i in range(5)), "compile(loss='mse')\n"),
        Example(FALLS, "model.add(Dense(9, activation='softmax'))\nloss='categorical_crossentropy'\n"),
        Example("optimizer: SGD with parameter groups 75 weight (no decay), 79 weight, 79 bias\n" + FALLS),
        Example("| Checkpoint | NaN Weights | Inf Weights |\n| step 100 | 0 | 0 |\nresumed from a.pt\n" + FALLS),
        Example("warning (Triggered internally at /opt/conda/conda-bld/work/torch/csrc/arg_parser.cpp:882.)\n" + FALLS),
    ],
)
def test_what_only_resembles_trouble_is_left_in_peace(fine: Example) -> None:
    assert not [each for each in rank(fine.facts(), all_rules()) if each.severity != "info"]


@pytest.mark.parametrize(("alone", "other"), [(True, "0.00  0.00  0.00"), (False, "0.98  0.99  0.98")])
def test_a_report_without_averages_tells_whether_one_class_has_all_answers(alone: bool, other: str) -> None:
    rows = f"Not-Pass  0.03  1.00  0.05  157\nPass  {other}  5995\n\nTest F1 Macro  0.0249\n"
    assert Example(REPORT + rows).facts().symptoms.one_class is alone


def test_a_checkpoint_picked_by_the_wrong_end_is_not_blamed_for_nan() -> None:
    code = "if acc < best_acc:\n    best_acc = acc\n    save(model)\n"
    assert "flipped-sign" not in {each.cause for each in rank(Example(NEVER, code, "train.py").facts(), all_rules())}
    assert "flipped-sign" in {each.cause for each in rank(Example(STILL, code, "train.py").facts(), all_rules())}


def test_numbers_that_are_not_finite_or_absurdly_long_break_no_rule() -> None:
    log = (
        4 * "loss: 1.47 acc: 1.0\n"
        + "loss: nan acc: nan\n"
        + "# "
        + "9" * 5000
        + " tokens\nRemoved "
        + "9" * 5000
        + " of 5\n"
    )
    log += 4 * "data_time: nan, time: nan, loss: 0.5\n"
    assert rank(Example(log).facts(), all_rules())
