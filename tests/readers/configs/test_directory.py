"""Which files beside a log are worth reading."""

import pytest

from stayfinite.readers.configs import looks_like_config


@pytest.mark.parametrize(
    "name",
    [
        "config.json", "adapter_config.json", "generation_config.json", "ds_config.json", "tokenizer_config.json",
        "training_args.bin", "train.yaml", "config.yml", "llama3.toml", "setup.ini", "train.py", "a.ipynb", "run.sh",
        "job.slurm", "config.txt", "args.txt", "training-args.txt", "hparams.yaml", "notes.md", "command.txt",
    ],
)  # fmt: skip
def test_configs_are_worth_reading(tmp_path, name):
    path = tmp_path / name
    path.write_text("lr: 1")
    assert looks_like_config(path, path.read_bytes())


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer.json", "vocab.json", "merges.txt", "trainer_state.json", "model.safetensors.index.json", "train.log",
        "log.txt", "all_results.json", "eval_results.json", "data.jsonl", "metrics.csv", "model.safetensors",
        "pytorch_model.bin", "optimizer.pt", "events.out.tfevents.1", "picture.png", "README.md", "requirements.txt",
        "train.txt", "special_tokens_map.json",
    ],
)  # fmt: skip
def test_logs_data_and_vocabularies_are_not(tmp_path, name):
    path = tmp_path / name
    path.write_text("lr: 1")
    assert not looks_like_config(path, path.read_bytes())


def test_content_speaks_where_the_name_deceives(tmp_path):
    for name, text in {
        "data.json": '[{"text": "a"}, {"text": "b"}]',
        "log.json": '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.4}\n',
        "binary.yaml": "lr\0\0\0",
        "big.json": '{"a": "' + "x" * 5_000_000 + '"}',
    }.items():
        path = tmp_path / name
        path.write_text(text)
        assert not looks_like_config(path, path.read_bytes()[:4096]), name


def test_a_file_that_is_gone_is_judged_by_its_head(tmp_path):
    assert looks_like_config(tmp_path / "gone.yaml", b"lr: 1")
