"""``stayfinite doctor`` on plain programs: what it prints, its exit codes, patches, and wrong use in one sentence."""

import json

import pytest

import warm
from plain_programs import HEALTHY, ROOT_OF_ZERO, changed
from stayfinite.cli.doctor import run
from strict_schemas import strict


@pytest.fixture
def script(tmp_path):
    def write(text, name="train.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_a_bad_step_of_a_plain_loop_is_explained_with_cause_place_and_fix(script, capsys):
    assert run([script(ROOT_OF_ZERO)]) == 1
    said = capsys.readouterr().out
    assert "SF601 loss-formula-singularity at train.py:" in said
    assert "(proved by re-run)" in said
    assert "fix  " in said


def test_a_healthy_program_is_healthy_in_one_line(script, capsys):
    assert run([script(HEALTHY)]) == 0
    assert "healthy  36 steps with Adam; loss" in capsys.readouterr().out


def test_shuffled_labels_are_not_called_healthy(script, capsys):
    text = changed(HEALTHY, ("(X[:, 0] > 0).long()", "torch.randint(0, 2, (256,))"), ("range(3)", "range(6)"))
    assert run([script(text)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "unknown 72 steps with Adam" in said
    assert "the loss stays at ln 2, chance level for 2 classes." in said


def test_its_own_arguments_and_exit_code_belong_to_the_program(script, capsys):
    text = HEALTHY + "\nimport argparse, sys\np = argparse.ArgumentParser()\np.add_argument('--end', type=int)\n"
    text += "sys.exit(p.parse_args().end)\n"
    assert run(["--json", script(text), "--end", "7"]) == 7
    said = json.loads(capsys.readouterr().out)
    strict("doctor").validate(said)
    assert said["ended"] == "the program ended with exit code 7 at step 36"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--guard"], "--guard was passed to {0}. For doctor, put it first: stayfinite doctor --guard {0}"),
        (
            ["--patch", "fix.diff", "--lr", "1", "--json"],
            (
                "--patch and --json were passed to {0}. For doctor, put them first: "
                "stayfinite doctor --patch fix.diff --json {0}"
            ),
        ),
    ],
)
def test_a_flag_of_the_doctor_behind_the_program_is_passed_on_and_told(script, capsys, words, line):
    path = script("import sys\nprint(sys.argv[1:])\n")
    run([path, *words])
    heard = capsys.readouterr()
    assert str(words) in heard.out
    assert f"stayfinite doctor: {line.format(path)}" in heard.err.splitlines()


def test_a_flag_that_the_program_has_itself_is_not_told(script, capsys):
    text = HEALTHY + "\nimport argparse\np = argparse.ArgumentParser()\np.add_argument('--json')\np.parse_args()\n"
    assert run([script(text), "--json", "out.json"]) == 0
    assert "was passed to" not in capsys.readouterr().err


def test_a_traceback_stays_the_program_s_own(script, capsys):
    text = changed(HEALTHY, ("loss = criterion(out, y)", "loss = criterion(out, y).detach()"))
    assert run(["--json", script(text)]) == 1
    said = capsys.readouterr()
    assert "does not require grad" in said.err
    assert "stayfinite/doctor" not in said.err
    assert "scripts.py" not in said.err
    found = json.loads(said.out)["findings"][0]
    assert (found["cause"], found["known_by"]) == ("detached-loss", "read from text")


def test_strict_stops_at_the_first_bad_step(script, capsys):
    assert run(["--strict", "--json", script(ROOT_OF_ZERO)]) == 1
    said = json.loads(capsys.readouterr().out)
    strict("doctor").validate(said)
    assert said["ended"] == "stopped at its first bad step, 7"
    assert said["steps"] == 7


def test_a_program_that_hangs_is_ended_when_its_time_is_over(script, capsys):
    assert run(["--minutes", "0.02", "--json", script("import time\nimport torch\ntime.sleep(60)\n")]) == 0
    assert "no backward pass was seen" in json.loads(capsys.readouterr().out)["ended"]


def test_a_notebook_is_run_without_its_magics(script, capsys):
    code = {"cell_type": "code", "source": "%matplotlib inline\n" + HEALTHY}
    cells = [code, {"cell_type": "markdown", "source": "#"}]
    assert run(["--json", script(json.dumps({"cells": cells}), "train.ipynb")]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 36


def test_a_module_is_run_as_python_would(tmp_path, monkeypatch, capsys):
    package = tmp_path / "trains"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "loop.py").write_text(ROOT_OF_ZERO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run(["--json", "-m", "trains.loop"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["cause"] == "loss-formula-singularity"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere.py"], "no such file: 'nowhere.py'"),
        (["-m", "no.such.module"], "no module 'no.such.module'"),
        (["--apply", "train.py"], "--apply needs --patch FILE: the diff is written first"),
        (["--minutes", "0", "train.py"], "--minutes must be above 0, not 0"),
    ],
)
def test_wrong_use_is_one_plain_sentence(capsys, words, sentence):
    assert run(words) == 2
    assert capsys.readouterr().err.strip() == f"stayfinite doctor: {sentence}"


@pytest.mark.slow
def test_a_patch_is_written_tried_and_applied_only_when_asked(tmp_path, script, capsys):
    faulty = changed(HEALTHY, ("        optimizer.zero_grad()\n", ""))
    path, diff = script(faulty), tmp_path / "fix.diff"
    assert run(["--json", "--patch", str(diff), path]) == 1
    said = json.loads(capsys.readouterr().out)
    strict("doctor").validate(said)
    assert said["patch"]["verified"]
    assert "+        optimizer.zero_grad()" in diff.read_text()
    assert (tmp_path / "train.py").read_text() == faulty
    run(["--json", "--patch", str(diff), "--apply", path])
    assert "optimizer.zero_grad()" in (tmp_path / "train.py").read_text()


def test_attach_tells_at_the_end_of_a_program(tmp_path, script):
    text = "import stayfinite\nstayfinite.attach(run_dir='out')\n" + changed(
        HEALTHY, ("        optimizer.zero_grad()\n", "")
    )
    ended = warm.run([script(text)], cwd=tmp_path)
    assert ended.returncode == 0
    assert "no-zero-grad" in ended.stderr
    assert json.loads((tmp_path / "out" / "doctor.json").read_text())["verdict"] == "sick"


def test_a_config_is_no_program(script, capsys):
    assert run([script("fp16: true\n", "train.yaml")]) == 2
    assert "train.yaml is not a Python program; try stayfinite check" in capsys.readouterr().err
