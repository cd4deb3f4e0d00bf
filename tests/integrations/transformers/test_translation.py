"""A whole translation script, from files on disk to a model card, with our one line and without."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import ByT5Tokenizer, T5Config, T5ForConditionalGeneration, set_seed

SCRIPT = Path(__file__).parents[2] / "translation_script.py"
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.fixture
def files(tmp_path):
    for name, count in (("train", 96), ("valid", 8)):
        rows = [
            {"en": f"{WORDS[i % 10]} {WORDS[i // 10]}", "xx": f"{WORDS[i // 10]} {WORDS[i % 10]}"} for i in range(count)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps({"translation": row}) for row in rows))
    set_seed(0)
    shape = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "decoder_start_token_id": 0}
    T5ForConditionalGeneration(T5Config(vocab_size=384, **shape)).save_pretrained(tmp_path / "model")
    ByT5Tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path


def train(files: Path, name: str, *more: str, line: bool, doctor: bool = False) -> subprocess.CompletedProcess:
    script = files / f"{name}.py"
    text = SCRIPT.read_text()
    if line:
        text = text.replace(
            "CALLBACKS = []", "from stayfinite.integrations.transformers import StayFinite\nCALLBACKS = [StayFinite()]"
        )
    script.write_text(text)
    start = ["-c", "import sys; from stayfinite.cli.doctor import run; sys.exit(run(sys.argv[1:]))"] if doctor else []
    words = [
        "--model_name_or_path", files / "model", "--train_file", files / "train.jsonl",
        "--validation_file", files / "valid.jsonl", "--output_dir", files / name, "--do_train", "--do_eval",
        "--use_cpu", "--max_steps", "12", "--per_device_train_batch_size", "8", "--predict_with_generate",
        "--eval_strategy", "steps", "--eval_steps", "6", "--save_steps", "6", "--logging_steps", "3",
        "--learning_rate", "1e-3", "--label_smoothing_factor", "0.1", "--gradient_accumulation_steps", "2",
        "--report_to", "none", *more,
    ]  # fmt: skip
    return subprocess.run(
        [sys.executable, *start, str(script), *map(str, words)], capture_output=True, text=True, check=False
    )


def weights(files: Path, name: str) -> bytes:
    return (files / name / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_translation_script_with_our_line_ends_with_the_same_model(files):
    plain, guarded = train(files, "plain", line=False), train(files, "guarded", line=True)
    assert (plain.returncode, guarded.returncode) == (0, 0), plain.stderr[-2000:] + guarded.stderr[-2000:]
    assert weights(files, "plain") == weights(files, "guarded")
    results = [json.loads((files / name / "eval_results.json").read_text()) for name in ("plain", "guarded")]
    assert results[0]["eval_bleu"] == results[1]["eval_bleu"]
    assert len((files / "guarded" / "stayfinite" / "steps.jsonl").read_text().splitlines()) == 12
    resumed = train(files, "guarded", "--resume_from_checkpoint", str(files / "guarded" / "checkpoint-6"), line=True)
    assert resumed.returncode == 0, resumed.stderr[-2000:]
    assert weights(files, "plain") == weights(files, "guarded")


@pytest.mark.slow
def test_the_doctor_runs_the_script_without_our_line(files):
    plain, seen = train(files, "plain", line=False), train(files, "seen", line=False, doctor=True)
    assert "attached to Seq2SeqTrainer" in seen.stderr, seen.stderr[-3000:]
    assert seen.returncode in (0, 1)  # twelve steps with a loss in sums tell little
    assert (
        load_file(files / "plain" / "model.safetensors").keys()
        == load_file(files / "seen" / "model.safetensors").keys()
    )
    assert weights(files, "plain") == weights(files, "seen")
    assert plain.returncode == 0
