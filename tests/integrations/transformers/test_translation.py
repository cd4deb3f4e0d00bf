"""A whole translation script, from files on disk to a model card, with our one line and without."""

import json
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import ByT5Tokenizer, T5Config, T5ForConditionalGeneration, set_seed

from child_processes import finish
from stage import Played, play

SCRIPT = Path(__file__).parents[2] / "translation_script.py"
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("translation")
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


def script(files: Path, name: str, *, line: bool) -> Path:
    path, text = files / f"{name}.py", SCRIPT.read_text()
    if line:
        text = text.replace(
            "CALLBACKS = []", "from stayfinite.integrations.transformers import StayFinite\nCALLBACKS = [StayFinite()]"
        )
    path.write_text(text)
    return path


def words(files: Path, name: str, *more: object) -> list[str]:
    said = [
        "--model_name_or_path", files / "model", "--train_file", files / "train.jsonl",
        "--validation_file", files / "valid.jsonl", "--output_dir", files / name, "--do_train", "--do_eval",
        "--use_cpu", "--max_steps", "12", "--per_device_train_batch_size", "8", "--predict_with_generate",
        "--eval_strategy", "steps", "--eval_steps", "6", "--save_steps", "6", "--logging_steps", "3",
        "--learning_rate", "1e-3", "--label_smoothing_factor", "0.1", "--gradient_accumulation_steps", "2",
        "--report_to", "none", *more,
    ]  # fmt: skip
    return [str(word) for word in said]


@pytest.fixture(scope="module")
def played(files: Path) -> dict[str, Played]:
    """The script without our line and with it; what the second left is then copied, and resumed from its middle."""
    plain, guarded = script(files, "plain", line=False), script(files, "guarded", line=True)
    middle = files / "resumed" / "checkpoint-6"
    acts = {
        "plain": ("", "", plain, *words(files, "plain")),
        "guarded": ("", "", guarded, *words(files, "guarded")),
        "resumed": (
            files / "guarded", files / "resumed", guarded, *words(files, "resumed", "--resume_from_checkpoint", middle)
        ),
    }  # fmt: skip
    return play("script_job", acts, files / "stage", loads=["translation_script"], timeout=1000)


def weights(files: Path, name: str) -> bytes:
    return (files / name / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_translation_script_with_our_line_ends_with_the_same_model(files, played):
    for name in ("plain", "guarded", "resumed"):
        played[name].check()
    assert weights(files, "plain") == weights(files, "guarded")
    results = [json.loads((files / name / "eval_results.json").read_text()) for name in ("plain", "guarded")]
    assert results[0]["eval_bleu"] == results[1]["eval_bleu"]
    assert len((files / "guarded" / "stayfinite" / "steps.jsonl").read_text().splitlines()) == 12
    assert weights(files, "plain") == weights(files, "resumed")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_doctor_runs_the_script_without_our_line(files, played):
    played["plain"].check()
    doctor = "import sys; from stayfinite.cli.doctor import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", doctor, script(files, "seen", line=False), *words(files, "seen")]
    seen = finish(command, timeout=1000)
    assert "hooked into Seq2SeqTrainer" in seen.stderr, seen.stderr[-3000:]
    assert seen.returncode in (0, 1)  # twelve steps with a loss in sums tell little
    assert (
        load_file(files / "plain" / "model.safetensors").keys()
        == load_file(files / "seen" / "model.safetensors").keys()
    )
    assert weights(files, "plain") == weights(files, "seen")
