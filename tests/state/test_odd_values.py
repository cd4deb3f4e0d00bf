"""A checkpoint with an odd value in it is refused in words before anything is changed."""

import hashlib
import json

import pytest
import torch
from torch import nn

from stayfinite import Guard, Policy
from stayfinite.errors import StateError


def training():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def guarded(folder, model, optimizer):
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    return Guard(model, optimizer, scheduler, run_dir=folder, policy=Policy(checkpoint_steps=2), console=None)


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A run with a checkpoint, and how to write another state into it."""
    folder = tmp_path_factory.mktemp("run")
    model, optimizer = training()
    with guarded(folder, model, optimizer) as guard:
        for _ in range(2):
            guard.step(model(torch.ones(3, 4)).square().mean())
    at = folder / "checkpoints" / "step-00000002"
    kept, manifest = json.loads((at / "state.json").read_text()), json.loads((at / "manifest.json").read_text())

    def write(path, value):
        changed = inner = json.loads(json.dumps(kept))
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        text = json.dumps(changed)
        (at / "state.json").write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        manifest["files"]["state.json"] = {"bytes": len(text.encode()), "sha256": digest}
        (at / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return write


GROUP = ("tree", "optimizer", "groups", 0)
MOMENTS = ("tree", "optimizer", "state", "weight")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ((*GROUP, "lr"), None, "lr of parameter group 0 is None"),
        ((*GROUP, "lr"), float("inf"), "lr of parameter group 0 is inf"),
        ((*GROUP, "weight_decay"), [1, 2], "weight_decay of parameter group 0 is [1, 2]"),
        (GROUP, 7, "cannot use"),
        ((*GROUP, "params"), 7, "cannot use"),
        ((*MOMENTS, "exp_avg"), {"a": 1}, "exp_avg of weight is {'a': 1}"),
        (MOMENTS, {"a": 1}, "state of weight is ['a']"),
        (MOMENTS, 7, "cannot use"),
        (("tree", "buffers"), [1, 2], "cannot use"),
        (("tree", "scheduler"), 7, "the scheduler is 7"),
        (("tree", "scheduler", "T_max"), None, "T_max of the scheduler is None"),
        (("tree", "scheduler", "eta_min"), [1], "eta_min of the scheduler is [1]"),
        (("tree", "notes", "batches"), [True], "cannot use"),
        (("tree", "notes"), [[]], "the notes in the saved state are [[]]"),
        (("tree", "notes", "guard", "post_training", "steered"), 7, "cannot use"),
    ],
)
def test_it_is_refused_in_words(state, path, value, words):
    folder = state(path, value)
    model, optimizer = training()
    guard = guarded(folder, model, optimizer)
    with pytest.raises(StateError) as raised:
        guard.resume()
    guard.close()
    assert words in raised.value.message
    assert raised.value.fix


@pytest.mark.parametrize("value", [float("inf"), "x", None, {}])
def test_a_manifest_with_an_odd_value_is_passed_over(state, value):
    folder = state(("version",), 1)
    manifest = folder / "checkpoints" / "step-00000002" / "manifest.json"
    kept = manifest.read_text()
    manifest.write_text(json.dumps(json.loads(kept) | {"serial": value}))
    model, optimizer = training()
    guard = guarded(folder, model, optimizer)
    try:
        assert guard.resume() == 0
    finally:
        guard.close()
        manifest.write_text(kept)


def test_a_state_as_it_was_written_is_resumed(state):
    folder = state(("version",), 1)
    model, optimizer = training()
    guard = guarded(folder, model, optimizer)
    assert guard.resume() == 2
    guard.close()
