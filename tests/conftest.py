"""Settings of the whole test suite."""

import gc
import os
import shutil
import sys

import pytest
from hypothesis import HealthCheck, settings

# The workers of pytest share the cores already; with several threads in each they mostly wait for one another, and a
# training takes more than twice as long. Said before anything loads torch. The processes that tests start hear it too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Without a GPU Triton's kernels run in its interpreter. It asks once, when it is first imported; torch stays unloaded.
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")

# The same examples on every machine and in every run; a slow machine is no failure.
settings.register_profile(
    "steady", derandomize=True, deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Loading the test files makes millions of objects and hardly any garbage: a sixth of the time went to it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Slow tests begin with those that may take longest, so that none is left alone on one core at the end."""
    items.sort(key=_allowed_if_slow, reverse=True)


def pytest_collection_finish():
    """What the test files loaded stays to the end; trainers and accelerators collect garbage at every start.

    Between those starts there is little: to look for it as often as Python does by itself took 3 % of the time.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _allowed_if_slow(item):
    allowed = item.get_closest_marker("timeout")
    return allowed.args[0] if allowed and item.get_closest_marker("slow") else 0


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A new directory, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def one_thread():
    """As the processes have it that tests start: the last bit of a sum depends on how many there are."""
    import torch

    kept = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(kept)


@pytest.fixture(autouse=True)
def onednn_as_it_was():
    """Torch gives up oneDNN for good when this CPU lacks a product that a test asked for; the last bits then differ."""
    yield
    if (torch := sys.modules.get("torch")) is not None and not torch._C._get_mkldnn_enabled():
        torch._C._set_mkldnn_enabled(True)
