"""Bad input with two ranks: every rank ends, with the cause in words."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from child_processes import finish, torchrun
from recipe_job import NEVER, play_recipe
from stage import Played
from stayfinite.recipes.language.built_in import travel_notes
from tiny_language import settings, tiny_model, write_shards, write_texts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STREAMED: dict[str, Any] = {"stream": "on", "shuffle_rows": 32, "train_batch_size": 4, "gradient_accumulation_steps": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    tiny_model(folder / "model")
    shutil.copytree(folder / "model", folder / "model-of-rank-0")
    write_texts(folder / "texts")
    write_shards(folder / "shards")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for number, text in enumerate(travel_notes()[:60]):
            row = json.dumps({"text": text}).encode()
            about = tarfile.TarInfo(f"{number}.json")
            about.size = len(row)
            tar.addfile(about, io.BytesIO(row))
    (folder / "cut.tar").write_bytes(packed.getvalue()[:30_000])
    return folder


@pytest.fixture(scope="module")
def played(folder: Path) -> dict[str, Played]:
    def of(output: str, **more: Any) -> dict[str, Any]:
        return asdict(settings(folder / "texts", folder / "model", folder / output, **more))

    cut = {"data": (str(folder / "cut.tar"),)}
    runs = {
        "cut": (of("cut", **cut), NEVER),
        "cut-stream": (of("cut-stream", **cut, **STREAMED), NEVER),
        "no-model": (of("no-model", model_name=str(folder / "model-of-rank-RANK")), NEVER),
    }
    return play_recipe("mt5", runs, folder, ranks=2)


@pytest.mark.parametrize("name", ["cut", "cut-stream"])
def test_a_tar_that_is_cut_off_ends_every_rank_with_its_name(played, name):
    assert all(played[name].ends), played[name].said
    assert "cut.tar" in played[name].said
    assert "the archive is truncated" in played[name].said
    assert "Traceback" not in played[name].said


def test_a_model_that_one_rank_lacks_ends_the_others_too(played):
    assert played["no-model"].ends == [2, 2]
    assert re.search("cannot load .*model-of-rank-1", played["no-model"].said)
    assert "another rank has ended; this one cannot continue alone" in played["no-model"].said
    assert "Traceback" not in played["no-model"].said


def test_under_torchrun_the_others_hear_the_words_of_a_rank_that_fails():
    done = finish([*torchrun(3), Path(__file__).parents[2] / "failing_job.py"])
    assert "rank 1 ends with: pairs.csv is gone" in done.stdout
    for rank in (0, 2):
        assert f"rank {rank} ends with: rank 1 failed: pairs.csv is gone\n  fix: put it back" in done.stdout


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--epochs", "0"], "--epochs 0: expected a number of at least 1"),
        (["--bogus"], "Unrecognized options: --bogus"),
        (["--train", "nowhere.csv"], "nowhere.csv: no such file"),
    ],
)
def test_an_error_of_all_ranks_is_printed_once(flags, words, tmp_path):
    program = ["-m", "stayfinite", "train", "translate", "--device", "cpu", "--output-dir", str(tmp_path / "run")]
    done = finish([*torchrun(2), *program, *flags])
    assert (done.stdout + done.stderr).count(words) == 1
    assert done.returncode


def test_shards_that_vanish_in_the_middle_end_every_rank(folder):
    config = settings(folder / "shards", folder / "model", folder / "vanishing", **STREAMED)
    (stage := folder / "vanishing-stage").mkdir()
    shards = sorted((folder / "shards").iterdir())
    (stage / "run.yaml.vanishing").write_text("\n".join(map(str, shards)))
    (done,) = play_recipe(
        "mt5", {"run": (asdict(config), NEVER)}, folder, ranks=2, stage=stage, job="vanishing_job"
    ).values()
    assert done.ends == [88, 88]
    assert "was removed during training" in done.said
    assert "Traceback" not in done.said
