from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from stayfinite.errors import NotReady
from stayfinite.recipes.running.loop import sending
from stayfinite.recipes.running.processes import Place


def refuse():
    raise NotReady("this cannot work", fix="try another")


def test_what_the_first_process_computes_is_given_back():
    assert Place(device=torch.device("cpu")).by_first(lambda: {"rows": 3}) == {"rows": 3}


def test_what_the_first_process_raises_is_raised_as_it_was():
    with pytest.raises(NotReady) as caught:
        Place(device=torch.device("cpu")).by_first(refuse)
    assert caught.value.fix == "try another"


def test_a_model_in_one_process_sends_nothing():
    assert isinstance(sending(torch.nn.Linear(1, 1), now=False), nullcontext)
