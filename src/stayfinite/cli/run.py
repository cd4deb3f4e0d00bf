"""``stayfinite run --restarts 5 -- torchrun ...``: restart a training after a crash, never after a stop."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfinite.core import supervising
from stayfinite.core.supervising import Move
from stayfinite.flags import parsed
from stayfinite.readers.runs.events import stopped_since

GRACE = 30.0
"""Seconds between SIGTERM and SIGKILL for processes that outlived their launcher, as in torchrun."""

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that are forwarded, and after which nothing is restarted."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """Run a training command, and restart it after a crash: `stayfinite run --restarts 5 -- torchrun ... train.py`

    Not restarted: a training that its guard stopped, and a command that fails within a second twice in a row. Exit
    codes: 0 done; 86, 87, 88 stopped by the guard; that of the last attempt when restarts are used up; 128 + N after
    signal N; 2 on wrong use.
    """

    restarts: int = 5
    """Most restarts."""

    pause: float = 10.0
    """Seconds before a restart; doubled, up to 5 minutes, while attempts start at the same step."""


def run(arguments: Sequence[str]) -> int:
    """Run the command behind `--`; see :class:`Run` for the exit codes."""
    words = list(arguments)
    place = words.index("--") if "--" in words else len(words)
    if "--" not in words and (bare := _bare_command(words)):
        _say(f"put -- before the command: stayfinite run -- {shlex.join(bare)}")
        return 2
    settings = parsed(Run, words[:place], "stayfinite run")
    command = words[place + 1 :]
    wrong = ""
    if not command:
        wrong = "no command after --. Example: stayfinite run --restarts 5 -- torchrun --nproc-per-node=8 train.py"
    elif settings.restarts < 0:
        wrong = f"--restarts {settings.restarts}: expected 0 or more"
    elif not 0 <= settings.pause < 1e6:
        wrong = f"--pause {settings.pause:g}: expected seconds, 0 or more"
    if wrong:
        _say(wrong)
        return 2
    with tempfile.TemporaryDirectory(prefix="stayfinite-run-") as folder:
        return Supervisor(command, settings, Path(folder) / "words.jsonl").run()


def _bare_command(words: Sequence[str]) -> list[str]:
    """The command that no `--` stands before; empty if there is none, or help is asked for."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] in ("-h", "--help"):
            return []
        at += 1 if "=" in words[at] else 2
    return list(words[at:])


class Supervisor:
    """Runs a command, waits for its end, and decides what follows.

    Arguments:
        settings: number of restarts, and the pause.
        words: file for messages from guards; its name marks every process that the command starts.
    """

    def __init__(self, command: list[str], settings: Run, words: Path) -> None:
        self._command, self._settings, self._words = command, settings, words
        self._begun = time.time()
        self._signal: int | None = None
        self._wake = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._run_dirs: dict[str, None] = {}

    def run(self) -> int:
        """Run attempt after attempt; return the exit code."""
        before = {each: signal.signal(each, self._pass_on) for each in ENDING}
        try:
            return self._run()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def _run(self) -> int:
        state = supervising.Supervision(most=self._settings.restarts, first_pause=self._settings.pause)
        while True:
            started = time.monotonic()
            try:
                code, began = self._attempt()
            except OSError as error:
                _say(f"cannot run {self._command[0]}: {error.strerror or error}")
                return 127
            seconds = time.monotonic() - started
            ending = supervising.Ending(
                code=code, began=began, stopped=self._stopped(), told=self._signal, seconds=seconds
            )
            following, state = supervising.after(ending, state)
            self._tell(following, state, ending)
            if following.move is Move.RESTART:
                self._end_left_overs()
                self._wake.wait(following.pause)
                following = supervising.after_pause(self._stopped(), self._signal)
                if following.move is Move.RESTART:
                    continue
                self._tell(following, state, ending)
            return following.code

    def _attempt(self) -> tuple[int, int | None]:
        """Run the command to its end; return its exit code, and the step that training started from."""
        self._words.write_bytes(b"")
        # Its own process group: Ctrl-C reaches it once, through here. A background group must not read the terminal.
        self._child = subprocess.Popen(
            self._command,
            env=os.environ | {supervising.WORDS: str(self._words)},
            stdin=subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None,
            process_group=0,
        )
        if self._signal is not None:
            self._pass_on(self._signal)  # a signal arrived just before
        code = self._child.wait()
        launched = [word for word in self._messages() if word.get("event") == "launched"]
        for word in launched:
            if isinstance(word.get("run_dir"), str):
                self._run_dirs[word["run_dir"]] = None
        steps = [word["step"] for word in launched if isinstance(word.get("step"), int)]
        return code, min(steps, default=None)

    def _stopped(self) -> int | None:
        """Exit code of a stop, from this machine's messages or any rank's events; None if there was none."""
        found = [word.get("code") for word in self._messages() if word.get("event") == "stopped"]
        events = (stopped_since(Path(directory), self._begun) for directory in self._run_dirs)
        found += [event.get("exit_code") for event in events if event is not None]
        if not found:
            return None
        return next(
            (code for code in found if isinstance(code, int) and code in supervising.STOPS), min(supervising.STOPS)
        )

    def _messages(self) -> list[dict[str, Any]]:
        words = []
        with contextlib.suppress(OSError):
            for line in self._words.read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    words.append(json.loads(line))
        return [word for word in words if isinstance(word, dict)]

    def _pass_on(self, number: int, _frame: object = None) -> None:
        self._signal = number
        self._wake.set()
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def _end_left_overs(self) -> None:
        """End processes that outlived their launcher: two trainings must not write to one run directory."""
        for request, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, 5.0)):
            left = self._marked()
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, request)
            until = time.monotonic() + patience
            while left and time.monotonic() < until:
                time.sleep(0.05)
                left = self._marked()
            if not left:
                return

    def _marked(self) -> list[int]:
        """Running processes started by the command, found by their environment; empty without /proc."""
        mark = f"{supervising.WORDS}={self._words}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError, ValueError):
                if mark in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found

    def _tell(self, following: supervising.Next, state: supervising.Supervision, ending: supervising.Ending) -> None:
        attempt = f"attempt {state.restarts + (following.move is not Move.RESTART)} ended with {_in_words(ending.code)}"
        if following.move is Move.RESTART:
            _say(f"{attempt}. Restart {state.restarts} of {state.most} in {following.pause:g} s.")
        elif following.move is Move.STOPPED:
            where = next(iter(self._run_dirs), None)
            record = f" {where}/events.jsonl says why." if where else ""
            _say(f"the guard stopped training (exit code {following.code}). No restart: it would fail again.{record}")
        elif following.move is Move.GIVE_UP and following.early:
            _say(f"{attempt} within a second, like the one before. Gave up: fix the command, then run it again.")
        elif following.move is Move.GIVE_UP:
            restarts = f"{state.most} restart{'' if state.most == 1 else 's'}"
            last = (
                f" The last attempt began at step {state.began}."
                if state.began >= 0
                else " No training step was recorded."
            )
            _say(f"{attempt}. Gave up after {restarts}.{last} Fix the crash, then run the same command again.")
        elif following.move is Move.TOLD:
            _say(f"stopped by {signal.Signals(following.code - 128).name}. Resume with the same command.")


def _in_words(code: int) -> str:
    if code >= 0:
        return str(code)
    try:
        return f"{supervising.shown_code(code)} ({signal.Signals(-code).name})"
    except ValueError:
        return str(supervising.shown_code(code))


def _say(line: str) -> None:
    print(f"stayfinite run: {line}", file=sys.stderr, flush=True)
