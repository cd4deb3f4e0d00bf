"""Settings of the whole test suite."""

from hypothesis import HealthCheck, settings

# The same examples on every machine and in every run; a slow machine is no failure.
settings.register_profile(
    "steady", derandomize=True, deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
