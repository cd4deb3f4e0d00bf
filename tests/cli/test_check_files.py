"""`stayfinite check` and `diff` as a user calls them: answers, exit codes, odd and hostile input."""

import io
import json
import os
from pathlib import Path

import pytest

from command_cost import command_cost
from stayfinite.cli import main

SICK = "model_name_or_path: google/mt5-small\nfp16: true\nlearning_rate: 1e-4\noutput_dir: o\n"


pytestmark = pytest.mark.usefixtures("here")


def test_a_plan_that_works_ends_with_0(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "train.yaml").write_text(SICK.replace("fp16", "bf16"))
    assert main(["check", "train.yaml"]) == 0
    assert "Ready to launch" in capsys.readouterr().out


def test_a_plan_with_a_fault_ends_with_1_and_names_line_and_fix(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "train.yaml").write_text(SICK)
    assert main(["check", "train.yaml"]) == 1
    shown = capsys.readouterr().out
    for part in ("FAIL", "train.yaml:2", "SF102", "bf16=True", "Not ready"):
        assert part in shown


def test_findings_on_one_line_keep_their_own_columns(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "ds.json").write_text(
        '{"fp16": {"enabled": true}, "bf16": {"enabled": true}, "train_batch_size": 30, '
        '"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 4}'
    )
    assert main(["check", "ds.json"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "ds.json:1:22: fp16.enabled" in shown
    assert "ds.json:1:76: train_batch_size 30" in shown


def test_a_number_of_thousands_of_digits_is_not_printed_whole(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "train.py").write_text(f"lr = {'9' * 10_000}\n")
    main(["check", "train.py"])
    assert len(capsys.readouterr().out) < 2_000


def test_json_is_json_and_nothing_else(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "train.yaml").write_text(SICK)
    assert main(["check", "train.yaml", "--json", "--gpu", "t4"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["findings"][0]["cause"]) == ("sick", "fp16-overflow-model-family")
    assert found["banner"]["GPU"].startswith("T4, Turing, 15 GiB")


def wrong_use(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


def test_what_cannot_be_read_is_wrong_use_and_says_why(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty.yaml").write_text(" \n")
    (here / "picture.yaml").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)) * 8)
    (here / "huge.yaml").write_bytes(b"# x\n" * 2_000_000)
    (here / "huge.ipynb").write_bytes(b'{"cells": [' + b" " * 5_000_000)
    (here / "folder").mkdir()
    (here / "folder" / "train.yaml").write_text(SICK)
    assert "empty name" in wrong_use(capsys, "check", "")
    assert "no such file: nowhere.yaml" in wrong_use(capsys, "check", "nowhere.yaml")
    assert "empty.yaml is empty" in wrong_use(capsys, "check", "empty.yaml")
    assert "picture.yaml is not text" in wrong_use(capsys, "check", "picture.yaml")
    assert "is 4 MiB" in wrong_use(capsys, "check", "huge.yaml")
    assert "--clear-output" in wrong_use(capsys, "check", "huge.ipynb")
    assert "folder/train.yaml" in wrong_use(capsys, "check", "folder")
    assert "is a directory" in wrong_use(capsys, "diff", "folder", "empty.yaml")
    assert "did you mean H100" in wrong_use(capsys, "check", "folder/train.yaml", "--gpu", "h10")


def test_a_command_that_only_names_a_missing_script_is_wrong_use(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("python nope.py", "accelerate launch nope.py", "python -u nope.py"):
        assert "no such file: nope.py" in wrong_use(capsys, "check", command)
    assert "no such file: nope.py" in wrong_use(capsys, "diff", "python nope.py", "python nope.py --lr 1")
    assert "no such file: nope.py" in wrong_use(capsys, "check", "python nope.py --fp16 --lr 1e-4")
    assert main(["check", "python $HOME/nope.py"]) == 0


def test_a_log_leads_to_diagnose_and_a_data_file_to_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "train.log").write_text("".join(f"{{'loss': {3 - n / 10}, 'learning_rate': 5e-4}}\n" for n in range(9)))
    (here / "pairs.csv").write_text("source,target\na,b\nc,d\n")
    (here / "chat.jsonl").write_text('{"prompt": "a", "answer": "b"}\n' * 3)
    assert "train.log is a training log\n  fix: stayfinite diagnose train.log" in wrong_use(
        capsys, "check", "train.log"
    )
    assert "fix: stayfinite check --data pairs.csv" in wrong_use(capsys, "check", "pairs.csv")
    assert "fix: stayfinite check --data chat.jsonl" in wrong_use(capsys, "check", "chat.jsonl")


def test_standard_input_is_checked_too(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(SICK))
    assert main(["check", "-"]) == 1
    assert "stdin:2" in capsys.readouterr().out
    assert "--fix needs a file" in wrong_use(capsys, "check", "-", "--fix")


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_pipe_is_refused_and_not_waited_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(here / "pipe.yaml")
    assert "stayfinite check: pipe.yaml is not a regular file" in wrong_use(capsys, "check", "pipe.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [*x]\n",
        "lr: !!python/object/apply:os.system ['touch hurt']\nepochs: 1\n",
        "lr: 1e999\nepochs: .nan\nwarmup_steps: .inf\nmax_steps: 10\n",
        "learning_rate: nan\nbatch_size: -1\nmax_grad_norm: nan\n",
        "{{ template }}: {% if x %}\nlr: 1e-4\n",
        "lr: '\x1b[31mred\x1b[0m'\nepochs: 1\n",
        "? [a, b]\n: 1\nlr: 3\n",
        "lr: " + "9" * 5000 + "\n",
        "fp16: {enabled: {really: yes}}\nbf16: [true]\nlr: {a: 1}\n",
    ],
)
def test_odd_and_hostile_text_is_answered_and_never_executed(
    text: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "odd.yaml").write_text(text)
    (here / "plain.yaml").write_text("lr: 1e-4\n")
    assert main(["check", "odd.yaml", "--gpu", "A100"]) in (0, 1, 2)
    assert main(["diff", "odd.yaml", "plain.yaml"]) in (0, 1, 2)
    assert "\x1b[31m" not in capsys.readouterr().out
    assert not (here / "hurt").exists()


@pytest.mark.parametrize("name", ["odd.py", "odd.ipynb", "odd.json", "odd.toml", "odd.sh", "odd.txt"])
@pytest.mark.parametrize(
    "text", ["(" * 3000, "def f(:\n  lr = 1e-4\n", '{"cells": 3}', "x" * 100_000, "=\n[[[\n", "\\\n" * 500]
)
def test_text_that_is_not_of_its_kind_is_answered(name: str, text: str, here: Path) -> None:
    (here / name).write_text(text)
    assert main(["check", name]) in (0, 1, 2)


BROKEN = {
    "cut.py": ("import torch\ndef f(:\n    pass\n", "cut.py:2", "syntax error: invalid syntax"),
    "half.py": ("lr = 1e-4\ntrain(lr,\n", "half.py:2", "syntax error: '(' was never closed"),
    "bad.yaml": ("lr: 1e-4\na: [1, 2\nb: : x\n", "bad.yaml:3", "invalid YAML"),
    "bad.toml": ("lr = 1\n[a\n", "bad.toml:2", "invalid TOML"),
    "cut.ipynb": ("{bad\n", "cut.ipynb:1", "incomplete JSON"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_its_own_parser_rejects_fails_and_is_not_compared(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, where, problem = BROKEN[name]
    (here / name).write_text(text)
    (here / "good.py").write_text("lr = 1e-4\nsteps = 10\n")
    assert main(["check", name]) == 1
    shown = capsys.readouterr().out
    assert "FAIL file contents" in shown
    assert where in shown
    assert problem in shown
    assert f"{where}: {problem}" in wrong_use(capsys, "diff", name, "good.py")
    assert f"{where}: {problem}" in wrong_use(capsys, "diff", "good.py", name)


@pytest.mark.parametrize(
    "line", ["print 'lr', lr", "except OSError, problem:", "type Pair = tuple[int, int]", "def f[T](x: T) -> T:"]
)
def test_the_syntax_of_another_version_of_python_is_no_error(line: str, here: Path) -> None:
    body = {"except": f"try:\n    go()\n{line}\n    pass\n", "def": f"{line}\n    return x\n"}
    (here / "old.py").write_text("lr = 1e-4\n" + body.get(line.partition(" ")[0], f"{line}\n"))
    assert main(["check", "old.py"]) == 0


def test_diff_shows_both_sides_and_what_it_means(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.yaml").write_text("lr: 1e-4\nfp16: false\nlogs: x\n")
    (here / "b.yaml").write_text("lr: 3e-4\nfp16: true\n")
    assert main(["diff", "a.yaml", "b.yaml"]) == 1
    shown = capsys.readouterr().out
    assert shown.index("fp16 ") < shown.index("0.0003")
    assert "65,504" in shown
    assert "1 on one side only (--all shows them)" in shown
    assert "2 affect stability, 0 others, 1 on one side only" in shown
    (here / "c.yaml").write_text("lr: 3e-4\nfp16: false\nlogs: y\n")
    assert main(["diff", "a.yaml", "c.yaml"]) == 1
    assert "1 affects stability, 1 other, 0 on one side only; 1 is equal." in capsys.readouterr().out
    assert main(["diff", "a.yaml", "a.yaml"]) == 0
    assert "Same" in capsys.readouterr().out
    assert main(["diff", "a.yaml", "b.yaml", "--json"]) == 1
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["training"]] == ["fp16", "lr"]


def test_checking_takes_about_a_second_at_most_and_no_torch(here: Path) -> None:
    (here / "train.yaml").write_text(SICK.replace("fp16", "bf16"))
    loaded, starts = command_cost(["check", "train.yaml"], modules=["torch", "transformers", "numpy"], times=3)
    assert loaded == []
    assert starts < 100
