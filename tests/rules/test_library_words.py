"""What libraries themselves print is known as the cause that it names, even where no gathered case shows it yet."""

import json
from pathlib import Path

import pytest

from rules.example import Example
from stayfinite import diagnose
from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.reading import read_text
from stayfinite.rules.ranking import rank
from stayfinite.rules.registry import all_rules, rule_of

FALLING = "\n".join(f"step {i} loss {2.0 - 0.1 * i:.2f}" for i in range(10))
STUCK = "\n".join(f"step {i} loss 2.3026" for i in range(10))
LOST = "step 1 loss nan\nstep 2 loss nan\n"
INFINITE = "\n".join(f"step {i} loss {2.0 - 0.1 * i:.2f} val_ppl inf" for i in range(10))
ACCUMULATED = (
    "gradient_accumulation_steps: 4\nloss = model(x)\nloss.backward()\n"
    "if step % gradient_accumulation_steps == 0:\n    optimizer.step()\n"
)
CLIPPED = "\n".join(f"{{'loss': 0.1, 'completions/clipped_ratio': 1.0, 'epoch': 0.{i}}}" for i in range(1, 6))
SCORES = "\n".join(
    f"{{'loss': {4.0 / i:.3f}, 'epoch': {i}}}\n{{'eval_loss': {4.0 / i:.3f}, 'eval_exact_match': 0.0, 'epoch': {i}}}"
    for i in range(1, 7)
)
RATES = "\n".join(f"step {i} loss 2.{9 - i} lr {{0}}" if i > 3 else f"step {i} loss 2.9 lr 1e-4" for i in range(10))

WORDS = [
    (
        "environment",
        "ValueError: The checkpoint has model type `qwen3_moe` but Transformers does not recognize this architecture.",
        "",
        "does not recognize",
    ),
    (
        "environment",
        "_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed",
        "",
        "Weights only",
    ),
    (
        "bad-data-row",
        "TypeError: default_collate: batch must contain tensors, numpy arrays or lists; found <class 'NoneType'>",
        "",
        "NoneType",
    ),
    ("card-lacks-feature", "RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "", "Ampere"),
    ("card-lacks-feature", "ValueError: --tf32 requires Ampere or a newer GPU arch, cuda>=11", "", "Ampere"),
    ("autocast-missing", "RuntimeError: FlashAttention only support fp16 and bf16 data type", "", "fp16 and bf16"),
    (
        "unknown-setting",
        "TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'",
        "",
        "evaluation_strategy",
    ),
    (
        "unknown-setting",
        "    args = TrainingArguments(\nTypeError: __init__() got an unexpected keyword argument 'eval_strategy'",
        "",
        "eval_strategy",
    ),
    (
        "empty-batch",
        "    mean = total / len(self.train_loader)\nZeroDivisionError: division by zero",
        "",
        "train_loader",
    ),
    ("empty-batch", "    stats['mean'] = sums[0] / sums[1]\nZeroDivisionError: division by zero", "", "sums"),
    (
        "architecture-mismatch",
        (
            "    optimizer.load_state_dict(saved)\n"
            "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
        ),
        "",
        "parameter group",
    ),
    (
        "architecture-mismatch",
        (
            '  File "torch/optim/adam.py", line 363, in step\n    exp_avg.lerp_(grad, 1 - beta1)\n'
            "RuntimeError: The size of tensor a (512) must match the size of tensor b (768) at dimension 0"
        ),
        "",
        "its state is that of another model",
    ),
    (
        "unused-parameters",
        "    n = p.grad.norm()\nAttributeError: 'NoneType' object has no attribute 'norm'",
        "",
        "p.grad",
    ),
    (
        "position-out-of-range",
        (
            "    x = x + self.position_embeddings\n"
            "RuntimeError: The size of tensor a (600) must match the size of tensor b (512) at dimension 1"
        ),
        "",
        "600 does not fit 512",
    ),
    ("loss-broadcast", "    loss = crit(out, y)\nRuntimeError: expected scalar type Long but found Float", "", "dtype"),
    ("adapter-overwritten", "UserWarning: Already found a `peft_config` attribute in the model.", "", "peft_config"),
    ("architecture-mismatch", "ValueError: Target modules ['q'] not found in the base model.", "", "Target modules"),
    (
        "resume-state-missing",
        "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
        "",
        "parameter group",
    ),
    ("resume-state-missing", "KeyError: 'optimizer'", "", "optimizer"),
    (
        "loss-broadcast",
        "ValueError: Target size (torch.Size([8])) must be the same as input size (torch.Size([8, 1]))",
        "",
        "Target size",
    ),
    ("position-out-of-range", "ValueError: Cannot forward sequence of length 1100", "", "Cannot forward"),
    ("train-val-overlap", FALLING, "train_file: a.jsonl\nvalidation_file: a.jsonl\n", "the same set for both"),
    (
        "ddp-unused-parameters",
        "RuntimeError: Expected to mark a variable ready only once.",
        "",
        "ready only once",
    ),
    ("out-of-memory", f"{FALLING}\nprocess 0 terminated, exitcode: -9\n", "", "killed from outside"),
    ("upstream-bug", "RuntimeError: x INTERNAL ASSERT FAILED at engine.cpp:12, please report a bug", "", "INTERNAL"),
    (
        "references-transposed",
        "EOFError: Source and reference streams have different lengths!",
        "",
        "different lengths",
    ),
    ("detached-loss", "AttributeError: 'float' object has no attribute 'backward'", "", "'backward'"),
    ("naive-exp", "RuntimeError: Function 'ExpBackward0' returned nan values in its 0th output.", "", "ExpBackward0"),
    (
        "where-nan-branch",
        "RuntimeError: Function 'WhereBackward0' returned nan values in its 0th output.",
        "",
        "WhereBackward0",
    ),
    (
        "probability-loss-on-logits",
        "RuntimeError: torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.",
        "",
        "unsafe to autocast",
    ),
    ("wrong-reduction", "RuntimeError: a Tensor with 8 elements cannot be converted to Scalar", "", "8 elements"),
    ("norm-eps", LOST, "layer_norm_eps: 1e-12\nfp16: true\n", "is 0 in fp16"),
    ("lr-schedule-bug", "ValueError: Expected positive integer total_steps, but got 0", "", "total_steps"),
    ("lr-zero", STUCK, "learning_rate: 0.0\n", "set to 0 in the settings"),
    (
        "params-twice",
        "ValueError: some parameters appear in more than one parameter group",
        "",
        "more than one parameter group",
    ),
    ("autocast-missing", "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'", "", "without fp16"),
    (
        "quantized-weights",
        "RuntimeError: only Tensors of floating point dtype can require gradients",
        "",
        "floating point",
    ),
    ("benign-inf", INFINITE, "", "is infinite"),
    ("attention-unscaled", FALLING, "scores = q @ k.transpose(-2, -1)\nattn = torch.softmax(scores, -1)\n", "scaling"),
    ("accumulation-unscaled", FALLING, ACCUMULATED, "not divided"),
    ("double-step", FALLING, "loss.backward()\noptimizer.step()\noptimizer.step()\n", "twice in a row"),
    ("generation-too-short", CLIPPED, "", "truncated, at every step"),
    ("zero-answer-rate", SCORES, "", "exactly 0"),
    ("zero-answer-rate", SCORES, "", "while the loss falls"),
    ("lr-schedule-bug", RATES.format(-1e-5), "", "learning rate is -"),
    ("norm-eps", LOST, "self.norm = nn.LayerNorm(64, eps=0)\n", "almost no eps"),
]


@pytest.mark.parametrize(("slug", "log", "config", "words"), WORDS, ids=[f"{each[0]}-{each[3]}" for each in WORDS])
def test_the_words_of_a_library_speak_for_the_cause_that_they_name(slug, log, config, words):
    clues = rule_of(slug).judge(Example(log=log, config=config).facts())
    assert [clue for clue in clues if clue.weight > 0 and words in clue.text]


MESSAGES = [
    json.loads(line) for line in Path(__file__).with_name("library_messages.jsonl").read_text("utf-8").splitlines()
]
"""As libraries print them, with what each tells (`from`: where it is in their code)."""


@pytest.mark.parametrize("said", MESSAGES, ids=lambda said: f"{said['cause']}-{said['log'][-30:]}")
def test_a_message_of_a_library_tells_its_cause_and_a_routine_notice_none(tmp_path, said):
    (tmp_path / "train.log").write_text(said["log"] + "\n")
    (tmp_path / "settings.txt").write_text(said["config"] + "\n")
    found = diagnose(*[path for path in sorted(tmp_path.iterdir()) if path.read_text().strip()])
    if said["cause"] == "healthy":
        assert [each.cause for each in found.findings if each.severity != "info"] == []
    else:
        assert (found.verdict, found.findings[0].cause) == ("sick", said["cause"])


ONE_ROW = "ValueError: Expected more than 1 value per channel when training, got input size torch.Size([1, 32])\n"
OVERWRITTEN = "def forward(self, x):\n    y = self.early(x)\n    y = self.late(x)\n    return y\n"
WORKED = "".join(f"| epoch 000 | {at}000 updates | trainloss {9 - 0.3 * at:.2f}\n" for at in range(1, 13))
STATED = [
    ("both-half-formats", "ConfigError: switch_fp16 and switch_bf16 are exclusive, choose one"),
    ("architecture-mismatch", "RestoreError: 12 variables in the checkpoint do not match the layers of the network"),
    ("resume-state-missing", "RestoreError: slot momentum of the optimizer was not found in the checkpoint"),
    ("tokenizer-mismatch", "ValueError: the tokenizer has 32000 entries and does not match the embedding of the model"),
    ("loss-broadcast", "ShapeError: predictions and targets differ: sizes (8, 1) and (8,) do not match in mse_loss"),
    ("empty-batch", "RuntimeError: pattern data/*.rec matched 0 files, so there are zero batches"),
    ("config-contradiction", "ValueError: --warmup-steps must be smaller than --max-steps"),
    ("config-contradiction", "AssertionError: warmup_steps=2000 >= max_steps=1500"),
    ("config-contradiction", "ValueError: `save_total` cannot be combined with `keep_best`"),
    ("adam-eps-underflow", "AssertionError: nan in conv1\nhalf weights, Adam eps=1e-8; with eps=1e-4 no nan"),
    ("last-batch-of-one", ONE_ROW + "151 graphs in batches of 50"),
    (
        "config-contradiction",
        "ValueError: FlatParameter requires uniform dtype but got float16 and float32",
    ),
    ("environment", "RuntimeError: aten::roll() is missing value for argument 'dims'. Declaration: aten::roll(Tensor)"),
    (
        "bad-data-row",
        "Corrupt JPEG data: premature end of data segment\nError reported to Coordinator: Invalid JPEG data",
    ),
    ("label-out-of-range", "InvalidArgumentError: Saw a non-null label (index >= num_classes - 1), num_classes: 126"),
    (
        "config-contradiction",
        "gradient_checkpointing: true\nRuntimeError: Expected to mark a variable ready only once.",
    ),
    ("ddp-unused-parameters", "RuntimeError: Expected to mark a variable ready only once."),
    ("unused-parameters", OVERWRITTEN + "The training crashes in backward."),
    ("position-out-of-range", WORKED + "THCTensorIndex.cu:321: Assertion `srcIndex < srcSelectDimSize` failed."),
]


@pytest.mark.parametrize(("slug", "log"), STATED, ids=[each[1][:40] for each in STATED])
def test_an_error_tells_its_cause_in_whichever_words(slug, log):
    found = judge_reading(read_text(log + "\n"))
    assert (found.verdict, found.findings[0].cause) == ("sick", slug)


@pytest.mark.parametrize(
    "line",
    [
        "Token indices sequence length is longer than the specified maximum sequence length for this model (612 > 512)",
        "ConnectionError: timed out, retrying in 5 s",
        "choose one of fp16 and bf16 with --precision",
    ],
)
def test_a_remark_of_a_run_that_learns_states_no_cause(line):
    facts = Example(log=f"{line}\n{FALLING}\n").facts()
    assert facts.symptoms.healthy
    assert not [each for each in rank(facts, all_rules()) if each.severity != "info"]


def test_rows_that_divide_evenly_leave_no_last_batch_of_one():
    facts = Example(log=ONE_ROW + "150 graphs in batches of 50\n").facts()
    assert rank(facts, all_rules())[0].cause == "wrong-mode"
