"""Code that cannot work, and what a run prints of its weights, judged with its log; each with a look-alike."""

from pathlib import Path

import pytest

from rules.example import Example
from stayfinite.diagnosis.diagnose import diagnose
from stayfinite.rules.ranking import rank
from stayfinite.rules.registry import all_rules

FALLS = "".join(f"step {20 * i} loss {2.6 * 0.9**i:.4f} lr 2e-4\n" for i in range(16))
STILL = "".join(f"step {i} loss 2.3026 grad_norm 0.0\n" for i in range(12))
LOST = "step 0 loss 812.2\nstep 1 loss 1e9\nstep 2 loss nan\nstep 3 loss nan\n"
NEVER = "epoch 1 loss nan acc 0.0\nepoch 2 loss nan acc 0.0\n"
COPIED = "".join(f"step {100 * i} loss {4.1 * 0.3**i:.5f}\n" for i in range(9))
SCORED = "".join(f"epoch {i} loss {0.69 * 0.8**i:.4f} acc 0.5231\n" for i in range(9))
WRAPPED = """
model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
model = get_peft_model(model, LoraConfig(r=8))
trainer = SFTTrainer(model=model, args=args)
trainer.train()
"""
LANGUAGE = "for ids in loader:\n    logits = model(ids)\n    loss = F.cross_entropy(logits.view(-1, V), {}.view(-1))\n"
BINARY = "out = net(x)\nloss = F.binary_cross_entropy_with_logits(out.squeeze(1), y)\nright = {} == y\n"
COUNT = "loading\n{}\nstep 1 loss 2.0\nstep 2 loss 2.0\nstep 3 loss 2.0\n"
PAIRS = {
    "a-softmax-over-one-unit": (
        "softmax-axis",
        Example(STILL, "the model ends with Dense(1, activation='softmax'), binary crossentropy\n"),
        Example(FALLS, "the model ends with Dense(1, activation='sigmoid'), binary crossentropy\n"),
    ),
    "classes-beyond-one-unit": (
        "label-out-of-range",
        Example(NEVER, "model.add(Dense(1))\nmodel.compile('adam', loss='sparse_categorical_crossentropy')\n"),
        Example(FALLS, "model.add(Dense(9))\nmodel.compile('adam', loss='sparse_categorical_crossentropy')\n"),
    ),
    "an-argmax-over-one-column": (
        "metric-stuck",
        Example(SCORED, BINARY.format("out.argmax(dim=1)")),
        Example(FALLS, BINARY.format("(out.squeeze(1) > 0)")),
    ),
    "a-model-that-is-told-the-answer": (
        "target-out-of-step",
        Example(COPIED, LANGUAGE.format("ids")),
        Example(COPIED, LANGUAGE.format("following")),
    ),
    "adapters-frozen-by-the-trainer": ("params-frozen", Example(STILL, WRAPPED), Example(FALLS, WRAPPED)),
    "weights-too-large-for-the-width": (
        "bad-init",
        Example(LOST, "net = FullyConnectedNet([100] * 5, weight_scale=0.5)\n"),
        Example(FALLS, "net = FullyConnectedNet([100] * 5, weight_scale=0.5)\n"),
    ),
    "weights-too-large-in-a-config": (
        "bad-init",
        Example(LOST, "hidden_size: 512\nnum_layers: 12\ninit_std: 1.0\n", "config.yaml"),
        Example(FALLS, "hidden_size: 512\nnum_layers: 12\ninit_std: 0.02\n", "config.yaml"),
    ),
    "scales-that-are-printed-as-zero": (
        "bad-init",
        Example(STILL + "gn1.weight: mean=0.000000 std=0.000000\n"),
        Example(FALLS + "gn1.weight: mean=0.000000 std=0.000000\n"),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_code_explains_the_run(name: str) -> None:
    cause, sick, _ = PAIRS[name]
    found = rank(sick.facts(), all_rules())
    assert cause in [each.cause for each in found[:2]], [f"{f.cause} {f.confidence} {f.evidence}" for f in found]


@pytest.mark.parametrize("name", PAIRS)
def test_a_run_that_works_is_left_in_peace(name: str) -> None:
    found = [each for each in rank(PAIRS[name][2].facts(), all_rules()) if each.severity != "info"]
    assert not found, [f"{f.cause} {f.confidence} {f.evidence}" for f in found]


@pytest.mark.parametrize(
    "line",
    [
        "可訓練參數: 0",
        "可训练参数: 0 (0.00%)",
        "可训练参数量: 0.00M",
        "Trainable params: 0 || all params: 6,738,415,616 || trainable%: 0.0000",
        "\u043e\u0431\u0443\u0447\u0430\u0435\u043c\u044b\u0445 параметров: 0",
        "学習可能なパラメータ数: 0",
        "학습 가능한 파라미터: 0",
        "Paramètres entraînables : 0",
        "trainierbare Parameter: 0",
        "parámetros entrenables: 0",
    ],
)
def test_a_count_of_zero_is_read_in_any_language(line: str) -> None:
    assert rank(Example(COUNT.format(line)).facts(), all_rules())[0].cause == "params-frozen"


@pytest.mark.parametrize(
    "line",
    [
        "可训练参数: 4,194,304 (0.06%)",
        "可训练参数: 0.06%",
        "可训练参数: 0.5M",
        "不可训练参数: 0",
        "Non-trainable params: 0",
        "trainable params: 0.5M",
        "nicht trainierbare Parameter: 0",
        "Paramètres non entraînables : 0",
    ],
)
def test_another_count_is_none_of_zero(line: str) -> None:
    assert "params-frozen" not in [each.cause for each in rank(Example(COUNT.format(line)).facts(), all_rules())]


def test_a_fact_about_the_code_decides(tmp_path: Path) -> None:
    """Similar reports, which know no such case, do not outweigh it."""
    (tmp_path / "log.txt").write_text(COPIED)
    (tmp_path / "config.txt").write_text(LANGUAGE.format("ids"))
    said = diagnose(tmp_path / "log.txt", tmp_path / "config.txt")
    assert said.cause is not None
    assert said.cause.cause == "target-out-of-step"
