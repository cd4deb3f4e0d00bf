"""The command line: exit codes and words."""

import os
import shutil
import subprocess
import sys

import pytest
import torch

from child_processes import environment
from quick_ones import quick_ones
from stayfinite.cli import main
from stayfinite.cli.ending import exit_code


def test_without_a_command_it_explains_itself_and_ends_with_2(capsys):
    assert main([]) == 2
    assert "usage: stayfinite COMMAND" in capsys.readouterr().err


def test_help_and_version_end_with_0(capsys):
    for asked in (["--help"], ["help"]):
        assert main(asked) == 0
        assert "demo" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("stayfinite 0.")
    assert main(["-V"]) == 0
    assert capsys.readouterr().out.startswith("stayfinite 0.")


def test_quiet_leaves_the_exit_code_and_errors(capsys):
    assert main(["-q", "rules"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["-q", "check", "nowhere.yaml"]) == 2
    assert "no such file: nowhere.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rules", "--width", "9"], "--width takes a number of columns, at least 20; got '9'"),
        (["--width"], "--width takes a number of columns, at least 20; got ''"),
        (["rules", "--color=pink"], "--color takes auto, always or never; got 'pink'"),
    ],
)
def test_a_wrong_width_or_color_is_refused(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_words_of_another_program_stay_its_own(capfd):
    script = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
    assert main(["--color", "never", "run", "--", *script, "--width", "3", "--color=pink"]) == 0
    assert "['--width', '3', '--color=pink']" in capfd.readouterr().out


def test_verbose_adds_the_traceback_of_an_error(capsys):
    assert main(["-v", "check", "nowhere.yaml"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert main(["check", "nowhere.yaml"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    quick_ones([["check", "config.yaml"], ["check", "--help"], ["explain", "SF101"]], ["check", "config.yaml"]),
    ids=" ".join,
)
def test_no_color_holds_on_a_terminal(words, tmp_path):
    (tmp_path / "config.yaml").write_text("learning_rate: 1.0e-4\nfp16: true\nbf16: true\n")
    environ = environment() | {"TERM": "xterm-256color"}
    environ.pop("NO_COLOR", None)
    shown = [on_a_terminal(words, tmp_path, environ), on_a_terminal(words, tmp_path, environ | {"NO_COLOR": "1"})]
    coloured = ["\x1b[3" in each or "\x1b[1;3" in each for each in shown]
    assert coloured == [True, False]


def on_a_terminal(words, folder, environ):
    import pty

    main_end, its_end = pty.openpty()
    command = [sys.executable, "-m", "stayfinite", *words]
    with subprocess.Popen(command, stdout=its_end, stderr=its_end, cwd=folder, env=environ) as job:
        os.close(its_end)
        shown = b""
        try:
            while piece := os.read(main_end, 65536):
                shown += piece
        except OSError:
            pass  # the other end was closed: that is how a terminal says it
        job.wait()
    os.close(main_end)
    return shown.decode()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_commands_flags_and_files(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    (tmp_path / "done.sh").write_text(
        capsys.readouterr().out
        + 'try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _stayfinite; echo "${COMPREPLY[*]}"; }\n'
        + "try stayfinite ch; try stayfinite check --form; try stayfinite train gr; try stayfinite check trai\n"
    )
    done = subprocess.run(["bash", "done.sh"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines(), done.stderr) == (["check", "--format", "grpo", ""], "")


def test_an_unknown_command_is_answered_with_the_one_that_was_meant(capsys):
    assert main(["dmeo"]) == 2
    assert "no command 'dmeo'. Did you mean 'demo'?" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["demo", "--stepz", "3"], ["demo", "--steps", "many"]])
def test_a_wrong_flag_ends_with_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


@pytest.mark.parametrize(
    "command", [["report"], ["plot"], ["evaluate"], ["translate"], ["sft", "test"], ["sft", "datagen"]], ids=" ".join
)
def test_the_file_that_a_command_writes_is_named_alike_everywhere(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out.replace("│", " ").split()
    assert {"-o", "--out", "--output"} <= set(shown)


@pytest.mark.parametrize(
    "words",
    quick_ones(
        [["train", "translate"], ["train", "mmdit"], ["generate", "run", "--prompt", "x"]], ["train", "translate"]
    ),
)
def test_a_package_of_an_extra_that_is_missing_is_told_with_its_pip_line(words):
    job = "import sys; sys.modules['numpy'] = sys.modules['transformers'] = None; import stayfinite.cli as cli; "
    done = subprocess.run(
        [sys.executable, "-c", f"{job}sys.exit(cli.main({words!r}))"],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "which is not installed\n  fix: pip install 'stayfinite[recipes]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_of_no_extra_that_is_missing_is_a_fault_and_stays_one():
    def work() -> int:
        raise ModuleNotFoundError("No module named 'stayfinite.nowhere'", name="stayfinite.nowhere")

    with pytest.raises(ModuleNotFoundError):
        exit_code("train", work)


def test_a_full_card_is_told_with_what_to_do(capsys):
    def work() -> int:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.14 GiB.\nmore of it")

    assert exit_code("train translate", work) == 2
    told = capsys.readouterr().err
    assert told.startswith(
        "stayfinite train translate: CUDA out of memory. Tried to allocate 4.14 GiB.\n  fix: lower --batch-size"
    )


def test_another_error_at_run_time_is_a_fault_and_stays_one():
    def work() -> int:
        raise RuntimeError("out of memory, says somebody else")

    with pytest.raises(RuntimeError):
        exit_code("train", work)


def test_a_number_of_steps_that_cannot_be_ends_with_2(capsys):
    assert main(["demo", "--steps", "0"]) == 2
    assert "expected at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "diagnose", "--help"])
def test_a_reader_who_has_seen_enough_is_no_finding(tmp_path, command):
    (tmp_path / "config.yaml").write_text("learning_rate: 1.0e-4\nbatch_size: 8\nfp16: false\n")
    (tmp_path / "train.log").write_text("".join(f"step {n} loss {2 - n / 100:.3f}\n" for n in range(100)))
    read, write = os.pipe()
    os.close(read)  # the reader is gone before the first line
    try:
        pattern = "*.yaml" if command == "check" else "*"
        words = [sys.executable, "-m", "stayfinite", command, *map(str, tmp_path.glob(pattern))]
        done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, env=environment(), check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
