"""``stayfinite replay``: a captured step is run again elsewhere, and the cause is the one that was found at once."""

from __future__ import annotations

import importlib
import json
import shutil
import sys

import pytest
import torch

from guarded_training import NAN, GuardedTraining
from stayfinite import Guard, Policy
from stayfinite.cli import main
from strict_schemas import strict
from tiny_training import Lines

BUILD = """
from guarded_training import NoisyNet

def build():
    model = NoisyNet()
    return model, lambda batch: (model(batch["x"]) - batch["y"]).pow(2).mean()

def as_dict():
    model, forward = build()
    return {"model": model, "forward": forward}

class Both:
    pass

def as_object():
    both = Both()
    both.model, both.forward = build()
    return both

def wider():
    from torch import nn
    model = NoisyNet()
    model.down = nn.Linear(16, 5)
    model.extra = nn.Linear(2, 2)
    return model, lambda batch: model(batch["x"]).mean()

def half():
    model = NoisyNet().half()
    return model, lambda batch: model(batch["x"]).mean()

def nothing():
    return None

def failing():
    raise RuntimeError("no data here")

def other_forward():
    model = NoisyNet()
    return model, lambda batch: model(batch["pixels"]).mean()

text = "no function"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replay")
    training = GuardedTraining(folder, policy=Policy(autopsy_seconds=0, prove_steps=2))
    training.until_nan(6)
    training.guard.close()
    return folder


@pytest.fixture
def incident(run, tmp_path, monkeypatch):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "replayed_train.py").write_text(BUILD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "replayed_train", raising=False)
    return tmp_path / "run/incidents/0001"


def replay(incident, *words, build="replayed_train:build"):
    return main(["replay", str(incident), *(("--build", build) if build else ()), *words])


@pytest.mark.parametrize("build", ["build", "as_dict", "as_object"])
def test_the_cause_is_proved_again_and_written(incident, capsys, build):
    assert replay(incident, build=f"replayed_train:{build}") == 1
    out = capsys.readouterr().out
    assert out.startswith("bad-data-row")
    assert "rows    3" in out
    assert "inputs_sanitized" in out
    found = json.loads((incident / "autopsy.json").read_text())
    assert found["version"] == 1
    assert found["cause"] == "bad-data-row"
    assert found["fix"]["verified"]


def test_json_is_json_and_nothing_else(incident, capsys):
    assert replay(incident, "--json", "--no-write") == 1
    found = json.loads(capsys.readouterr().out)
    strict("replay").validate(found)
    assert found["rows"] == [3]
    assert found["worlds"][0]["name"] == "same"
    assert not (incident / "autopsy.json").exists()


DISTILLED = """
import math
import torch
from torch import nn

def build(teacher=None):
    torch.manual_seed(0)
    model, teacher = nn.Linear(4, 2), teacher or nn.Linear(4, 2)
    return model, lambda batch: (model(batch) - teacher(batch).detach()).pow(2).mean()

def broken():
    teacher = nn.Linear(4, 2)
    nn.init.constant_(teacher.bias, math.nan)
    return build(teacher)
"""


@pytest.mark.parametrize("built", ["build", "broken"])
def test_a_replay_never_overwrites_the_autopsy_of_the_run(tmp_path, monkeypatch, capsys, built):
    (tmp_path / "distilled.py").write_text(DISTILLED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "distilled", raising=False)
    model, forward = importlib.import_module("distilled").broken()  # the teacher is no part of what is trained
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Guard(model, optimizer, forward=forward, run_dir=tmp_path / "run", console=Lines()) as guard:
        guard.step(guard.forward(torch.randn(3, 4)))
    incident = tmp_path / "run/incidents/0001"
    own = (incident / "autopsy.json").read_bytes()
    assert json.loads(own)["cause"] == "nan-weights"
    assert replay(incident, "--json", build=f"distilled:{built}") == 1
    found = json.loads(capsys.readouterr().out)
    if built == "broken":
        assert found["cause"] == "nan-weights"
    else:
        assert found["confidence"] < 0.5
        assert "state that build() recreates" in found["verdict"]
    assert found["notes"][-1].endswith("replay.json; the run's own autopsy (nan-weights) is kept")
    assert (incident / "autopsy.json").read_bytes() == own
    assert json.loads((incident / "replay.json").read_text())["cause"] == found["cause"]


def test_a_single_world_is_run_alone_and_not_written(incident, capsys):
    assert replay(incident, "--world", "good_weights", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [world["name"] for world in found["worlds"]] == ["good_weights"]
    assert not (incident / "autopsy.json").exists()


def test_the_loss_of_the_re_run_is_the_loss_of_the_step(tmp_path, monkeypatch, capsys):
    """Dropout and all: the generators, the weights and the running mean are those of the refused step."""
    training = GuardedTraining(tmp_path / "run", policy=Policy.refuse_spikes(autopsy_seconds=0, prove_steps=2))
    training.steps(20)
    training.steps(1, 1e5)
    training.guard.close()
    (refused,) = [each for each in training.guard.decisions if each.refused]
    (tmp_path / "replayed_train.py").write_text(BUILD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "replayed_train", raising=False)
    torch.manual_seed(99)
    replay(tmp_path / "run/incidents/0001", "--json", "--no-write")
    worlds = {world["name"]: world for world in json.loads(capsys.readouterr().out)["worlds"]}
    assert worlds["same"]["loss"] == refused.signals.loss
    assert worlds["same"]["grad_norm"] == pytest.approx(refused.signals.grad_norm, rel=1e-6)
    assert "previous_update_undone" in worlds


def test_a_checkpoint_that_is_named_gives_the_weights(tmp_path, monkeypatch, capsys):
    policy = Policy(autopsy_seconds=0, incident_megabytes=0, checkpoint_steps=2)
    training = GuardedTraining(tmp_path / "run", policy=policy)
    training.steps(5)
    training.guard._saving.tell(wait=True)
    training.steps(1, NAN)
    training.guard.close()
    (tmp_path / "replayed_train.py").write_text(BUILD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "replayed_train", raising=False)
    assert replay(tmp_path / "run/incidents/0001", "--json") == 1
    assert "weights from checkpoints/step-00000004" in " ".join(json.loads(capsys.readouterr().out)["notes"])
    shutil.rmtree(tmp_path / "run/checkpoints")
    assert replay(tmp_path / "run/incidents/0001", "--json") == 1
    assert "weights from build()" in " ".join(json.loads(capsys.readouterr().out)["notes"])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ("", "the run does not record how to build its model"),
        ("replayed_train", "expected module:function"),
        ("no_such_module:build", "cannot import no_such_module: ModuleNotFoundError"),
        ("replayed_train:no_such", "has no function 'no_such'"),
        ("replayed_train:text", "has no function 'text'"),
        ("replayed_train:nothing", "must return a model and forward(batch) -> loss, not NoneType"),
        ("replayed_train:failing", "failed with RuntimeError at replayed_train.py:35: no data here"),
        ("replayed_train:other_forward", "the forward pass failed in the re-run: KeyError: 'pixels'"),
        ("replayed_train:wider", "2 tensors of the built model are not in it: extra.bias, extra.weight"),
        ("replayed_train:wider", "down.weight (saved float32[4, 16], built float32[5, 16])"),
        ("replayed_train:half", "up.weight (saved float32[16, 8], built float16[16, 8])"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_to_do(incident, capsys, build, words):
    assert replay(incident, build=build) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert "fix:" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--device", "abacus"], "unknown device"), (["--world", "upside_down"], "no world")],
)
def test_a_device_or_a_world_that_is_none_ends_with_2(incident, capsys, words, said):
    assert replay(incident, *words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_ends_with_2(incident, capsys):
    assert replay(incident, "--device", "cuda") == 2
    assert "no CUDA device found" in capsys.readouterr().err


def test_a_directory_that_is_no_incident_ends_with_2(tmp_path, capsys):
    assert main(["replay", str(tmp_path), "--build", "a:b"]) == 2
    assert "is not an incident" in capsys.readouterr().err


def test_a_recipe_that_the_run_names_is_looked_for_in_the_recipes_only(incident, capsys):
    record = json.loads((incident.parents[1] / "run.json").read_text())
    for recipe, said in (("no_such_recipe", "stayfinite.recipes"), ("os; evil", "does not record how")):
        (incident.parents[1] / "run.json").write_text(json.dumps(record | {"recipe": recipe}))
        assert replay(incident, build="") == 2
        assert said in capsys.readouterr().err


def test_an_incident_that_cannot_be_written_to_is_explained_all_the_same(incident, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stayfinite.autopsy.incidents.incident_files.write_bytes", full)
    assert replay(incident) == 1
    assert "cannot write autopsy.json: No space left" in capsys.readouterr().out


@pytest.mark.slow
def test_a_t5_that_overflows_in_fp16_is_explained_in_the_loop_and_by_replay(tmp_path, monkeypatch, capsys):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "replayed_t5.py").write_text(T5)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "replayed_t5", raising=False)
    import replayed_t5

    replayed_t5.train(tmp_path / "run", transformers.BatchEncoding)
    here = tmp_path / "run/incidents/0001"
    at_once = json.loads((here / "autopsy.json").read_text())
    assert replay(here, "--json", "--no-write", build="replayed_t5:build") == 1
    later = json.loads(capsys.readouterr().out)
    assert at_once["cause"] == later["cause"] == "fp16-overflow"
    assert at_once["origin"]["module"] == later["origin"]["module"]
    assert "DenseReluDense.wo" in later["origin"]["module"]


T5 = """
import torch
import transformers
from stayfinite import Guard, Policy
from tiny_training import Lines


def build():
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=64, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, dropout_rate=0.1,
        decoder_start_token_id=0, feed_forward_proj="relu",
    )
    model = transformers.T5ForConditionalGeneration(config)
    return model, lambda batch: model(**batch.to("cpu")).loss


def train(folder, encoding):
    model, forward = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    policy = Policy(precision="fp16", prove_steps=2)
    with Guard(model, optimizer, policy=policy, run_dir=folder, forward=forward, console=Lines()) as guard:
        for step in range(5):
            ids = torch.randint(1, 64, (4, 12), generator=torch.Generator().manual_seed(step))
            if step == 4:
                with torch.no_grad():
                    model.encoder.block[1].layer[1].DenseReluDense.wi.weight.mul_(3e3)
                    model.encoder.block[1].layer[1].DenseReluDense.wo.weight.mul_(3e3)
            guard.step(guard.forward(encoding({"input_ids": ids, "labels": ids})))
"""
