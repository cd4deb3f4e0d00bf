"""A model with float8 layers: those that cannot run, or had better not, are named before training."""

import pytest
import torch
from torch import nn

from stayfinite import preflight

pytestmark = pytest.mark.slow  # torchao takes seconds to import

CAUSES = {"fp8-unaligned-dims", "fp8-sensitive-module"}


class Small(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.GELU())
        self.lm_head = nn.Linear(32, classes)

    def forward(self, x, label):
        return nn.functional.cross_entropy(self.lm_head(self.body(x)), label)


def told(classes: int, *, emulate: bool, head: bool) -> dict[str, tuple[str, str]]:
    float8 = pytest.importorskip("torchao.float8")
    torch.manual_seed(0)
    model = Small(classes)
    config = float8.Float8LinearConfig(emulate=emulate)
    float8.convert_to_float8_training(
        model, config=config, module_filter_fn=lambda module, name: head or name != "lm_head"
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = {"x": torch.randn(16, 16), "label": torch.arange(16) % classes}
    found = preflight(model, optimizer, batch, steps=0)
    return {each.cause: (each.severity, each.evidence[0]) for each in found if each.cause in CAUSES}


def test_a_head_in_fp8_is_named():
    assert told(48, emulate=True, head=True).keys() == {"fp8-sensitive-module"}
    assert told(48, emulate=True, head=False) == {}


def test_sides_that_are_no_multiple_of_16_are_named():
    severity, text = told(10, emulate=False, head=True)["fp8-unaligned-dims"]
    assert severity == "warning"
    assert "lm_head [32, 10]" in text
    assert "fp8-unaligned-dims" not in told(10, emulate=True, head=True)
