"""``stayfinite evaluate`` and ``stayfinite translate`` as a person calls them."""

import csv
import json

import pytest

from stayfinite.cli import main
from stayfinite.recipes.seq2seq.pairs import read_pairs
from stayfinite.recipes.seq2seq.tables import Columns
from stayfinite.recipes.seq2seq.translating import find_model, load_translator, read_texts, write_table
from strict_schemas import strict
from tiny_translations import byte_model, short_pairs, write_pairs

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = ["--beams", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What a training leaves behind, as far as these commands need it."""
    folder = tmp_path_factory.mktemp("run")
    byte_model(folder / "best", letters=10.0)
    settings = {"normalise": ["subscripts", "spaces"], "prefix": "> ", "max_source_length": 16, "max_target_length": 8}
    (folder / "best" / "translate.json").write_text(json.dumps(settings | {"source": "akk", "target": None}))
    (folder / "run.json").write_text("{}")
    write_pairs(folder / "pairs.csv", short_pairs(12))
    return folder


def test_lines_are_translated_in_their_order_and_a_blank_one_stays_blank(run, tmp_path, capsys):
    lines = ["u\u2082 ninae", "", "a", "a much longer line than all the others here", "u2  ninae"]
    (tmp_path / "new.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    into = tmp_path / "out" / "predictions.csv"
    assert main(["translate", str(run), str(tmp_path / "new.txt"), "-o", str(into), "--batch-size", "2", *QUICK]) == 0
    with into.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["source"] for row in rows] == lines
    assert rows[1]["translation"] == ""
    assert rows[0]["translation"] == rows[4]["translation"] != ""  # normalized as in training
    translator = load_translator(find_model(str(run)), device="cpu")
    alone = [translator.translate([line], beams=1)[0] for line in lines]
    assert [row["translation"] for row in rows] == alone
    assert f"Saved 5 translations to {into}" in capsys.readouterr().out


def test_a_table_keeps_its_columns_and_the_column_of_the_training_is_taken(run, tmp_path):
    (tmp_path / "t.csv").write_text("id,source,akk\n7,not this,ninae\n8,nor this,sipae\n", encoding="utf-8")
    asked = read_texts(tmp_path / "t.csv", None, "akk")
    assert asked.texts == ["ninae", "sipae"]
    write_table(asked, ["x", 'y, "z"'], tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text() == (
        'id,source,akk,translation\n7,not this,ninae,x\n8,nor this,sipae,"y, ""z"""\n'
    )
    assert read_texts(tmp_path / "t.csv", "source", "akk").texts == ["not this", "nor this"]


def test_a_translation_that_the_table_has_already_is_kept_beside_the_new_one(tmp_path):
    for text, names, rows in (
        ("to", "id,akk,translation (given),translation", "7,a-na,to,x"),
        (" ", "id,akk,translation", "7,a-na,x"),
    ):
        (tmp_path / "t.csv").write_text(f"id,akk,translation\n7,a-na,{text}\n", encoding="utf-8")
        write_table(read_texts(tmp_path / "t.csv", "akk"), ["x"], tmp_path / "o.csv")
        assert (tmp_path / "o.csv").read_text(encoding="utf-8") == f"{names}\n{rows}\n"


def test_half_a_character_in_a_table_is_translated_and_scored_as_a_question_mark(run, tmp_path, capsys):
    (tmp_path / "p.jsonl").write_text('{"akk": "a \\ud83d b", "target": "c \\ud83d"}\n', encoding="utf-8")
    assert main(["translate", str(run), str(tmp_path / "p.jsonl"), "--source", "akk", "--json", *QUICK]) == 0
    assert json.loads(capsys.readouterr().out)["source"] == "a ? b"
    into = str(tmp_path / "o.csv")
    assert main(["evaluate", str(run), str(tmp_path / "p.jsonl"), "--json", "-o", into, *QUICK]) == 0
    assert "a ? b,c ?," in (tmp_path / "o.csv").read_text(encoding="utf-8")


def test_json_is_one_object_a_row_and_nothing_else(run, tmp_path, capsys):
    (tmp_path / "new.txt").write_text("a\nb\n")
    assert main(["translate", str(run), str(tmp_path / "new.txt"), "--json", *QUICK]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["source"] for row in rows] == ["a", "b"]
    for row in rows:
        strict("translation").validate(row)


def test_scores_are_printed_and_the_json_is_the_contract(run, tmp_path, capsys):
    into = tmp_path / "o.csv"
    assert main(["evaluate", str(run), str(run / "pairs.csv"), "--json", "-o", str(into), *QUICK]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"schema", "version", "bleu", "chrf", "mean", "rows", "beams"}
    strict("evaluation").validate(found)
    pairs = read_pairs([str(run / "pairs.csv")], Columns())
    assert found["rows"] == len(pairs)
    with into.open(encoding="utf-8", newline="") as file:
        assert [row["target"] for row in csv.DictReader(file)] == [pair.target for pair in pairs]


def test_a_perfect_translation_scores_100(run, monkeypatch, capsys):
    pairs = read_pairs([str(run / "pairs.csv")], Columns())
    answers = {pair.source: f"{pair.target} and some more words" for pair in pairs}
    write_pairs(run / "perfect.csv", [type(pair)(pair.source, answers[pair.source]) for pair in pairs])
    monkeypatch.setattr(
        "stayfinite.recipes.seq2seq.translating.Translator.translate",
        lambda self, sources, **options: [answers[source] for source in sources],
    )
    assert main(["evaluate", str(run), str(run / "perfect.csv"), "--json", *QUICK]) == 0
    assert json.loads(capsys.readouterr().out)["bleu"] == pytest.approx(100)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["translate", "RUN", "nowhere.txt"], "nowhere.txt: no such file"),
        (["translate", "runs/nowhere", "RUN/pairs.csv"], "runs/nowhere: no such directory"),
        (["translate", "RUN", "RUN/pairs.csv", "--source", "nope"], "no column 'nope'"),
        (["translate", "RUN", "RUN/pairs.csv", "--beams", "0"], "--beams 0: expected a number of at least 1"),
        (["translate", "tiny", "RUN/pairs.csv"], "'tiny' has random weights"),
        (["evaluate", "RUN"], "no data to score"),
        (["evaluate", "RUN", "RUN/pairs.csv", "--target", "nope"], "no column 'nope'"),
        (["evaluate", "RUN", "RUN/pairs.csv", "--device", "abacus"], "--device abacus"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_is_wrong(run, capsys, words, expected):
    assert main([word.replace("RUN", str(run)) for word in words]) == 2
    assert expected in capsys.readouterr().err


def test_a_run_without_a_model_yet_says_so(tmp_path, capsys):
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "new.txt").write_text("a\n")
    assert main(["translate", str(tmp_path), str(tmp_path / "new.txt")]) == 2
    assert "no best model yet" in capsys.readouterr().err
