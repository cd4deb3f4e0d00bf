"""Python processes that begin with torch loaded: all of a test run are forked from one process that loaded it once.

To load torch and its optimizers takes a process 4 s of CPU time, longer than most that tests start take for their work.
From the fork on each is a process of its own: with its environment, its output, its signals and its death.
Not for tests of what is loaded, of memory, or of how Python itself is started.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

LOADED = (
    "torch._dynamo",  # torch loads it with the first optimizer
    "torch.distributed.tensor",
    "torch.distributed.checkpoint.state_dict",
    "stayfinite.guard.telling.showing",
    "stayfinite.diagnosis.diagnose",
    "rich.console",
)
"""What trainings load when they come to it."""


class Process:
    """A process as ``python WORDS`` starts it; used like `subprocess.Popen`. Its output goes to files."""

    def __init__(
        self, words: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self.returncode: int | None = None
        self._out, self._err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115  # __exit__ closes them
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(_address())
        request = {"words": [*map(str, words)], "env": dict(os.environ if env is None else env)}
        sent = json.dumps(request | {"cwd": str(cwd or Path.cwd())}).encode()
        files = [self._out.fileno(), self._err.fileno()]
        socket.send_fds(self._server, [len(sent).to_bytes(8, "little")], files)
        self._server.sendall(sent)
        self._answers: IO[bytes] = self._server.makefile("rb")
        self.pid = int(self._answers.readline())

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        for each in (self._answers, self._server, self._out, self._err):
            each.close()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or minus the signal that ended it."""
        if self.returncode is None:
            if not select.select([self._server], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("python", timeout or 0.0)
            self.returncode = int(self._answers.readline())
        return self.returncode

    def poll(self) -> int | None:
        """The same, or none while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def said(self) -> str:
        """What it has written to its standard output so far."""
        return _text(self._out)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it wrote, once it has ended."""
        self.wait(timeout)
        return _text(self._out), _text(self._err)


def run(
    words: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``python WORDS`` to its end."""
    with Process(words, env=env, cwd=cwd) as process:
        out, err = process.communicate()
    return subprocess.CompletedProcess([*map(str, words)], process.wait(), out, err)


def _text(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


@cache
def _address() -> str:
    """Where the process listens that has torch loaded; it is started when it is first asked for."""
    folder = tempfile.TemporaryDirectory(prefix="warm-")
    address = f"{folder.name}/door"
    server = subprocess.Popen([sys.executable, __file__, address], stdin=subprocess.PIPE)

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    while not Path(address).exists():
        assert server.poll() is None, "torch could not be loaded"
        select.select([], [], [], 0.01)
    return address


def serve(address: str) -> None:
    """Fork a process for everyone who asks, until nobody holds the other end of this one's standard input."""
    for module in LOADED:
        importlib.import_module(module)
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{address}.part")
        door.listen()
        Path(f"{address}.part").rename(address)
        while sys.stdin not in (ready := select.select([sys.stdin, door], [], [])[0]):
            assert ready == [door]
            asked, _ = door.accept()
            with asked:
                if not os.fork():
                    door.close()
                    _start(asked)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _start(asked: socket.socket) -> None:
    """Start what is asked for in a process of its own, and tell its number and then its end."""
    length, files, _, _ = socket.recv_fds(asked, 8, 2)
    request = json.loads(asked.recv(int.from_bytes(length, "little"), socket.MSG_WAITALL))
    if child := os.fork():
        for file in files:
            os.close(file)
        asked.sendall(b"%d\n" % child)
        end = os.pidfd_open(child)
        if end not in select.select([asked, end], [], [])[0]:
            os.kill(child, signal.SIGKILL)  # whoever asked for it has gone
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            asked.sendall(b"%d\n" % ended)
        os._exit(0)
    asked.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((nothing, *files)):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ |= request["env"]
    os.chdir(request["cwd"])
    asked_for = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [place for place in asked_for if place and place not in sys.path[1:]]
    if "PYTHONFAULTHANDLER" in os.environ:
        faulthandler.enable()
    if "PYTHONUNBUFFERED" in os.environ:
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    _as_main(request["words"])
    sys.exit()  # all the way up, as a script ends


def _as_main(words: list[str]) -> None:
    first, *rest = words
    if first == "-m":
        sys.argv, sys.path[0] = rest, ""
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        code, (text, *sys.argv[1:]) = "<string>", rest
        sys.argv[0], sys.path[0] = "-c", ""
    else:
        code, text = first, Path(first).read_text()
        sys.argv, sys.path[0], main.__file__ = words, str(Path(first).resolve().parent), first
    exec(compile(text, code, "exec"), vars(main))


if __name__ == "__main__":
    serve(sys.argv[1])
