"""A run in which a number is lost, stuck or blown up is sick, whatever its log looks like; a look-alike is not."""

from __future__ import annotations

import pytest

from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.diagnosis import Diagnosis
from stayfinite.diagnosis.reading import read_text
from stayfinite.readers.configs import faults_in_lines

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
AVERAGED = "trainer INFO: eta: 1 day, 0:39:01  iter: {}  loss: {} ({})  lr: 0.020000  max mem: 7234\n"
SCALER = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {}.0\n"
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
        ("tensor([[nan, nan, nan],\n        [nan, nan, nan]], device='cuda:0', grad_fn=<AddmmBackward0>)\n", "line 1"),
        ("hidden: [nan nan nan]\n", "hidden"),
        (">>> loss.item(), grad.min().item()\n(inf, nan)\n", "prints NaN"),
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
        (AVERAGED.format(620, 1.37, 1.45) + AVERAGED.format(640, 5.28, "nan"), "the loss is NaN"),
        ("Epoch [1][500/5000] lr: 2e-2, loss_cls: 2326544033.5, loss_bbox: 0.3, loss: 2326544033.8\n", "explodes"),
        ("".join(f"Evaluation  [{10 * i}/500]  eta: 0:01:00  time: 0.05  max mem: {17000 + 37 * i}\n"
                 for i in range(12)), "max_mem grows"),
        ("loss: 0.1416 - recon_loss: 0.1416 - kl_loss: 3.8e-07 - val_loss: 0.13\n", "kl_loss is almost 0"),
        ("".join(f"round {i}:[5000] train-error:0.9990 test-error:0.9990\n" for i in range(3)), "test_error"),
        ("".join(f"Epoch {i}: test error {error}\n" for i, error in enumerate([0.9, 0.3, 0.1, 0.9, 0.91])),
         "back where"),
        ("".join(f"loss for step: {i} = [{-0.9 - i / 100}]\n" for i in range(4)) + "Best validation mean DSC: 0.0\n",
         "dsc is 0"),
        ("".join(f"epoch {i} loss 1e-9 val_loss 1.3e-09\n" for i in range(4)), "the loss is 0"),
        ("".join(f"Epoch {i} cost = {cost}\n" for i, cost in enumerate(
            [15.2, 18.4, 1.64, 10.7, 8.4, 1.62, 8.5, 7.4, 1.66, 7.1, 6.8, 1.69, 6.3, 6.1, 1.7, 5.9, 5.6, 1.71])),
         "swings"),
        ("".join(f"epoch {i}: loss {-3.3 * i - 0.0:.3f}\n" for i in range(40)), "falls without bound"),
        ("Slope: 0.32   (expected: 1)\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n", "wrong result"),
        # The same line had a number there before, whatever its words.
        ("Schritt 4: Verlust = 1.3\nSchritt 5: Verlust = nan\n", "prints NaN"),
        ("[007] J = 0.67  |g| = 0.5\n[008] J = NaN  |g| = NaN\n", "prints NaN"),
        ("(3, {'train': 0.7, 'dev': (0.69, 0.5)})\n(4, {'train': nan, 'dev': (nan, 0.5)})\n", "prints NaN"),
        ("box  obj  cls  total  labels\nnan  0.0074  0  nan  22\n", "prints NaN"),
        ("[800/8000]  [L1: inf]  110.2+10.1s\n[1600/8000]  [L1: inf]  110.4+7.4s\n", "l1"),
        ("train_batch_loss[ 10 ]:  1.57\ntrain_batch_loss[ 20 ]:  1.48\ntrain_batch_loss[ 30 ]:  nan\n", "loss is NaN"),
        ("0  100  0.0183\nWARNING: loss (=nan) is not correct\n", "the loss is NaN"),
        ("SILog is NAN, stopping training\n", "the loss is NaN"),
        ("".join(f"- epoch: {i}\n  loss: {'.nan' if i > 3 else 2 - i / 9}\n" for i in range(6)), "the loss is NaN"),
        ("".join(f"it={10 * i} obj={1.2 * 7**i:.4g} lr=0.1\n" for i in range(12)), "the loss explodes"),
        ("Epoch [1][50/1749] lr: 2e-3, loss_rpn_cls: 188.2, s0.loss_cls: 22853.7, s0.acc: 87.7\n", "explodes"),
        ("~/modeling.py in forward(self, x)\n    397         head_mask,\n--> 399         past=past,\n", "crashed"),
    ],
)  # fmt: skip
def test_a_sick_run_is_called_sick_with_what_is_wrong(log: str, where: str) -> None:
    found = diagnosed(log)
    assert found.verdict == "sick"
    assert any(where in words for words in found.trouble), found.trouble


@pytest.mark.parametrize(
    "log",
    [
        "11 2.31\n12 2.29\n13 2.21\n14 2.20\n",
        "clip(x, -1, inf)\nsearch over (0, inf) for the rate\nmask = (0.0, -inf)\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "3 | model.bottleneck | ConvBlock | 49.5 M\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "mask = tensor([[0., -inf, -inf], [0., 0., -inf], [0., 0., 0.]])\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "{'best_valid_loss': inf, 'best_train_loss': inf}\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "val_loss improved from inf to 0.4213, saving model\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "ep_rewmean nan\npolicy_loss -0.0118\nvalue_loss 0.4478\n",
        "".join(f"epoch {each} loss {3 / each:.2f}\nbleu {each}.5\n" for each in range(1, 5)),
        "".join(f"Epoch {each}: acc=1.0\n" for each in range(1, 6)),
        "val_loss did not improve from 0.45\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "Moving average ignored a value of inf\nepoch 1 loss 6.1\nepoch 2 loss 6.0\n",
        "loss descends from 16 to 1.2\n",
        AVERAGED.format(620, 1.37, 1.45) + AVERAGED.format(640, 1.28, 1.44),
        "Epoch [1][500/5000] lr: 2e-2, loss_cls: 2.5, loss_bbox: 0.3, loss: 2.8\n",
        "".join(
            f"Evaluation  [{10 * i}/500]  eta: 0:01:00  time: 0.05  max mem: {17000 + 37 * (i // 3)}\n"
            for i in range(12)
        ),  # the longest rows so far
        "loss: 0.1416 - recon_loss: 0.1216 - kl_loss: 0.0210 - val_loss: 0.13\n",
        "loss: 0.1416 - recon_loss: 0.1416 - kl_loss: 0.0000 - val_loss: 0.13\n",  # not weighed in yet
        "step 1 reward 0.1 kl 2e-07\nstep 2 reward 0.3 kl 1e-06\n",
        "".join(f"round {i}:[5000] train-error:{0.9 - i / 10:.4f} test-error:{0.9 - i / 10:.4f}\n" for i in range(3)),
        "".join(f"Epoch {i}: test error {error}\n" for i, error in enumerate([0.9, 0.3, 0.1, 0.12, 0.11])),
        "".join(f"Epoch {i}: test error {error}\n" for i, error in [(1, 0.9), (2, 0.3), (3, 0.1), (1, 0.9), (2, 0.9)]),
        "".join(f"epoch {i} loss {10.0**-i:.0e} val_loss {10.0**-i:.1e}\n" for i in range(1, 12)),  # earned
        "".join(
            f"Epoch {i} cost = {cost}\n"
            for i, cost in enumerate(
                [15.2, 18.4, 1.64, 10.7, 8.4, 1.42, 8.5, 7.4, 1.26, 7.1, 4.8, 0.99, 4.3, 3.1, 0.8, 3.9, 1.6, 0.5]
            )
        ),
        "step 1 loss 30.2 lr 1e-4\nvocab_size: 250112\nstep 2 loss 29.1 lr 1e-4\n",
        "step 9 loss 1.2 lr 6.1e-21\nlearning rate: 6.1e-21\n",  # a cosine's end
        "UserWarning: expected a key but got none, it will be ignored\n",
        "missing keys: [], unexpected keys: []\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "The model cannot use its cache, so use_cache=False is set\n",
        "tokens must be split if they are long\n",
        "".join(f"Schritt {i}: Verlust = {2 - i / 9:.3f}\n" for i in range(6)),
        "".join(f"it {i} obj {2 - i / 9:.3f} eta {'inf' if i == 0 else 100 - i} s\n" for i in range(6)),
        "".join(f"image {i}: quality = {'inf' if i == 2 else 30 + i} dB\n" for i in range(6)),  # and then it goes on
        "".join(f"upd={i} crit={2 - i / 9:.3f} tokens={2 ** (20 + i)}\n" for i in range(12)),
        # Not evaluated in these epochs, or at all.
        "epoch,train,valid\n" + "".join(f"{i},{2 - i / 9:.3f},{'nan' if i % 3 else 2.1}\n" for i in range(9)),
        "".join(f"epoch: {i}, train: {21 - i}.3, valid: 0, train_acc: 0.{i}8, valid_acc: 0\n" for i in range(1, 9)),
        "".join(f"epoch {i} loss_ctc={9 - i}.8, cer_ctc=nan, loss_att={6 - i}.5, cer={30 - i}\n" for i in range(1, 5)),
        # A search for the loss scale, and the logger that met its infinite loss.
        "".join("Warning: NaN or Inf found in input tensor.\n" + SCALER.format(2**power) for power in (15, 14))
        + "".join(f"=====Step {100 * i}=====\n" for i in range(1, 4)),
        "LoRA, checkpointing\nUserWarning: None of the inputs have requires_grad=True. Gradients will be None\n",
        # Log-likelihoods: a flow's slows down, and one begins at 0 by chance.
        "".join(f"epoch {i}: loss {130 * 0.93**i - 129:.3f}\n" for i in range(40)),
        "".join(f"step {i} loss {loss}\n" for i, loss in enumerate([0.0, -0.8, -1.3, -1.1, -1.6, -1.5, -1.7, -1.8])),
        "Expected: 10\nActual: 10\n",
        "rank 0 received 512 rows (expected: 512)\nepoch 1 loss 2.3\nepoch 2 loss 1.9\n",
        "Note: all images must be 224x224 for this model\n",
        "Loaded 12 checkpoints, expected 12 but got 13 files on disk, using the newest\n",
        "The tokenizer has no attribute pad_token, set to eos\n",
        "Training is out of range of the scheduler, keeping the last rate\n",
        "".join(f"update {i} mean_r=1{i}.3 approx_kl={i}e-06 value_loss={4 - i / 9:.2f}\n" for i in range(1, 6)),
    ],
)
def test_a_look_alike_is_not_sick(log: str) -> None:
    found = diagnosed(log)
    assert found.verdict != "sick", (found.trouble, found.findings)


def test_an_error_message_without_the_name_of_its_error_is_sick_where_a_rule_knows_it() -> None:
    found = diagnosed("element 0 of tensors does not require grad and does not have a grad_fn\n")
    assert found.verdict == "sick"
    assert found.cause is not None
    assert found.cause.cause == "detached-loss"


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


LOOP = "for x, y in loader:\n    loss = crit(net(x), y)\n    {}\n"
QUOTED = {
    "cleared-before-step": (
        LOOP.format("loss.backward()\n    opt.zero_grad()\n    opt.step()"),
        LOOP.format("opt.zero_grad()\n    loss.backward()\n    opt.step()"),
    ),
    "step-missing": (
        LOOP.format("opt.zero_grad()\n    loss.backward()\n    opt.step"),
        LOOP.format("opt.zero_grad()\n    loss.backward()\n    opt.step()"),
    ),
    "double-step": (
        (
            "def training_step(self, m):\n    loss = super().training_step(m)\n"
            "    self.optimizer.step()\n    return loss\n"
        ),
        "def training_step(self, m):\n    loss = super().training_step(m)\n    self.log(loss)\n    return loss\n",
    ),
    "target-out-of-step": (
        "for t, s in zip(target.parameters(), net.parameters()):\n    t = t * (1 - tau) + s * tau\n",
        "for t, s in zip(target.parameters(), net.parameters()):\n    t.data.copy_(t * (1 - tau) + s * tau)\n",
    ),
    "unregistered-module": (
        "The model is small: self.blocks = [nn.Linear(8, 8) for _ in range(4)]. Why?\n",
        "The model is small: self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)]). Why?\n",
    ),
    "scaler-missing": (
        ">>> with torch.autocast('cuda', dtype=torch.float16):\n...     loss = net(x).mean()\n>>> loss.backward()\n",
        ">>> with torch.autocast('cuda', dtype=torch.bfloat16):\n...     loss = net(x).mean()\n>>> loss.backward()\n",
    ),
    "params-not-in-optimizer": (
        "code: opt = AdamW(net.parameters()); net.head = nn.Linear(768, 14)\n",
        "code: net.head = nn.Linear(768, 14); opt = AdamW(net.parameters())\n",
    ),
    "labels-shuffled": ("```python\nnp.random.shuffle(X)\nnp.random.shuffle(y)\n```\n", "X, y = shuffle(X, y)\n"),
    "metric-not-reset": (
        "total_loss = 0\nfor epoch in range(9):\n    for b in dl:\n        total_loss += f(b)\n    print(total_loss)\n",
        (
            "for epoch in range(9):\n    total_loss = 0\n    for b in dl:\n        total_loss += f(b)\n"
            "    print(total_loss)\n"
        ),
    ),
}


@pytest.mark.parametrize("cause", QUOTED)
def test_code_that_a_report_quotes_is_judged(cause: str) -> None:
    sick, fine = (diagnosed(f"Epoch 1: loss 2.31\n{code}Any idea?\n") for code in QUOTED[cause])
    assert (sick.verdict, sick.findings[0].cause) == ("sick", cause)
    assert cause not in {each.cause for each in fine.findings if each.severity != "info"}


def test_source_lines_of_a_traceback_are_no_program() -> None:
    frames = '  File "train.py", line 7, in main\n    {}\n'
    lines = (frames.format(line) for line in ("loss.backward()", "opt.zero_grad()", "opt.step()"))
    log = f"Traceback (most recent call last):\n{''.join(lines)}KeyError: 'x'\n"
    assert not faults_in_lines(log.split("\n"), "train.log")
