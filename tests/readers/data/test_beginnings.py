"""Data that is too large to be looked through whole: its beginnings are, and that is said."""

from __future__ import annotations

import gzip
import json

import pytest

from stayfinite.inspection.data import inspecting
from stayfinite.inspection.data.inspecting import inspect_data
from stayfinite.readers.data.opening import beginnings, open_data, text_size


@pytest.fixture
def files(tmp_path):
    for part in range(4):
        with gzip.open(tmp_path / f"{part}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"text": f"row {part} {number} " * 5}) + "\n" for number in range(10_000))
    return tmp_path


def rows_of(sources) -> int:
    return sum(len(chunk.lines) for source in sources for chunk in source.chunks())


def test_small_data_is_read_whole(files):
    assert rows_of(beginnings(open_data([files]))) == 40_000


def test_of_large_data_each_file_gives_its_share(files):
    found = open_data([files])
    part = beginnings(found, large=1000, read=text_size(found) // 4)
    assert len(part) == 4
    assert 8_000 < rows_of(part) < 25_000


def test_check_says_that_it_read_a_part_and_reads_all_when_asked(files, monkeypatch):
    monkeypatch.setattr(inspecting, "beginnings", lambda sources: beginnings(sources, large=1000, read=100_000))
    banner = dict(inspect_data([str(files)]).banner)
    assert "--whole reads all" in banner["training read"]
    assert "40,000" not in banner["training"]
    banner = dict(inspect_data([str(files)], whole=True).banner)
    assert "training read" not in banner
    assert "40,000 rows" in banner["training"]
