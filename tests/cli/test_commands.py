"""The command line: exit codes and words."""

import os
import subprocess
import sys

import pytest
import torch

from child_processes import environment
from stayfinite.cli import main
from stayfinite.cli.ending import exit_code


def test_without_a_command_it_explains_itself_and_ends_with_2(capsys):
    assert main([]) == 2
    assert "usage: stayfinite COMMAND" in capsys.readouterr().err


def test_help_and_version_end_with_0(capsys):
    assert main(["--help"]) == 0
    assert "demo" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("stayfinite 0.")


def test_an_unknown_command_is_answered_with_the_one_that_was_meant(capsys):
    assert main(["dmeo"]) == 2
    assert "there is no command 'dmeo'. Did you mean 'demo'?" in capsys.readouterr().err


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


@pytest.mark.parametrize("words", [["train", "translate"], ["train", "mmdit"], ["generate", "run", "--prompt", "x"]])
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
        "stayfinite train translate: CUDA out of memory. Tried to allocate 4.14 GiB.\n  fix: fewer rows"
    )


def test_another_error_at_run_time_is_a_fault_and_stays_one():
    def work() -> int:
        raise RuntimeError("out of memory, says somebody else")

    with pytest.raises(RuntimeError):
        exit_code("train", work)


def test_a_number_of_steps_that_cannot_be_ends_with_2(capsys):
    assert main(["demo", "--steps", "0"]) == 2
    assert "expected at least 1" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["check", "diagnose"])
def test_a_reader_who_has_seen_enough_is_no_finding(tmp_path, command):
    (tmp_path / "config.yaml").write_text("learning_rate: 1.0e-4\nbatch_size: 8\nfp16: false\n")
    (tmp_path / "train.log").write_text("".join(f"step {n} loss {2 - n / 100:.3f}\n" for n in range(100)))
    read, write = os.pipe()
    os.close(read)  # the reader is gone before the first line
    try:
        words = [sys.executable, "-m", "stayfinite", command, *map(str, tmp_path.iterdir())]
        done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, env=environment(), check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")
