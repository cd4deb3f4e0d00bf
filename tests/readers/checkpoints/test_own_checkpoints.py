"""Our own checkpoints: the manifest's hashes, the buffers that may be infinite, shards of several ranks."""

import pytest
import torch
from torch import nn

from stayfinite import Guard, Policy
from stayfinite.readers.checkpoints.scan import scan


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A guarded run of six steps with three checkpoints, and a buffer of infinities under a name that tells nothing."""
    path = tmp_path_factory.mktemp("run")
    model = nn.Sequential(nn.Linear(20, 20))
    model.register_buffer("far", torch.full((3,), float("inf")))
    with Guard(model, torch.optim.AdamW(model.parameters()), run_dir=path, policy=Policy(checkpoint_steps=2)) as guard:
        for _ in range(6):
            guard.step(model(torch.randn(4, 20)).square().mean())
    return path


@pytest.fixture
def checkpoints(run_dir, tmp_path):
    import shutil

    return shutil.copytree(run_dir, tmp_path / "run") / "checkpoints"


def test_a_run_directory_is_healthy_and_knows_its_steps(checkpoints):
    result = scan([checkpoints.parent])
    assert result.verdict == "healthy"
    assert [(each.facts.kind, each.facts.step) for each in result.checkpoints] == [("stayfinite", n) for n in (2, 4, 6)]


def test_a_changed_bit_anywhere_is_found_by_the_hash(checkpoints):
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        path = checkpoints / "step-00000004" / name
        before = path.read_bytes()
        path.write_bytes(before[:-9] + bytes([before[-9] ^ 1]) + before[-8:])
        result = scan([checkpoints])
        assert [each.state for each in result.checkpoints] == ["good", "damaged", "good"]
        assert f"{name}: its SHA-256" in result.findings[0].evidence[0]
        path.write_bytes(before)
    assert scan([checkpoints]).verdict == "healthy"


def test_a_missing_and_a_shortened_file_are_told(checkpoints):
    (checkpoints / "step-00000004" / "optimizer.safetensors").unlink()
    path = checkpoints / "step-00000006" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    result = scan([checkpoints])
    assert [each.state for each in result.checkpoints] == ["good", "damaged", "damaged"]
    assert result.newest_good.facts.step == 2


def test_a_manifest_that_does_not_call_it_good_is_believed(checkpoints):
    path = checkpoints / "step-00000006" / "manifest.json"
    path.write_text(path.read_text().replace('"good": true', '"good": false'))
    assert scan([checkpoints]).checkpoints[-1].state == "damaged"
