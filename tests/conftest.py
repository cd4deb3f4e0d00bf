"""Settings of the whole test suite."""

import os

import pytest
from hypothesis import HealthCheck, settings

# The workers of pytest share the cores already; with several threads in each they mostly wait for one another, and a
# training takes more than twice as long. Said before anything loads torch. The processes that tests start hear it too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The same examples on every machine and in every run; a slow machine is no failure.
settings.register_profile(
    "steady", derandomize=True, deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")


@pytest.fixture
def one_thread():
    """As the processes have it that tests start: the last bit of a sum depends on how many there are."""
    import torch

    kept = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(kept)
