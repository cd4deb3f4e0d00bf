"""`stayfinite watch` as people and scripts call it."""

import json
import math
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from live_runs import NAN, WrittenRun
from stayfinite.cli.watch import run

# A shell lets what it starts in the background ignore ctrl-C, and children inherit that; a person's terminal does not.
LISTENING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
START = [
    sys.executable,
    "-c",
    LISTENING + "import sys; from stayfinite.cli.watch import run; sys.exit(run(sys.argv[1:]))",
]


@pytest.fixture
def healthy(tmp_path):
    written = WrittenRun(tmp_path / "first", steps=100)
    written.accept(30)
    return written


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a run directory or a log"),
        (["x", "--poll", "0"], "--poll 0.0: expected seconds above 0"),
        (["x", "--poll", "nan"], "expected seconds above 0"),
        (["x", "--steps", "0"], "--steps 0: expected at least 1"),
        (["x", "--web", "--port", "70000"], "expected 0 to 65535"),
        (["x", "--web", "--once"], "stayfinite report"),
        (["not-there", "--once"], "no such file or directory: not-there"),
        (["x", "--config", "not-there.yaml"], "not-there.yaml"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_is_expected(words, said, capsys):
    assert run(words) == 2
    assert said in capsys.readouterr().err


def test_a_log_in_the_directory_of_a_run_is_judged_with_the_run_and_that_is_said(healthy, capsys):
    healthy.refuse()
    healthy.accept(120)
    log = healthy.directory / "train.log"
    log.write_text("".join(f"step {step} loss {'nan' if step == 31 else 2.0}\n" for step in range(1, 151)))
    assert run([str(log), "--once"]) == 0
    shown = capsys.readouterr()
    assert shown.err == (f"stayfinite watch: {log} belongs to {healthy.directory}, which is already watched\n")
    assert "first: healthy" in shown.out


@pytest.mark.parametrize("content", [None, "", "nothing that is a log\n"])
def test_what_holds_no_run_ends_with_2(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "train.log").write_text(content)
    assert run([str(tmp_path), "--once"]) == 2
    assert "no steps or measurements found" in capsys.readouterr().err


def test_what_is_no_text_is_refused_as_by_diagnose(tmp_path, capsys):
    (tmp_path / "train.log").write_bytes(bytes(range(256)) * 500)
    assert run([str(tmp_path / "train.log"), "--once"]) == 2
    assert "train.log: not text" in capsys.readouterr().err


def test_a_run_that_was_only_launched_is_no_wrong_use(tmp_path, capsys):
    WrittenRun(tmp_path / "first")
    assert run([str(tmp_path / "first"), "--once"]) == 0
    assert "first: unknown: no step yet" in capsys.readouterr().out


def test_once_tells_how_a_run_stands_in_a_line_without_escape_codes(healthy, capsys):
    assert run([str(healthy.directory), "--once"]) == 0
    out = capsys.readouterr().out
    assert "first: healthy: no problem in 30 steps | step 30 of 100 (30%), loss" in out
    assert "\x1b" not in out


def test_once_as_json_is_one_object_with_the_worst_health(healthy, tmp_path, capsys):
    sick = WrittenRun(tmp_path / "second")
    sick.accept(20)
    sick.accept(1, loss=NAN)
    assert run([str(healthy.directory), str(sick.directory), "--once", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["health"] == "critical"
    assert [(each["name"], each["health"]) for each in told["runs"]] == [("first", "healthy"), ("second", "critical")]
    assert told["runs"][1]["loss"] == "nan"


def test_a_directory_of_runs_is_all_of_them(healthy, tmp_path, capsys):
    WrittenRun(tmp_path / "second").accept(5)
    assert run([str(tmp_path), "--once", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["runs"]] == ["first", "second"]


def test_it_leaves_by_itself_when_the_runs_have_ended(healthy, capsys):
    healthy.event("closed", reason="the guard is closed")
    assert run([str(healthy.directory), "--poll", "0.01"]) == 0
    assert "ended" in capsys.readouterr().out


def test_a_directory_of_runs_is_watched_on_for_runs_that_begin_later(healthy, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("stayfinite.diagnosis.watching.FIND_AGAIN", 0.0)
    monkeypatch.setattr("stayfinite.diagnosis.watching.FIND_SHARE", math.inf)
    healthy.event("closed", reason="the guard is closed")
    looks = iter([lambda: None, lambda: WrittenRun(tmp_path / "later").accept(5), lambda: None, interrupt])
    monkeypatch.setattr("stayfinite.cli.watch.time.sleep", lambda _: next(looks)())
    assert run([str(tmp_path), "--json"]) == 0
    told = [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()]
    assert (told[0], told[-1]) == ("first", "later")


def interrupt():
    raise KeyboardInterrupt


def test_the_last_word_is_on_all_of_the_run_however_late_it_was_read(healthy, capsys, monkeypatch):
    monkeypatch.setattr("stayfinite.readers.runs.directory.BLOCK", 1000)  # so that one look is not enough
    healthy.accept(50)
    healthy.accept(1, loss=NAN)
    healthy.event("closed", reason="the guard is closed")
    assert run([str(healthy.directory), "--poll", "0.01", "--json"]) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["step"], last["health"], last["ended"]) == (81, "critical", "closed")


def test_stop_leaves_at_the_first_sick_run(healthy, capsys):
    healthy.refuse(4)
    assert run([str(healthy.directory), "--poll", "0.01", "--stop", "--json"]) == 1
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["health"] == "sick"


def test_a_pipe_gets_a_line_for_a_veto_soon_after_it_happened(healthy):
    watch = subprocess.Popen([*START, str(healthy.directory), "--poll", "0.05"], stdout=subprocess.PIPE, text=True)
    lines = iter(watch.stdout.readline, "")
    assert any("first: healthy" in line for line in lines)
    healthy.refuse(reason="loss is nan in row 3")
    # The step and its event are two lines in two files: a look between them tells of the one first, or of the other.
    told = "".join(sorted(next(lines) for _ in range(2)))
    assert "first: warning" in told
    assert "step 31 refused: loss is nan in row 3" in told
    watch.send_signal(signal.SIGINT)
    rest, _ = watch.communicate(timeout=100)
    assert (watch.returncode, rest) == (1, "")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_is_left_as_it_was(healthy, ending):
    child, terminal = pty.fork()
    if not child:
        os.execve(START[0], [*START, str(healthy.directory), "--poll", "0.05"], os.environ | {"TERM": "xterm-256color"})
    seen = b""
    deadline, sent = time.monotonic() + 100, False
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                piece = os.read(terminal, 65_536)
            except OSError:
                break
            if not piece:
                break
            seen += piece
        if not sent and b"no problem" in seen:
            sent = True
            os.kill(child, ending)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(terminal)
    assert (sent, status) == (True, 0)
    assert seen.count(b"\x1b[?25l") == seen.count(b"\x1b[?25h") == 1
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")
    assert b"Traceback" not in seen


def test_the_web_page_is_served_until_it_is_ended(healthy):
    command = [*START, str(healthy.directory), "--web", "--port", "0", "--poll", "0.05", "--token"]
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    url = re.match(r"(http://127\.0\.0\.1:\d+/[\w-]{32,}/) ", watch.stdout.readline())[1]
    assert "first: healthy" in "".join(watch.stdout.readline() for _ in range(2))
    with urllib.request.urlopen(url, timeout=100) as answer:
        assert b"no problem in 30 steps" in answer.read()
    watch.send_signal(signal.SIGTERM)
    watch.communicate(timeout=100)
    assert watch.returncode == 0


def test_a_port_that_is_taken_is_said(healthy, capsys):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run([str(healthy.directory), "--web", "--port", port]) == 2
    assert f"cannot serve on 127.0.0.1:{port}" in capsys.readouterr().err
