"""`stayfinite watch --web` in a real browser, and a run that is written meanwhile."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from live_runs import WrittenRun

from .conftest import PATIENCE

# A shell lets what it starts in the background ignore ctrl-C, and children inherit that; a person's terminal does not.
LISTENING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
START = [
    sys.executable,
    "-c",
    LISTENING + "import sys; from stayfinite.cli.watch import run; sys.exit(run(sys.argv[1:]))",
]
HOSTILE = "<script>window.owned=1</script><img src=x onerror=window.owned=1>"


@contextmanager
def watching(*paths):
    """The address of the live page of these runs."""
    command = [*START, *map(str, paths), "--web", "--port", "0"]
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield re.match(r"(http://\S+) ", watch.stdout.readline())[1]
    finally:
        watch.send_signal(signal.SIGTERM)
        watch.communicate(timeout=100)


class Viewer:
    """An open live page, with what its console said and whom it asked."""

    def __init__(self, context, url):
        self.complaints = []
        self.page = context.new_page()
        self.page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda asked: None if asked.url.startswith(url) else self.complaints.append(asked.url))
        self.page.goto(url)
        self.page.wait_for_selector("html[data-ready]")

    def wait(self, words):
        """Seconds until the page says so."""
        start = time.monotonic()
        self.page.wait_for_function("words => document.body.innerText.includes(words)", arg=words, polling=20)
        return time.monotonic() - start


@pytest.fixture
def view(browser):
    opened = []

    def make(url):
        opened.append(browser.new_context())
        opened[-1].set_default_timeout(PATIENCE)
        return Viewer(opened[-1], url)

    yield make
    for context in opened:
        context.close()


def test_a_new_veto_is_on_the_page_within_two_seconds(tmp_path, view):
    run = WrittenRun(tmp_path / "first", steps=500)
    run.accept(40)
    with watching(run.directory) as url:
        viewer = view(url)
        viewer.wait("no problem in 40 steps")
        viewer.wait("8% of 500")
        opened = viewer.page.evaluate("() => { const d = document.querySelector('details'); return d.open = !d.open; }")
        run.refuse(reason="loss is nan in row 3")
        seconds = [viewer.wait("1 of 41 steps was refused")]
        viewer.wait("1 step was refused lately, the last at step 41")
        viewer.wait("1 refused")  # the mark on the curves
        while min(seconds) >= 2.0 and len(seconds) < 20:  # other tests run beside this one: a quiet moment is enough
            run.refuse()
            seconds.append(viewer.wait(f"{len(seconds) + 1} of {run.step} steps were refused"))
        assert min(seconds) < 2.0
        assert viewer.page.evaluate("() => document.querySelector('details').open") == opened
        assert viewer.complaints == []


def test_what_a_run_has_put_into_its_files_runs_no_script_live(tmp_path, view):
    run = WrittenRun(tmp_path / f"name {HOSTILE.replace('/', '')}")
    run.accept(20)
    with watching(run.directory) as url:
        viewer = view(url)
        viewer.wait("no problem in 20 steps")
        run.refuse(reason=HOSTILE, code=HOSTILE)
        run.accept(1, parts={HOSTILE: 1.0})
        run.event("finding", code=HOSTILE, cause=HOSTILE, severity="error", confidence=0.9, title=HOSTILE,
                  where=HOSTILE, evidence=[HOSTILE], fix=HOSTILE)  # fmt: skip
        viewer.wait("1 of 22 steps was refused")
        time.sleep(1.0)
        assert viewer.page.evaluate("window.owned") is None
        assert viewer.page.query_selector("main img") is None
        assert viewer.page.title().startswith("name <script>")
        assert viewer.complaints == []


def test_a_run_that_is_deleted_and_begun_again_is_followed_and_a_server_that_is_gone_is_said(tmp_path, view):
    run = WrittenRun(tmp_path / "first")
    run.accept(30)
    with watching(run.directory) as url:
        viewer = view(url)
        viewer.wait("no problem in 30 steps")
        run.journal.close()
        shutil.rmtree(run.directory)
        again = WrittenRun(tmp_path / "first")
        again.accept(12)
        viewer.wait("no problem in 12 steps")
        assert viewer.complaints == []
    viewer.wait("waiting for the server")
