from __future__ import annotations

import io
import json
import tarfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stayfinite.errors import UsageError
from stayfinite.recipes.language.blocks import Blocks, blocks_of, cut
from stayfinite.recipes.language.built_in import travel_notes
from stayfinite.recipes.language.texts import check_enough, keep, read_texts, split, without

LINES = [f"this is line number {number} of the text" for number in range(20)]


def test_lines_of_ten_characters_or_fewer_are_dropped_and_the_eleventh_saves_one(tmp_path):
    (tmp_path / "a.txt").write_text("0123456789\n01234567890\n\n   short   \n", encoding="utf-8")
    found = read_texts([str(tmp_path)])
    assert found.texts == ["01234567890"]
    assert found.short == 2


def test_repeated_texts_are_dropped_over_all_files(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("\n".join([*LINES, LINES[0] + "  "]), encoding="utf-8")
    found = read_texts([str(tmp_path)])
    assert found.texts == LINES
    assert found.repeated == 22


def test_a_tar_that_is_cut_is_not_taken_for_a_shorter_one(tmp_path):
    path = tmp_path / "lines.tar"
    with tarfile.open(path, "w") as tar:
        for number, line in enumerate(LINES):
            about = tarfile.TarInfo(f"{number}.txt")
            about.size = len(line)
            tar.addfile(about, io.BytesIO(line.encode()))
    assert len(read_texts([str(path)]).texts) == len(LINES)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(UsageError, match=r"lines.tar:\d+: reading stopped here") as refused:
        read_texts([str(path)])
    assert refused.value.fix == "download or write lines.tar again"


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet", "json"])
def test_a_table_with_a_column_of_text_is_read(tmp_path, kind):
    path = tmp_path / f"rows.{kind}"
    if kind == "jsonl":
        path.write_text("\n".join(json.dumps({"id": 1, "text": line}) for line in LINES), encoding="utf-8")
    elif kind == "json":
        path.write_text(json.dumps([{"id": 1, "text": line} for line in LINES]), encoding="utf-8")
    elif kind == "parquet":
        pq.write_table(pa.table({"id": list(range(20)), "text": LINES}), path)
    else:
        mark = "," if kind == "csv" else "\t"
        path.write_text("\n".join([f"id{mark}text", *(f"1{mark}{line}" for line in LINES)]), encoding="utf-8")
    assert read_texts([str(path)]).texts == LINES


def test_a_column_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"title": "a", "words": line}) for line in LINES), encoding="utf-8")
    with pytest.raises(UsageError, match="cannot find the text column among 'title', 'words'"):
        read_texts([str(path)])
    with pytest.raises(UsageError, match="no column 'text'.*'title', 'words'"):
        read_texts([str(path)], column="text")
    assert read_texts([str(path)], column="words").texts == LINES


def test_two_files_whose_names_look_like_a_pair_are_two_texts(tmp_path):
    (tmp_path / "source.txt").write_text("\n".join(LINES[:10]), encoding="utf-8")
    (tmp_path / "target.txt").write_text("\n".join(LINES[10:15]), encoding="utf-8")
    assert read_texts([str(tmp_path)]).texts == LINES[:15]


def test_half_a_surrogate_pair_and_nothing_at_all_do_no_harm():
    found = keep(["a lone surrogate \ud800 in a text", None, float("nan"), 12345678901234])
    assert found.texts == ["a lone surrogate ? in a text", "12345678901234"]


def test_nine_examples_are_too_few_and_ten_are_enough():
    with pytest.raises(UsageError, match="9 texts: at least 10"):
        check_enough(keep(LINES[:9]), "corpus")
    check_enough(keep(LINES[:10]), "corpus")


def test_the_split_depends_on_the_texts_and_not_on_their_order():
    training, validation = split(LINES, 0.2)
    again = split(LINES[::-1], 0.2)
    assert len(validation) == 4
    assert sorted(training + validation) == sorted(LINES)
    assert sorted(again[1]) == sorted(validation)
    assert [len(side) for side in split(LINES[:10], 0.001)] == [9, 1]
    assert [len(side) for side in split(LINES[:10], 0.999)] == [1, 9]
    assert without(LINES, validation) == training


@given(st.lists(st.integers(2, 9), max_size=300), st.integers(8, 64))
def test_a_long_text_is_cut_and_nothing_of_it_is_lost(row, size):
    pieces = cut(row, size)
    assert [token for piece in pieces for token in piece] == row
    assert all(len(piece) <= size for piece in pieces)
    lengths = [len(piece) for piece in pieces]
    assert max(lengths) - min(lengths) <= 1


@given(st.lists(st.lists(st.integers(2, 9), min_size=2, max_size=90), max_size=30), st.integers(8, 64))
def test_packed_blocks_hold_every_text_whole_and_in_order(rows, size):
    packed = blocks_of(rows, size, packing="all", end=1)
    blocks = [packed[number] for number in range(len(packed))]
    assert all(len(block) <= size for block in blocks)
    plain = [token for block in blocks for token in block if token != 1]
    assert plain == [token for row in rows for token in row]
    assert len(packed) <= len(blocks_of(rows, size))


def test_blocks_of_one_token_are_left_out_and_the_rest_is_kept_as_it_was():
    found = blocks_of([[5], [5, 6], [], [7, 8, 9]], 64)
    assert [found[0], found[1], found.lengths, found.tokens] == [[5, 6], [7, 8, 9], [2, 3], 5]
    with pytest.raises(IndexError):
        found[2]
    assert len(Blocks([])) == 0


def test_the_built_in_text_is_the_same_every_time_and_large_enough():
    notes = travel_notes()
    assert notes == travel_notes()
    assert len(notes) == len(set(notes)) > 2000
    assert len(keep(notes).texts) == len(notes)
