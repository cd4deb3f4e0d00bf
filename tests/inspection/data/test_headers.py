"""A first row is a row of names only where that is sure; else whoever reads the table says so or asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from stayfinite.errors import UsageError
from stayfinite.inspection.data.headers import is_header
from stayfinite.inspection.data.inspecting import inspect_data
from stayfinite.recipes.language.texts import read_texts
from stayfinite.recipes.seq2seq import translating
from stayfinite.recipes.seq2seq.pairs import read_pairs
from stayfinite.recipes.seq2seq.tables import Columns

ROWS = [("Go.", "Va !", "CC-BY 1"), *((f"I see {n} cats.", f"Je vois {n} chats.", f"CC-BY {n}") for n in range(2, 30))]


def write(path: Path, rows: list[tuple[str, ...]], between: str = "\t") -> str:
    path.write_text("".join(between.join(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    "cells",
    [
        ("source", "target"), ("id", "A", "B"), ("English", "French"), ("en", "fr"), ("EN", "pt-BR"), ("Text", "x"),
        ("oare_id", "what"), ("sourceText", "x"), ("English sentence", "x"), ("column 1", "column 2"), ("Answer ", "x"),
        ("zh_CN", "eng", "licence"),
    ],
)  # fmt: skip
def test_usual_names_identifiers_and_languages_are_a_header(cells: tuple[str, ...]) -> None:
    assert is_header(cells)


@pytest.mark.parametrize(
    "cells",
    [
        ("Go.", "Va !", "CC-BY 1"), ("Is it?", "El gato."), ("No", "Si"), ("so am", "x"), ("I see the answer", "x"),
        ("hello", "bonjour"), ("it", "ca va"), ("", "x"), ("English", "x"), ("a _ b", "x"), ("What text is it", "x"),
        ("Go.", "column 2"),
    ],
)  # fmt: skip
def test_what_may_be_a_row_is_no_header(cells: tuple[str, ...]) -> None:
    assert not is_header(cells)


def test_a_word_above_numbers_is_a_name(tmp_path: Path) -> None:
    rows = [("left", "right", "kilometres"), *((one, two, str(n)) for n, (one, two, _) in enumerate(ROWS))]
    assert len(read_pairs([write(tmp_path / "pairs.tsv", rows)], Columns())) == len(ROWS)
    gaps = [(one, two, "") for one, two, _ in rows]
    with pytest.raises(UsageError, match="may be a header"):
        read_pairs([write(tmp_path / "gaps.tsv", gaps)], Columns())


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_a_table_without_names_is_refused_and_no_row_is_lost(tmp_path: Path, width: int, ending: str) -> None:
    between = "\t" if ending == "tsv" else ","
    path = write(tmp_path / f"pairs.{ending}", [row[:width] for row in ROWS], between)
    with pytest.raises(UsageError, match=r"the first row \('Go\.', 'Va !'.*\) may be a header(?s:.)*add a header"):
        read_pairs([path], Columns())
    with pytest.raises(UsageError, match="may be a header or data"):
        translating.read_texts(Path(path), None)
    named = write(
        tmp_path / f"named.{ending}", [("source", "target", "licence")[:width], *(r[:width] for r in ROWS)], between
    )
    assert [(pair.source, pair.target) for pair in read_pairs([named], Columns())] == [row[:2] for row in ROWS]
    assert translating.read_texts(Path(named), None).texts == [row[0] for row in ROWS]


def test_whoever_names_a_column_says_that_there_are_names(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.tsv", [("left", "right"), *(row[:2] for row in ROWS)])
    with pytest.raises(UsageError, match="may be a header"):
        read_pairs([path], Columns())
    assert len(read_pairs([path], Columns(source="left", target="right"))) == len(ROWS)
    assert len(read_pairs([path], Columns(), usual=Columns(source="left", target="right"))) == len(ROWS)
    assert len(translating.read_texts(Path(path), "left").rows) == len(ROWS)
    assert len(translating.read_texts(Path(path), None, "left").rows) == len(ROWS)


def test_the_first_text_of_a_table_of_one_column_is_a_text(tmp_path: Path) -> None:
    texts = [f"This is sentence number {n} of all" for n in range(20)]
    found = read_texts([write(tmp_path / "a.csv", [(text,) for text in texts])])
    assert found.texts == texts
    assert any("the first row is read as text" in remark for remark in found.remarks)
    for name in ("text", "line", "my_column"):
        assert read_texts([write(tmp_path / "b.csv", [(name,), *((text,) for text in texts)])]).texts == texts
    other = read_texts(
        [write(tmp_path / "c.csv", [("Words of all",), *((text,) for text in texts)])], column="Words of all"
    )
    assert other.texts == texts


def test_a_check_of_data_says_that_the_first_row_was_taken_for_names(tmp_path: Path) -> None:
    without = inspect_data([write(tmp_path / "pairs.tsv", ROWS)])
    assert any("The first row is read as column names, none of them usual" in text for _, text in without.banner)
    named = inspect_data([write(tmp_path / "named.tsv", [("en", "fr", "by"), *ROWS])])
    assert not any("read as column names" in text for _, text in named.banner)
