from __future__ import annotations

import pytest
import torch

from tiny_language import tiny_model, write_texts


@pytest.fixture(scope="session", autouse=True)
def one_thread_for_all():
    """As the processes have it that tests start: the last bit of a sum depends on how many there are."""
    kept = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(kept)


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    return write_texts(tmp_path_factory.mktemp("texts"))
