"""A remark in parentheses behind a name is no part of it."""

from __future__ import annotations

import pytest

from stayfinite.readers.logs.pairs import separated_pairs


@pytest.mark.parametrize(
    "line",
    ["loss (batch)=-9.27e+5", "loss(avg): -9.27e+5", "12%|#| 1/8 [00:12, 6.3it/s, loss (batch)=-9.27e+5]"],
)
def test_the_name_is_read_without_it(line: str) -> None:
    name, begin, end = separated_pairs(line)[-1]
    assert (name, line[begin:end]) == ("loss", "-9.27e+5")


@pytest.mark.parametrize("line", ["(batch) = 3", "at 12 (batch) = 3"])
def test_a_remark_alone_is_no_name(line: str) -> None:
    assert "batch" not in [name for name, _, _ in separated_pairs(line)]
