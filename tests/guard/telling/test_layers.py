"""layers.npz: readable with numpy, and right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stayfinite import Policy
from stayfinite.guard.telling.layers import MOST, Layers
from stayfinite.measure.sample import FIELDS
from tiny_training import Training


def test_layers_hold_what_was_measured(tmp_path):
    training = Training(run_dir=tmp_path, policy=Policy(sample_every=2), max_norm=0.01)
    before = training.model.down.weight.detach().clone()
    loss = training.loss()
    grad = torch.autograd.grad(loss, training.model.down.weight, retain_graph=True)[0]
    training.guard.step(loss)
    moved = (training.model.down.weight.detach() - before).norm() / before.norm()
    training.good(4)
    training.bad("nan-element")
    training.guard.close()
    with np.load(tmp_path / "layers.npz", allow_pickle=False) as layers:
        assert int(layers["version"]) == 1
        assert layers["names"].tolist() == [name for name, _ in training.model.named_parameters()]
        assert layers["steps"].tolist() == [1, 2, 4, 6]
        column = layers["names"].tolist().index("down.weight")
        assert layers["norm"].shape == (4, 6)
        assert layers["norm"].dtype == np.float32
        assert layers["norm"][0, column] == pytest.approx(grad.norm().item(), rel=1e-5)  # raw, not clipped
        assert layers["abs_max"][0, column] == pytest.approx(grad.abs().max().item(), rel=1e-6)
        assert layers["zero_share"][0, column] == 0
        assert layers["update_ratio"][0, column] == pytest.approx(moved.item(), rel=1e-4)
        assert layers["nonfinite"][3].tolist() == [1, 0, 0, 0, 0, 0]
        assert layers["update_ratio"][3].tolist() == [0] * 6  # a refused step moves nothing
        assert np.isnan(layers["norm"][3, 0])


def test_a_parameter_without_a_gradient_is_nan_in_every_table(tmp_path):
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(8, 4), "unused": torch.nn.Linear(8, 4)})
    model.forward = model["used"].forward
    training = Training(model=model, run_dir=tmp_path)
    training.good()
    training.guard.close()
    with np.load(tmp_path / "layers.npz") as layers:
        assert np.isnan(layers["norm"][0]).tolist() == [False, False, True, True]
    assert "no gradient when last looked at: unused.weight, unused.bias" in training.console.lines[-1]


@pytest.mark.parametrize(("steps", "said"), [(1, False), (4, True)])
def test_a_gradient_of_zero_at_the_first_step_alone_is_not_held_against_a_parameter(tmp_path, steps, said):
    class HalfAnAdapter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inward, self.outward = torch.nn.Linear(8, 2, bias=False), torch.nn.Linear(2, 4, bias=False)
            torch.nn.init.zeros_(self.outward.weight)

        def forward(self, x):
            # As a fresh adapter at its first step; here it stays so, because the outward half is held at 0.
            return self.outward(self.inward(x)) * 0.0 if said else self.outward(self.inward(x))

    training = Training(model=HalfAnAdapter(), run_dir=tmp_path, policy=Policy(sample_every=2))
    training.good(steps)
    training.guard.close()
    assert ("no gradient when last looked at: inward.weight" in training.console.lines[-1]) is said


def test_names_beyond_ascii_survive(tmp_path):
    model = torch.nn.ModuleDict({"größe": torch.nn.Linear(8, 4)})
    model.forward = model["größe"].forward
    training = Training(model=model, run_dir=tmp_path)
    training.good()
    with np.load(tmp_path / "layers.npz") as layers:
        assert layers["names"].tolist() == ["größe.weight", "größe.bias"]


def test_a_long_run_is_thinned_evenly():
    layers = Layers()
    for step in range(3 * MOST):
        layers.add(step, ("a", "b"), (1,), [float(step)] * len(FIELDS))
    import io

    with np.load(io.BytesIO(layers.to_bytes())) as table:
        steps = table["steps"]
        assert MOST / 2 < len(steps) <= MOST
        assert set(np.diff(steps)) == {4}
        assert table["norm"][:, 1].tolist() == steps.tolist()
        assert np.isnan(table["norm"][:, 0]).all()


def test_no_samples_no_file(tmp_path):
    training = Training(run_dir=tmp_path, policy=Policy(sample_every=0))
    training.good(3)
    training.guard.close()
    assert not (tmp_path / "layers.npz").exists()
