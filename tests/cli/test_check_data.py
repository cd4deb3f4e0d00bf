"""`stayfinite check --data` as a person or a launch script meets it."""

import json
import random
import subprocess
import sys
import time

import pytest

from stayfinite.cli.check import run


@pytest.fixture
def pairs(tmp_path):
    rng = random.Random(0)
    rows = [f"{rng.random()} is the source number {n},{rng.random()} is its target" for n in range(200)]
    path = tmp_path / "pairs.csv"
    path.write_text("source,target\n" + "\n".join(rows) + "\n")
    return path


def test_good_data_exits_0_and_says_so(pairs, capsys):
    assert run(["--data", str(pairs), "--tokenizer", "bytes", "--max-length", "256"]) == 0
    said = capsys.readouterr().out
    assert "Ready to launch" in said
    assert "source = source, target = target; guessed" in said


def test_a_bad_row_exits_1_and_is_named(pairs, capsys):
    pairs.write_text(pairs.read_text() + "only a source,\n")
    assert run(["--data", str(pairs)]) == 1
    assert "pairs.csv:202: target is missing or empty" in " ".join(capsys.readouterr().out.split())


def test_json_is_one_object_with_tables(pairs, capsys):
    pairs.write_text(pairs.read_text() + "a \ufffd b \x00 c and so on,d\n")
    assert run(["--data", str(pairs), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["verdict"] == "sick"
    assert [finding["cause"] for finding in answer["findings"]] == ["corrupt-encoding"]
    assert {"Lengths", "Characters"} <= {table["title"] for table in answer["tables"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nosuch.csv"], "no such file: nosuch.csv"),
        (["--data", "{pairs}", "--source", "sorce"], "no column 'sorce'; did you mean source?"),
        (["--data", "{pairs}", "--tokenizer", "nobody/nothing"], "nothing is downloaded"),
        (["--data", "{pairs}", "--max-length", "0"], "expected a number of tokens above 0"),
    ],
)
def test_wrong_use_exits_2_with_one_sentence_and_what_to_do(pairs, capsys, arguments, message):
    assert run([argument.format(pairs=pairs) for argument in arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_identifier_of_thousands_of_digits_is_read(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("id,text\n" + f"{'7' * 5_000},a text\n" * 3)
    assert run(["--data", str(tmp_path / "rows.csv"), "--id", "id"]) in (0, 1)
    assert "3 rows" in capsys.readouterr().out


def test_tens_of_thousands_of_columns_are_read_at_once(tmp_path, capsys):
    names = [f"c{column}" for column in range(40_000)]
    (tmp_path / "wide.csv").write_text(f"{','.join(names)}\n{','.join('1' for _ in names)}\n")
    begun = time.process_time()
    assert run(["--data", str(tmp_path / "wide.csv")]) == 0
    assert time.process_time() - begun < 20.0  # a look through all names for each took minutes
    assert run(["--data", str(tmp_path / "wide.csv"), "--source", "nosuch"]) == 2
    assert "and 39980 more" in capsys.readouterr().err


def test_looking_at_data_loads_no_torch(pairs):
    code = "import sys; from stayfinite.cli.check import run; run(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    command = [sys.executable, "-c", code, "--data", str(pairs), "--tokenizer", "bytes"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
