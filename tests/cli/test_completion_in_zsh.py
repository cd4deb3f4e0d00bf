"""Tab in a real zsh, on a terminal, with a .zshrc that has this one line."""

import os
import pty
import select
import shutil
import time

import pytest

from child_processes import environment
from stayfinite.cli import main

pytestmark = pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here: apt-get install zsh")


class Terminal:
    """A zsh of its own, and what it has shown."""

    def __init__(self, home):
        env = environment(ZDOTDIR=str(home), HOME=str(home), TERM="dumb")
        child, self.end = pty.fork()
        if child == 0:
            os.chdir(home)
            os.execvpe("zsh", ["zsh", "-i"], env)
        self.child, self.shown = child, ""

    def until(self, text):
        deadline = time.monotonic() + 60
        while text not in self.shown:
            assert time.monotonic() < deadline, self.shown
            if select.select([self.end], [], [], 0.5)[0]:
                self.shown += os.read(self.end, 65536).decode(errors="replace")

    def type(self, keys):
        self.shown = ""
        os.write(self.end, keys.encode())

    def leave(self):
        os.close(self.end)
        os.waitpid(self.child, 0)


def test_zsh_completes_commands_flags_recipes_and_files(tmp_path, capsys):
    assert main(["completion", "zsh"]) == 0
    script = capsys.readouterr().out
    (tmp_path / ".zshrc").write_text(f"{script}\nPS1='ready> '\n")
    (tmp_path / "only_one.log").touch()
    zsh = Terminal(tmp_path)
    try:
        zsh.until("ready> ")
        assert "not found" not in zsh.shown
        for typed, completed in {
            "stayfinite diagn": "stayfinite diagnose",
            "stayfinite check --for": "stayfinite check --format",
            "stayfinite train gr": "stayfinite train grpo",
            "stayfinite diagnose only": "only_one.log",
        }.items():
            zsh.type(f"\x15{typed}\t")  # Ctrl-U takes the line before away
            zsh.until(completed)
    finally:
        zsh.leave()
