"""Reading, cleaning and splitting pairs of texts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stayfinite.errors import UsageError
from stayfinite.recipes.seq2seq.built_in import Pair
from stayfinite.recipes.seq2seq.pairs import REASONS, clean, normalizer, pairs_for, read_pairs, split, to_score
from stayfinite.recipes.seq2seq.tables import Columns
from stayfinite.recipes.translate import Translate

ROWS = [("a-na", "to"), ("LUGAL", "the king"), ("be-li2", "my lord")]
plain = normalizer(["nfc", "spaces"])


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def as_rows(pairs):
    return [(pair.source, pair.target) for pair in pairs]


def test_every_kind_of_table_gives_the_same_pairs(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    objects = [{"source": s, "target": t} for s, t in ROWS]
    pq.write_table(pa.Table.from_pylist(objects), tmp_path / "p.parquet")
    files = [
        written(tmp_path, "p.csv", "source,target\n" + "".join(f"{s},{t}\n" for s, t in ROWS)),
        written(tmp_path, "p.tsv", "source\ttarget\n" + "".join(f"{s}\t{t}\n" for s, t in ROWS)),
        written(tmp_path, "p.jsonl", "".join(json.dumps(row) + "\n" for row in objects)),
        written(tmp_path, "p.json", json.dumps(objects)),
        str(tmp_path / "p.parquet"),
    ]
    for file in files:
        assert as_rows(read_pairs([file], Columns())) == ROWS, file
    assert as_rows(read_pairs(files[:2], Columns())) == ROWS + ROWS


def test_nested_translations_of_a_hub_are_columns_too(tmp_path):
    rows = "".join(json.dumps({"translation": {"akk": s, "en": t}}) + "\n" for s, t in ROWS)
    path = written(tmp_path, "p.jsonl", rows)
    columns = Columns(source="translation.akk", target="translation.en")
    assert as_rows(read_pairs([path], columns)) == ROWS


@pytest.mark.parametrize("name", ["group", "Group", "tablet_id", "document id"])
def test_a_column_of_groups_is_known_by_its_name(tmp_path, name):
    path = written(tmp_path, "p.csv", f"source,target,{name}\n" + "".join(f"{s},{t},7\n" for s, t in ROWS))
    said = []
    assert {pair.group for pair in read_pairs([path], Columns(), said.append)} == {"7"}
    assert f"split by = {name}" in said[0]


def test_what_is_no_character_does_not_stop_a_scoring():
    found = to_score([Pair("a \ud83d b", "c \udcff"), Pair("no target", " "), Pair("a", "b"), Pair("a", "b")])
    assert as_rows(found) == [("a ? b", "c ?"), ("a", "b"), ("a", "b")]


def test_sources_that_are_trained_on_and_scored_on_are_counted(tmp_path):
    train = written(tmp_path, "t.csv", "source,target\n" + "".join(f"{s},{t}\n" for s, t in ROWS))
    val = written(tmp_path, "v.csv", "source,target\na-na,to\na-na,towards\nen-na,now\n")
    for files, counted in (((val,), True), ((), False)):
        said = []
        pairs_for(Translate(train=(train,), val=files, val_share=0.3), said.append)
        assert any("2 validation sources are in the training data" in line for line in said) is counted


def test_columns_are_guessed_and_the_guess_is_said(tmp_path):
    path = written(
        tmp_path, "p.csv", "tablet_id,transliteration,translation\n" + "".join(f"7,{s},{t}\n" for s, t in ROWS)
    )
    said = []
    pairs = read_pairs([path], Columns(), said.append)
    assert as_rows(pairs) == ROWS
    assert {pair.group for pair in pairs} == {"7"}
    assert said == [
        f"p.csv: CSV, {len(ROWS)} rows: source = transliteration, target = translation, split by = tablet_id"
    ]


def test_a_column_that_is_not_there_lists_those_that_are(tmp_path):
    path = written(tmp_path, "p.csv", "akk,eng\na,b\n")
    with pytest.raises(UsageError, match=r"p.csv: no column 'akkk'; did you mean akk\?") as caught:
        read_pairs([path], Columns(source="akkk", target="eng"))
    assert "akk, eng" in caught.value.fix


def test_a_table_of_one_column_says_what_is_missing(tmp_path):
    path = written(tmp_path, "p.csv", "source\nx\ny\n")
    with pytest.raises(UsageError, match="cannot find the source and target columns"):
        read_pairs([path], Columns())


def test_usual_names_win_over_a_guess_and_lose_against_what_is_asked(tmp_path):
    path = written(tmp_path, "p.csv", "source,target,other\na,b,c\n")
    usual = Columns(source="other", target="elsewhere")
    assert as_rows(read_pairs([path], Columns(), usual=usual)) == [("c", "b")]
    assert as_rows(read_pairs([path], Columns(source="source"), usual=usual)) == [("a", "b")]


def test_two_texts_are_aligned_line_by_line_and_only_line_ends_count(tmp_path):
    # str.splitlines would cut at these separators and shift every line below.
    one = written(tmp_path, "t.src", "a\u2028b\nc\x0bd\n\ne\n")
    two = written(tmp_path, "t.tgt", "1\n2\n3\n4\n")
    assert as_rows(read_pairs([one, two], Columns())) == [("a\u2028b", "1"), ("c\x0bd", "2"), ("", "3"), ("e", "4")]


def test_texts_of_different_length_are_refused_by_name_and_line(tmp_path):
    one, two = written(tmp_path, "t.src", "a\nb\nc\n"), written(tmp_path, "t.tgt", "1\n2\n")
    with pytest.raises(UsageError, match=r"t.src:3: t.tgt ends here.*not aligned"):
        read_pairs([one, two], Columns())


@pytest.mark.parametrize("files", [["t.src"], ["t.src", "p.csv"]])
def test_one_text_alone_or_with_a_table_is_refused(tmp_path, files):
    paths = [written(tmp_path, name, "source,target\na,b\n") for name in files]
    with pytest.raises(UsageError, match="expected tables, or two aligned text files"):
        read_pairs(paths, Columns())


def test_a_missing_and_an_empty_file_are_named(tmp_path):
    with pytest.raises(UsageError, match="nowhere.csv: no such file"):
        read_pairs([str(tmp_path / "nowhere.csv")], Columns())
    with pytest.raises(UsageError, match="empty.csv: no pairs"):
        read_pairs([written(tmp_path, "empty.csv", "source,target\n")], Columns())


def test_half_a_row_is_refused_where_it_stands(tmp_path):
    path = written(tmp_path, "p.csv", "source,target\na,b\nc\nd,e\n")
    with pytest.raises(UsageError, match=r"p.csv:3: 1 fields, but the header has 2"):
        read_pairs([path], Columns())


def test_what_is_left_out_is_counted():
    pairs = [Pair("a", "b"), Pair(" a ", "b"), Pair("", "b"), Pair("a", " "), Pair("x", "y" * 900), Pair("\udcff", "b")]
    kept = clean(pairs, plain, max_ratio=8)
    assert as_rows(kept.pairs) == [("a", "b")]
    assert [kept.dropped[why] for why in REASONS] == [2, 1, 1, 1]
    assert str(kept) == ("1 pairs (dropped: 2 empty, 1 repeated, 1 with very different lengths, 1 with invalid bytes)")


names = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("stuvwxyz")), min_size=2, max_size=60)


@given(names, st.floats(0.01, 0.9))
def test_no_group_and_no_source_is_ever_on_both_sides(rows, share):
    pairs = [Pair(source, f"{number}", group) for number, (group, source) in enumerate(rows)]
    if len({pair.group for pair in pairs}) < 2:
        with pytest.raises(UsageError, match="no group can be held out"):
            split(pairs, share)
        return
    training, validation = split(pairs, share)
    assert training
    assert not {pair.group for pair in training} & {pair.group for pair in validation}
    assert not {pair.source for pair in training} & {pair.source for pair in validation}
    assert len(training) + len(validation) <= len(pairs)


def test_the_split_of_a_group_does_not_depend_on_what_else_there_is():
    pairs = [Pair(f"s{number}", "t", f"g{number}") for number in range(400)]
    _, small = split(pairs[:300], 0.2)
    _, large = split(pairs, 0.2)
    assert {pair.group for pair in small} <= {pair.group for pair in large}
    assert 40 < len(large) < 130


def test_two_pairs_are_enough_for_a_split():
    training, validation = split([Pair("a", "b"), Pair("c", "d")], 0.001)
    assert (len(training), len(validation)) == (1, 1)
