"""Rows come out as they were written in, whatever the format; what is broken is named and never a traceback."""

import csv
import gzip
import json
import random
from contextlib import suppress

import pyarrow
import pyarrow.parquet
import pytest

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.readers.data.opening import open_data

ROWS = [
    {"id": str(n), "source": f'row "{n}", with\nnewline; and\ttab', "target": f"žluťoučký kůň {n} 🐎"}
    for n in range(5000)
]


def read(*paths):
    """Columns of all rows, the lines of the rows, and what is broken."""
    columns, lines, broken = {}, [], []
    for source in open_data([str(path) for path in paths]):
        for chunk in source.chunks():
            lines += chunk.lines
            broken += chunk.broken
            for name, values in chunk.columns.items():
                assert len(values) == len(chunk.lines)
                columns.setdefault(name, []).extend(values)
    return columns, lines, broken


def as_columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


def write_csv(path, **options):
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        writer = csv.DictWriter(file, list(ROWS[0]), **options)
        writer.writeheader()
        writer.writerows(ROWS)


def write_arrow(path, kind):
    table = pyarrow.table(as_columns(ROWS))
    with pyarrow.OSFile(str(path), "wb") as sink, getattr(pyarrow.ipc, f"new_{kind}")(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=700)


WRITERS = {
    "comma.csv": write_csv,
    "semicolon.csv": lambda path: write_csv(path, delimiter=";"),
    "pipe.csv": lambda path: write_csv(path, delimiter="|"),
    "tabs.tsv": lambda path: write_csv(path, delimiter="\t"),
    "mark.csv": lambda path: write_csv(path, encoding="utf-8-sig"),
    "wide.csv": lambda path: write_csv(path, encoding="utf-16"),
    "quoted.csv": lambda path: write_csv(path, quoting=csv.QUOTE_ALL),
    "escaped.csv": lambda path: write_csv(path, doublequote=False, escapechar="\\"),
    "lines.jsonl": lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
    "lines.json": lambda path: path.write_text("".join(json.dumps(row) + "\n" for row in ROWS)),
    "array.json": lambda path: path.write_text(json.dumps(ROWS)),
    "indented.json": lambda path: path.write_text(json.dumps(ROWS, indent=2)),
    "keyed.json": lambda path: path.write_text(json.dumps({"version": 2, "data": ROWS})),
    "columns.json": lambda path: path.write_text(json.dumps(as_columns(ROWS))),
    "packed.jsonl.gz": lambda path: path.write_bytes(
        gzip.compress("".join(json.dumps(r) + "\n" for r in ROWS).encode())
    ),
    "table.parquet": lambda path: pyarrow.parquet.write_table(pyarrow.table(as_columns(ROWS)), path),
    "file.arrow": lambda path: write_arrow(path, "file"),
    "stream.arrow": lambda path: write_arrow(path, "stream"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_rows_that_were_written(tmp_path, name):
    WRITERS[name](tmp_path / name)
    columns, lines, broken = read(tmp_path / name)
    assert columns == as_columns(ROWS)
    assert broken == []
    assert len(lines) == len(ROWS)


def test_rows_with_newlines_are_named_by_the_line_on_which_they_begin(tmp_path):
    (tmp_path / "a.csv").write_text('a,b\n1,"x\ny\nz"\n2,w\n')
    assert read(tmp_path / "a.csv")[1] == [2, 5]


def test_a_tsv_whose_quotes_mean_nothing_keeps_them(tmp_path):
    lines = ["text\tlabel"] + [f'"so he said {n}\t{n % 2}' for n in range(600)]
    (tmp_path / "a.tsv").write_text("\n".join(lines))
    columns, _, broken = read(tmp_path / "a.tsv")
    assert columns["text"][:2] == ['"so he said 0', '"so he said 1']
    assert broken == []


def test_a_table_in_which_one_field_in_a_hundred_has_a_newline_keeps_it_in_the_field(tmp_path):
    rows = [(f"word {n} here\nand more" if n % 100 == 7 else f"word {n} here", f"the word {n}") for n in range(300)]
    for name, delimiter in (("a.csv", ","), ("a.tsv", "\t")):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([("source", "target"), *rows])
        columns, _, broken = read(tmp_path / name)
        assert list(zip(columns["source"], columns["target"], strict=True)) == rows
        assert broken == []


def test_a_quoted_field_of_two_lines_is_one_field_also_where_each_line_could_be_a_row(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n" + "".join(f'{n},"one {n}\ntwo, three"\n' for n in range(50)))
    assert read(tmp_path / "a.csv")[0] == {
        "id": [str(n) for n in range(50)],
        "text": [f"one {n}\ntwo, three" for n in range(50)],
    }


def test_a_quote_that_is_never_closed_is_named(tmp_path):
    lines = ["source,target"] + [f"one {n},two {n}" for n in range(3000)]
    lines[700] = '"' + lines[700]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    _, rows, broken = read(tmp_path / "a.csv")
    assert len(rows) >= 699
    assert any(each.line == 701 and "a quote opened here" in each.why for each in broken)


def test_a_table_of_numbers_without_header_keeps_its_first_row(tmp_path):
    (tmp_path / "a.csv").write_text("".join(f"{n}.5,{n}\n" for n in range(20)))
    assert read(tmp_path / "a.csv")[0] == {
        "column 1": [f"{n}.5" for n in range(20)],
        "column 2": [str(n) for n in range(20)],
    }


def test_one_column_of_prose_with_commas_stays_one_column(tmp_path):
    (tmp_path / "a.csv").write_text("text\n" + "".join(f'"well, {n}, so, it goes"\n' for n in range(20)))
    assert read(tmp_path / "a.csv")[0]["text"][0] == "well, 0, so, it goes"


def test_keys_that_only_some_rows_have_are_none_in_the_others(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n{"b": {"x": 2}}\n{"a": 3, "b": {"y": 4}}\n')
    columns, lines, _ = read(tmp_path / "a.jsonl")
    assert columns == {"a": [1, None, 3], "b.x": [None, 2, None], "b.y": [None, None, 4]}
    assert lines == [1, 3, 4]


def test_aligned_texts_are_two_columns_and_keep_their_blank_lines(tmp_path):
    (tmp_path / "t.akk").write_text("a\n\nc\n")
    (tmp_path / "t.en").write_text("x\ny\nz\n")
    assert read(tmp_path / "t.akk", tmp_path / "t.en")[0] == {"akk": ["a", "", "c"], "en": ["x", "y", "z"]}


def test_a_directory_of_texts_is_read_file_by_file(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.txt").write_text(f"{name} 1\n\n{name} 2\n")
    assert read(tmp_path)[0] == {"text": ["a 1", "a 2", "b 1", "b 2"]}


def test_bytes_under_a_string_column_of_parquet_do_not_stop_the_reading(tmp_path):
    raw = pyarrow.array([b"good", b"caf\xe9"], pyarrow.binary())
    table = pyarrow.table({"text": pyarrow.StringArray.from_buffers(2, *raw.buffers()[1:])})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet")[0]["text"] == ["good", "caf\udce9"]


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "stream.arrow"])
@pytest.mark.parametrize("damage", ["cut", "holes", "noise"])
def test_a_damaged_file_is_an_error_in_words_or_a_broken_row_never_a_traceback(tmp_path, name, damage):
    WRITERS[name](tmp_path / name)
    raw = bytearray((tmp_path / name).read_bytes())
    rng = random.Random(f"{name}{damage}")
    if damage == "cut":
        del raw[len(raw) * 2 // 3 :]
    for _ in range(0 if damage == "cut" else 200):
        place = rng.randrange(len(raw))
        raw[place : place + 3] = bytes(3) if damage == "holes" else rng.randbytes(3)
    (tmp_path / name).write_bytes(raw)
    with suppress(UsageError):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["table.parquet", "file.arrow"])
def test_without_pyarrow_the_pip_line_is_given(tmp_path, name, monkeypatch):
    WRITERS[name](tmp_path / name)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'stayfinite\[data\]'"):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "raw"), [("a.xlsx", b"PK\x03\x04..."), ("a.csv", b"\x80\x04\x95"), ("a.parquet", b""), ("a.json", b"42")]
)
def test_what_holds_no_rows_is_refused_by_name(tmp_path, name, raw):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(UsageError, match=name):
        read(tmp_path / name)
