from __future__ import annotations

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from stayfinite.errors import StateError
from stayfinite.state.rng import capture_rng, restore_rng
from stayfinite.state.tree import decode, encode


def draw() -> list[float]:
    return [
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
        *torch.randn(3).tolist(),
    ]


def test_every_generator_goes_on_from_where_it_stood() -> None:
    draw()
    encoded = encode(capture_rng())
    assert not encoded.tensors, "each rank writes its own; they must fit into its JSON"
    text = json.dumps(encoded.tree)
    expected = [draw(), draw()]
    restore_rng(decode(json.loads(text), {}))
    assert [draw(), draw()] == expected


@pytest.mark.parametrize(
    "damage", [{"torch": b"short"}, {"python": (3, (1, 2), None)}, {"numpy": ("MT19937", b"1234", 0, 0, 0.0)}]
)
def test_a_state_that_does_not_fit_changes_no_generator(damage: dict[str, object]) -> None:
    state = capture_rng()
    with pytest.raises(StateError, match="random states"):
        restore_rng(capture_rng() | damage)
    expected = draw()
    restore_rng(state)
    assert draw() == expected


def test_numpy_is_not_imported_for_it() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "import torch; del sys.modules['numpy']\n"
        "from stayfinite.state.rng import capture_rng, restore_rng\n"
        "s = capture_rng(); assert s['numpy'] is None; restore_rng(s); assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
