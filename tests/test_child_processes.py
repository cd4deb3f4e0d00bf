"""A process that does not end explains itself, and leaves nobody behind."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import warm
from child_processes import environment, finish

PARENT = """
import subprocess, sys
print("the parent has begun", flush=True)
subprocess.run([sys.executable, sys.argv[1], sys.argv[2]])
"""
CHILD = """
import os, pathlib, sys, time

def wait_for_nobody():
    pathlib.Path(sys.argv[1], "part.txt").write_text(f"written aside by {os.getpid()}")
    pathlib.Path(sys.argv[1], "part.txt").rename(pathlib.Path(sys.argv[1], "log.txt"))
    time.sleep(600)

print("the child has begun")
print("and has a worry", file=sys.stderr)
wait_for_nobody()
"""


def test_what_was_written_and_where_it_stood_is_in_the_failure_and_nobody_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {"parent": PARENT, "child": CHILD}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (logs := tmp_path / "logs").mkdir()
    communicate = subprocess.Popen.communicate

    def once_it_stands_still(process: subprocess.Popen[str], timeout: float | None = None) -> tuple[str, str]:
        # Its time begins when the child has come to where it waits, however long a busy machine took to start it.
        while not (logs / "log.txt").exists():
            time.sleep(0.01)
        return communicate(process, timeout=timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", once_it_stands_still)
    with pytest.raises(pytest.fail.Exception) as failed:
        finish([sys.executable, tmp_path / "parent.py", tmp_path / "child.py", logs], timeout=0.5, logs=logs)
    told = str(failed.value)
    for part in ("did not end in 0.5 s", "the parent has begun", "the child has begun", "and has a worry",
                 "in wait_for_nobody", "log.txt", "written aside"):  # fmt: skip
        assert part in told
    assert not psutil.pid_exists(int((logs / "log.txt").read_text().split()[-1]))


def test_one_that_ends_is_told_of_as_it_ended() -> None:
    ended = finish([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"])
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "out\n", "err\n")


def test_one_that_begins_with_torch_loaded_is_otherwise_like_any(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import atexit, os, sys\nassert 'torch' in sys.modules and __name__ == '__main__'\n"
        "atexit.register(print, 'the end')\nprint(sys.argv[1:], os.environ['MINE'], os.getcwd())\n"
        "raise KeyError('it')\n"
    )
    ended = warm.run(["program.py", "a", "b c"], env=environment(MINE="x"), cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, f"['a', 'b c'] x {tmp_path}\nthe end\n")
    assert ended.stderr.endswith("KeyError: 'it'\n")
    with warm.Process(["-c", "import time; time.sleep(600)"]) as process:
        assert process.poll() is None
        psutil.Process(process.pid).terminate()
        assert process.wait() == -15
