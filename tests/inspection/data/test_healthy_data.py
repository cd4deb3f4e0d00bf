"""Data with nothing wrong is left in peace, whatever it is written in."""

import random

import pytest

from inspection.data.healthy_sets import HEALTHY
from stayfinite.inspection.data.inspecting import inspect_data


@pytest.mark.parametrize("make", HEALTHY, ids=lambda make: make.__name__)
def test_a_healthy_data_set_has_no_warning(make, tmp_path):
    options = make(tmp_path, random.Random(7))
    found = inspect_data(options.pop("paths"), **options)
    assert [(finding.code, finding.evidence) for finding in found.findings] == []
    assert found.verdict == "healthy"
    assert found.exit_code == 0
