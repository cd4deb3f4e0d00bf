"""WebDataset tars: rows by name, pictures as paths into the archive, a cut archive never a shorter one."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from stayfinite.errors import UsageError
from stayfinite.inspection.data.inspecting import inspect_data
from stayfinite.readers.data.opening import open_data
from stayfinite.readers.data.tar_rows import has_member, member_bytes


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def captions(count: int) -> dict[str, bytes]:
    return {
        f"train/{number:04d}.{ending}": data
        for number in range(count)
        for ending, data in (("jpg", b"picture %d" % number * 50), ("txt", b"a town by the river %d" % number))
    }


def rows_of(path: Path) -> tuple[list[dict], list]:
    rows, broken = [], []
    for source in open_data([path]):
        for chunk in source.chunks():
            rows += [dict(zip(chunk.columns, row, strict=True)) for row in zip(*chunk.columns.values(), strict=True)]
            broken += chunk.broken
    return rows, broken


def test_members_of_one_name_are_a_row_and_a_picture_is_a_path_into_the_archive(tmp_path):
    members = captions(2) | {"train/0002.png": b"p", "train/0002.json": json.dumps({"text": "three", "n": 3}).encode()}
    path = write_tar(tmp_path / "a.tar", members)
    rows, broken = rows_of(path)
    assert not broken
    assert [row["text"] for row in rows] == ["a town by the river 0", "a town by the river 1", "three"]
    assert rows[2]["n"] == 3
    assert member_bytes(rows[1]["image"]) == b"picture 1" * 50
    assert has_member(rows[2]["image"])
    assert not has_member(path / "train/0009.jpg")


@pytest.mark.parametrize("left", range(1, 16))
def test_a_tar_that_is_cut_anywhere_says_so(tmp_path, left):
    path = write_tar(tmp_path / "a.tar", captions(4))
    whole = path.read_bytes()
    used = whole.rstrip(b"\0").__len__()
    path.write_bytes(whole[: used * left // 16])
    rows, broken = rows_of(path)
    assert len(broken) == 1
    assert broken[0].ends
    assert "truncated" in broken[0].why
    assert all(row["text"] for row in rows if "text" in row)


def test_a_tar_that_is_cut_between_two_files_says_so(tmp_path):
    path = write_tar(tmp_path / "a.tar", captions(4))
    with tarfile.open(path) as archive:
        places = [member.offset for member in archive]
    path.write_bytes(path.read_bytes()[: places[4]])
    rows, broken = rows_of(path)
    assert "no end mark" in broken[0].why
    assert len(rows) == 1


def test_a_compressed_tar_is_refused_with_what_to_do(tmp_path):
    import gzip

    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(write_tar(tmp_path / "a.tar", captions(1)).read_bytes()))
    with pytest.raises(UsageError, match="compressed tar") as caught:
        open_data([tmp_path / "a.tar.gz"])
    assert "plain .tar" in caught.value.fix


def test_check_looks_through_a_directory_of_tars(tmp_path):
    for number in range(3):
        write_tar(tmp_path / f"{number}.tar", captions(5))
    found = inspect_data([str(tmp_path)])
    assert any("WebDataset tar" in text and "15 rows" in text for _, text in found.banner)
