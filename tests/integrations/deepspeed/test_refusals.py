"""What cannot be guarded is refused, with what to do; without the package the error names the extra."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from stayfinite.errors import MissingExtra, OptimizerError, UsageError
from stayfinite.measure.roster import take_roster


@pytest.mark.skipif(find_spec("deepspeed") is not None, reason="deepspeed is installed")
def test_without_the_package_the_error_names_the_extra():
    with pytest.raises(MissingExtra, match=r"stayfinite\[deepspeed\]"):
        import stayfinite.integrations.deepspeed  # noqa: F401


@pytest.mark.slow
def test_what_is_no_engine_is_refused_with_the_call_that_makes_one(monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    pytest.importorskip("deepspeed", reason="make engines")
    from stayfinite.integrations.deepspeed import deepspeed_guard

    with pytest.raises(UsageError, match="deepspeed.initialize"):
        deepspeed_guard(nn.Linear(2, 2))


def test_an_optimizer_of_masters_is_known_by_the_weights_it_stands_for():
    model = nn.Linear(2, 2)
    groups = [{"params": [nn.Parameter(torch.zeros(6))], "lr": 0.1}]
    masters = SimpleNamespace(param_groups=groups, stands_for=list(model.parameters()))
    assert take_roster(model, masters, partial=True).names == ("weight", "bias")
    # One that holds other weights by mistake is still refused.
    with pytest.raises(OptimizerError, match="the optimizer lacks"):
        take_roster(model, SimpleNamespace(param_groups=groups), partial=True)
