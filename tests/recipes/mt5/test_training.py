from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import load_file

from recipe_job import quiet
from stayfinite.errors import NotReady, TrainingDiverged, UsageError
from stayfinite.recipes import mt5
from stayfinite.recipes.language.evaluation import Evaluation
from stayfinite.recipes.language.trained import Author, find_model
from stayfinite.recipes.settings import read_settings
from tiny_language import settings, write_texts


@pytest.fixture(scope="module")
def trained(model, texts, tmp_path_factory):
    """A run to its end, and what it said."""
    output = tmp_path_factory.mktemp("run") / "first"
    said: list[str] = []
    result = mt5.train(settings(texts, model, output, samples=1), said.append)
    return output, result, said


def test_a_run_leaves_models_checkpoints_result_and_description(trained):
    output, result, said = trained
    record = json.loads((output / "result.json").read_text(encoding="utf-8"))
    launch = json.loads((output / "run.json").read_text(encoding="utf-8"))
    assert launch["recipe"] == "mt5"
    assert launch["steps"] == result.steps == record["steps"] == 10
    assert record["last_loss"] < record["first_loss"]
    assert [entry["step"] for entry in record["evaluations"]] == [3, 6, 9, 10]
    assert math.isfinite(result.validation_loss)
    for name in ("best", "final"):
        assert (output / name / "model.safetensors").is_file()
        told = json.loads((output / name / "language.json").read_text(encoding="utf-8"))
        assert told["objective"] == "span_corruption"
    assert len(list((output / "checkpoints").glob("step-*"))) == 2
    assert any("[" in line for line in said if line.startswith("  "))


def test_a_run_that_is_over_is_left_alone(trained, model, texts):
    output, result, _ = trained
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.safetensors")}
    said: list[str] = []
    again = mt5.train(settings(texts, model, output), said.append)
    assert again.steps == result.steps
    assert again.last_loss == result.last_loss
    assert any("already trained" in line for line in said)
    assert before == {path: path.stat().st_mtime_ns for path in output.rglob("*.safetensors")}


def test_a_run_is_not_gone_on_with_on_other_masks(trained, model, texts):
    with pytest.raises(UsageError, match="noise_density 0.15 -> 0.5"):
        mt5.train(settings(texts, model, trained[0], noise_density=0.5), quiet)


def test_the_text_of_the_offending_example_is_in_the_incident(model, tmp_path, monkeypatch):
    planted = "Xerxes eats figs in the town."
    texts = write_texts(tmp_path / "texts", 60, (planted,))
    whole = mt5._model

    def poisoned(config, loaded, tokenizer, say):
        built = whole(config, loaded, tokenizer, say)
        (token,) = {number for piece, number in tokenizer.get_vocab().items() if "X" in piece}

        def spoil(module, given, output):
            hit = (given[0] == token).any(dim=1)
            return output.masked_fill(hit[:, None, None], math.nan)

        built.encoder.embed_tokens.register_forward_hook(spoil)
        return built

    monkeypatch.setattr(mt5, "_model", poisoned)
    monkeypatch.setattr(mt5, "evaluate", lambda *_, **__: Evaluation(loss=1.0, accuracy=0.0, tokens=1))
    mt5.train(settings(texts, model, tmp_path / "run", val_share=0.01, epochs=3), quiet)
    incident = json.loads((tmp_path / "run" / "incidents" / "0001" / "incident.json").read_text(encoding="utf-8"))
    assert planted in [row["text"] for row in incident["rows"]]
    weights = load_file(tmp_path / "run" / "final" / "model.safetensors")
    assert all(value.isfinite().all() for value in weights.values())


def test_a_run_can_be_built_again_from_its_directory_alone(trained, texts, model):
    built, forward = mt5.build(trained[0])
    weights = load_file(trained[0] / "final" / "model.safetensors")
    missing = built.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys
    batch = {name: torch.ones(2, 8, dtype=torch.long) for name in ("input_ids", "attention_mask", "labels")}
    assert forward(batch).isfinite()


def test_checkpoints_go_where_they_are_asked_to_and_are_cleaned_up_after_success_only(model, texts, tmp_path):
    place = tmp_path / "elsewhere"
    changed = {"checkpoint_dir": str(place), "cleanup_checkpoints": True, "max_steps": 4}
    seen: list[int] = []
    mt5.train(
        settings(texts, model, tmp_path / "run", **changed),
        lambda line: seen.append(len(list(place.glob("step-*")))) if line.startswith("step      4") else None,
    )
    assert max(seen) > 0
    assert not list(place.glob("step-*"))
    assert (tmp_path / "run" / "final" / "model.safetensors").is_file()

    def fail(line: str) -> None:
        if line.startswith("step      4"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mt5.train(
            settings(texts, model, tmp_path / "other", **changed | {"checkpoint_dir": str(tmp_path / "kept")}), fail
        )
    assert list((tmp_path / "kept").glob("step-*"))


def test_a_prefix_language_model_with_a_tokenizer_of_its_own_is_trained_and_asked(model, texts, tmp_path):
    tokenizer = tmp_path / "tokenizer"
    said: list[str] = []
    changed = {"objective": "prefix_lm", "tokenizer_dir": str(tokenizer), "vocab_size": 120, "pack": "all"}
    mt5.train(settings(texts, model, tmp_path / "run", epochs=1, **changed), said.append)
    assert (tokenizer / "spiece.model").is_file()
    assert any("fewer rows" in line for line in said)
    author = Author(find_model(str(tmp_path / "run")), device=torch.device("cpu"))
    assert not author.completes("The town of")
    (answer,) = author.write("The town of", {"max_new_tokens": 5})
    assert answer.gaps == []


@pytest.mark.slow
def test_adapters_on_weights_in_8_bits_are_trained_and_asked(model, texts, tmp_path):
    pytest.importorskip("bitsandbytes")
    changed = {"load_in_8bit": True, "epochs": 1, "max_steps": 3}
    result = mt5.train(settings(texts, model, tmp_path / "run", **changed), quiet)
    assert math.isfinite(result.last_loss)
    best = tmp_path / "run" / "best"
    assert (best / "adapter_config.json").is_file()
    assert not (best / "model.safetensors").exists()
    moved = [value for key, value in load_file(best / "adapter_model.safetensors").items() if "lora_B" in key]
    assert any(value.abs().max() > 0 for value in moved)
    author = Author(find_model(str(tmp_path / "run")), device=torch.device("cpu"))
    assert author.completes("The town of")
    author.write("The town of", {"max_new_tokens": 5})


def test_a_check_that_finds_an_error_stops_before_the_first_step(model, texts, tmp_path, monkeypatch):
    whole = mt5._model

    def broken(config, loaded, tokenizer, say):
        built = whole(config, loaded, tokenizer, say)
        with torch.no_grad():
            built.decoder.block[0].layer[0].SelfAttention.o.weight[0, 0] = math.nan
        return built

    monkeypatch.setattr(mt5, "_model", broken)
    with pytest.raises((NotReady, UsageError), match="NaN|finite"):
        mt5.train(settings(texts, model, tmp_path / "run", check="stop"), quiet)
    assert not (tmp_path / "run" / "final").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"learning_rate": 0.0}, "--learning-rate 0.0: expected a number above 0"),
        ({"learning_rate": math.nan}, "--learning-rate nan"),
        ({"epochs": 0}, "--epochs 0: expected a number of at least 1"),
        ({"data": ("nowhere",)}, "nowhere: no such file or directory"),
        ({"val_share": 1.5}, "--val-share 1.5"),
        ({"load_in_8bit": True, "lora_rank": 0}, "only adapters"),
        ({"load_in_8bit": True, "model_name": "tiny"}, "its random weights would stay frozen"),
        ({"lora_rank": 4, "tokenizer_dir": "new"}, "embeddings of a new vocabulary"),
        ({"model_name": "./no-such-model"}, "cannot load './no-such-model'"),
        ({"device": "quantum"}, "unknown device"),
    ],
)
def test_what_cannot_work_is_refused_and_nothing_is_written(model, texts, tmp_path, changed, said):
    with pytest.raises(UsageError, match=said):
        mt5.train(settings(texts, model, tmp_path / "run", **changed), quiet)
    assert not (tmp_path / "run").exists()


def test_nine_lines_are_refused(model, tmp_path):
    texts = write_texts(tmp_path / "texts", 9)
    with pytest.raises(UsageError, match="9 texts: at least 10 examples"):
        mt5.train(settings(texts, model, tmp_path / "run"), quiet)


def test_texts_that_are_all_in_the_validation_leave_nothing_to_train_on(model, texts, tmp_path):
    with pytest.raises(UsageError, match="0 texts: at least 10 examples"):
        mt5.train(settings(texts, model, tmp_path / "run", val=(str(texts),)), quiet)
    assert not (tmp_path / "run").exists()


def test_a_directory_that_cannot_be_made_is_refused(model, texts, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    for place in ("file", "file/inside"):
        with pytest.raises(UsageError, match="--output-dir"):
            mt5.train(settings(texts, model, tmp_path / place), quiet)


def test_a_training_without_one_finite_step_is_no_success(model, texts, tmp_path, monkeypatch):
    monkeypatch.setattr(mt5, "loss_of", lambda model: lambda batch: model(**batch).logits.mean() * math.nan)
    with pytest.raises(TrainingDiverged, match="all 3 steps had a NaN or inf loss"):
        mt5.train(settings(texts, model, tmp_path / "run", max_steps=3), quiet)
    assert not (tmp_path / "run" / "final").exists()
    assert not (tmp_path / "run" / "result.json").exists()


def test_flags_have_their_original_names_and_a_yaml_file_says_the_same(tmp_path):
    flags = (
        "--model-name m --output-dir o --tokenizer-dir t --checkpoint-dir c --epochs 2 --train-batch-size 3 "
        "--eval-batch-size 4 --checkpoint-steps 5 --eval-steps 6 --logging-steps 7 --keep-checkpoints 8 "
        "--learning-rate 9e-5 --warmup-steps 10 --weight-decay 0.1 --gradient-accumulation-steps 11 "
        "--max-grad-norm 1.5 --block-size 12 --cache-dir d --cleanup-checkpoints --precision bf16 --load-in-8bit "
        "--wandb --tensorboard"
    )
    asked = read_settings(mt5.Mt5, flags.split(), "mt5")
    assert (asked.model_name, asked.keep_checkpoints, asked.precision) == ("m", 8, "bf16")
    assert asked.load_in_8bit
    names = (field for field in mt5.Mt5.__dataclass_fields__ if getattr(asked, field) != getattr(mt5.Mt5(), field))
    (tmp_path / "train.yaml").write_text(json.dumps({name: getattr(asked, name) for name in names}), encoding="utf-8")
    assert read_settings(mt5.Mt5, ["--config", str(tmp_path / "train.yaml")], "mt5") == asked
    assert read_settings(mt5.Mt5, ["--model", "tiny", "--accumulation", "2"], "mt5").gradient_accumulation_steps == 2


@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_the_built_in_text_is_learnt(tmp_path):
    result = mt5.train(mt5.settled(mt5.Mt5(output_dir=str(tmp_path / "run"))), print)
    assert result.last_loss < 0.5 * result.first_loss
    assert result.validation_loss < 1.5
    assert result.accuracy > 0.7
    steps = (tmp_path / "run" / "steps.jsonl").read_text(encoding="utf-8")
    assert "NaN" not in steps
    assert (tmp_path / "run" / "best" / "model.safetensors").is_file()
