"""``stayfinite doctor``: somebody's script as it is, guarded from outside; and nothing stays patched."""

import json
import subprocess
import sys

import pytest

from doctored_scripts import ACCELERATE, LIGHTNING, TRANSFORMERS
from stayfinite.cli.doctor import run


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "train.py"
        path.write_text(text)
        return str(path)

    return write


@pytest.fixture(autouse=True)
def _nothing_stays():
    import accelerate
    import transformers

    watched = [(transformers.Trainer, "__init__"), (accelerate.Accelerator, "prepare")]
    before = [vars(kind)[name] for kind, name in watched], list(sys.meta_path), sys.argv, list(sys.path), sys.excepthook
    yield
    after = [vars(kind)[name] for kind, name in watched], list(sys.meta_path), sys.argv, list(sys.path), sys.excepthook
    assert before == after


def test_a_trainer_script_is_guarded_diagnosed_and_left_as_it_was(tmp_path, script, capsys):
    path = script(TRANSFORMERS)
    code = run(["--guard", "--json", path, "--output", str(tmp_path / "out"), "--bad-row", "51"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert code == 1
    assert found["findings"][0]["cause"] == "bad-data-row"
    assert (found["exit_code"], found["attached"]) == (0, 1)
    assert found["runs"] == [str(tmp_path / "out" / "stayfinite")]
    assert "trained" in said.err
    assert "hooked into Seq2SeqTrainer, after transformers Trainer.__init__" in said.err
    assert "hooks removed" in said.err


def test_a_healthy_script_is_clean(tmp_path, script, capsys):
    assert run([script(TRANSFORMERS), "--output", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert "trained" in said.out
    assert "healthy" in said.out.lower()


def test_a_script_that_crashes_is_diagnosed_with_its_own_traceback_and_code(tmp_path, script, capsys):
    words = ["--output", str(tmp_path / "out"), "--fail-at", "100", "--bad-row", "51"]
    code = run(["--guard", script(TRANSFORMERS), *words])
    said = capsys.readouterr()
    assert code == 1
    assert "OSError: row 100 cannot be read" in said.err
    assert "runpy" not in said.err
    assert "bad-data-row" in said.out
    assert (tmp_path / "out" / "stayfinite" / "steps.jsonl").exists()


def test_a_script_that_has_the_line_already_keeps_its_own(tmp_path, script, capsys):
    with_line = TRANSFORMERS.replace(
        "train_dataset=Rows())", "train_dataset=Rows(), callbacks=[StayFinite()])"
    ).replace("import torch\n", "import torch\nfrom stayfinite.integrations.transformers import StayFinite\n", 1)
    run(["--json", script(with_line), "--output", str(tmp_path / "out")])
    said = capsys.readouterr()
    assert "already has a StayFinite callback" in said.err
    assert not (tmp_path / "out" / "stayfinite-2").exists()


def test_without_the_flag_every_step_is_taken(tmp_path, script, capsys):
    code = run(["--json", script(TRANSFORMERS), "--output", str(tmp_path / "out"), "--bad-row", "51"])
    found = json.loads(capsys.readouterr().out)
    assert code == 1
    assert found["findings"][0]["cause"] == "bad-data-row"
    steps = (tmp_path / "out" / "stayfinite" / "steps.jsonl").read_text()
    assert '"veto"' not in steps


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_script_is_guarded(tmp_path, script, capsys):
    pytest.importorskip("lightning")
    code = run(["--guard", "--json", script(LIGHTNING), str(tmp_path / "out")])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["attached"]) == (1, 1)
    assert found["findings"][0]["cause"] == "bad-data-row"


def test_an_accelerate_script_is_guarded(tmp_path, script, capsys):
    code = run(["--guard", "--json", script(ACCELERATE), str(tmp_path / "out")])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert "finite: True" in said.err
    assert (code, found["attached"]) == (1, 1)


@pytest.mark.parametrize("own", [0, 3])
def test_a_program_that_does_not_train_is_told_so_in_one_sentence_and_keeps_its_exit_code(script, capsys, own):
    assert run(["--json", script(f"import sys\nprint('nothing')\nsys.exit({own})\n")]) == own
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] != "sick"
    assert "before the first step" in said["ended"] if own else "without training" in said["ended"]


def test_a_script_that_is_not_there_is_wrong_use(tmp_path, capsys):
    assert run([str(tmp_path / "nowhere.py")]) == 2
    assert "no such file" in capsys.readouterr().err


@pytest.mark.slow
def test_in_a_process_of_its_own_frameworks_are_met_when_the_script_imports_them(tmp_path, script):
    command = "import sys; from stayfinite.cli.doctor import run; sys.exit(run(sys.argv[1:]))"
    words = ["--json", script(TRANSFORMERS), "--output", str(tmp_path / "out"), "--bad-row", "51"]
    ended = subprocess.run([sys.executable, "-c", command, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr[-3000:]
    assert json.loads(ended.stdout)["findings"][0]["cause"] == "bad-data-row"
