"""`stayfinite run` with real processes: it restarts a crash, leaves a stop alone, passes signals on, and gives up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from child_processes import environment, finish, torchrun
from cli import supervised_job

RUN = [sys.executable, "-m", "stayfinite", "run"]


def python(body: str) -> list[str]:
    return [sys.executable, "-c", body]


def attempts(place: Path, rank: int = 0) -> list[int]:
    return [int(line) for line in (place / f"attempts-{rank}").read_text().splitlines()]


COUNTING = (
    "import os, pathlib, sys, time; p = pathlib.Path({log!r}); p.open('a').write('x'); n = len(p.read_text()); {then}"
)


@pytest.mark.parametrize(
    ("then", "code", "started", "said"),
    [
        ("sys.exit(0)", 0, 1, ""),
        ("sys.exit(3 if n < 2 else 0)", 0, 2, "Restart 1 of 2"),
        ("time.sleep(1.0); sys.exit(3)", 3, 3, "attempt 3 ended with 3. Gave up after 2 restarts."),
        ("sys.exit(3)", 3, 2, "attempt 2 ended with 3 within a second, like the one before. Gave up"),
        ("os.kill(os.getpid(), 9)", 137, 3, "137 (SIGKILL)"),
        ("sys.exit(87)", 87, 1, "No restart"),
    ],
)
def test_a_crash_is_tried_again_within_its_restarts_and_a_stop_is_not(tmp_path, then, code, started, said):
    log = tmp_path / "log"
    body = COUNTING.format(log=str(log), then=then)
    done = finish([*RUN, "--restarts", "2", "--pause", "0", "--", *python(body)])
    assert (done.returncode, len(log.read_text())) == (code, started)
    assert said in done.stderr


@pytest.mark.slow
def test_a_stopped_training_is_not_restarted_though_torchrun_ends_with_1(tmp_path):
    done = finish([*RUN, "--pause", "0", "--", *torchrun(2), supervised_job.__file__, "stop", tmp_path])
    assert done.returncode == 87, done.stderr[-2000:]
    assert attempts(tmp_path) == [0]
    assert "No restart" in done.stderr
    assert str(tmp_path) in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_training_that_loses_a_rank_goes_on_from_its_checkpoint(tmp_path):
    done = finish([*RUN, "--pause", "0", "--", *torchrun(2), supervised_job.__file__, "lose", tmp_path])
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = attempts(tmp_path)
    assert first == 0 < second
    assert "Restart 1 of 5" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_nothing_is_started_again(tmp_path, number):
    ready, heard = tmp_path / "ready", tmp_path / "heard"
    body = (
        "import pathlib, signal, sys, time\n"
        f"def end(n, f): pathlib.Path({str(heard)!r}).open('a').write(f'{{n}} '); sys.exit(9)\n"
        f"signal.signal({int(number)}, end)\n"
        f"pathlib.Path({str(ready)!r}).open('a').write('x')\ntime.sleep(60)\n"
    )
    with subprocess.Popen([*RUN, "--pause", "0", "--", *python(body)], env=environment()) as supervisor:
        while not (ready.exists() and ready.read_text()):
            time.sleep(0.05)
        supervisor.send_signal(number)
        assert supervisor.wait(timeout=30) == 128 + number
    assert heard.read_text().split() == [str(int(number))]
    assert ready.read_text() == "x"


def test_what_outlives_its_launcher_is_ended_before_the_restart(tmp_path):
    pids = tmp_path / "pids"
    worker = (
        f"import os, pathlib, time; pathlib.Path({str(pids)!r}).open('a').write(f'{{os.getpid()}} '); time.sleep(60)"
    )
    body = (
        "import os, pathlib, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {worker!r}], start_new_session=True, stdout=-3, stderr=-3)\n"
        f"p = pathlib.Path({str(pids)!r})\n"
        "while not p.exists() or not p.read_text().endswith(' '): time.sleep(0.02)\n"
        "sys.exit(0 if len(p.read_text().split()) > 1 else 1)\n"
    )
    done = finish([*RUN, "--pause", "0", "--", *python(body)])
    first, *others = map(int, pids.read_text().split())
    try:
        assert "Restart 1" in done.stderr
        assert not psutil.pid_exists(first) or psutil.Process(first).status() == psutil.STATUS_ZOMBIE
    finally:
        for pid in others:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("words", [[], ["--restarts", "-1", "--", "true"], ["--pause", "-1", "--", "true"], ["--"]])
def test_wrong_use_ends_with_2(words):
    assert finish([*RUN, *words]).returncode == 2


def test_a_command_that_is_not_there_ends_with_127():
    done = finish([*RUN, "--", "no-such-command"])
    assert done.returncode == 127
    assert "cannot run no-such-command" in done.stderr
