"""Every piece of code on the site is run, or says why not; what is not run is at least well-formed."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
from itertools import takewhile
from pathlib import Path

import pytest

import warm
from doc_blocks import PYTHON, ROOT, SHELL, SHOWN, Block, blocks_of, pages
from doc_stages import STAGES
from quick_ones import quick_ones
from stayfinite.cli import COMMANDS

RUN_ELSEWHERE = {
    "docs/integrations/transformers.md": "tests/integrations/transformers/test_page.py",
    "docs/integrations/accelerate.md": "tests/integrations/test_pages_of_frameworks.py",
    "docs/integrations/lightning.md": "tests/integrations/test_pages_of_frameworks.py",
    "docs/integrations/deepspeed.md": "tests/integrations/deepspeed/test_page.py",
    "docs/integrations/loggers.md": "tests/integrations/test_pages_of_frameworks.py",
}
"""Pages whose code has a test of its own, which also looks at what came of it."""

WORD = re.compile(r"[A-Za-z]\w*(?:-\w+)*")
REASONS = ("installs ", "trains for minutes", "needs ", "follows ")
ALL = [block for page in pages() for block in blocks_of(page)]
NOT_RUN = [block for block in ALL if block.language in PYTHON + SHELL and block.not_run]
RUN = [page for page in pages() if page not in RUN_ELSEWHERE and any(block.runs for block in blocks_of(page))]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", quick_ones(RUN, "docs/policies.md"))
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page, tmp_path):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }
    ran = warm.run([ROOT / "tests" / "run_doc_page.py", page], cwd=tmp_path, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(("page", "test"), RUN_ELSEWHERE.items())
def test_code_that_is_run_elsewhere_is_python_that_a_test_runs_whole(page, test):
    source = (ROOT / test).read_text(encoding="utf-8")
    assert Path(page).name in source
    assert "exec(" in source
    assert not [block.place for block in blocks_of(page) if block.language in SHELL and not block.not_run]


def test_every_block_says_what_it_is():
    odd = [block.place for block in ALL if block.language not in PYTHON + SHELL + SHOWN]
    assert odd == []
    commands = re.compile(r"(?:\$ )?(?:stayfinite|python|pip|make|torchrun|\./)\s", re.MULTILINE)
    unsaid = [
        block.place for block in ALL if block.language == "" and not block.is_output and commands.match(block.code)
    ]
    assert unsaid == [], "these look like commands: mark them as sh, so that they are run"


def test_whatever_is_not_run_gives_a_reason():
    for block in NOT_RUN:
        assert block.not_run.startswith(REASONS), f"{block.place}: {block.not_run}"
    print(*(f"{block.place}: {block.not_run}" for block in NOT_RUN), sep="\n")


def test_a_page_with_a_stage_exists():
    assert set(STAGES) <= set(pages())


@pytest.mark.parametrize("block", NOT_RUN, ids=lambda block: block.place)
def test_code_that_is_not_run_is_well_formed_and_names_what_there_is(block):
    if block.language in PYTHON:
        ast.parse(block.code)
        return
    checked = subprocess.run(["bash", "-n"], input=block.code, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    for words in commands_of(block):
        assert words[0] in COMMANDS, f"{block.place}: there is no command {words[0]!r}"


def test_flags_that_are_not_run_are_settings_that_there_are():
    sources = [ROOT / "src" / "stayfinite" / "cli", ROOT / "src" / "stayfinite" / "recipes"]
    known = {word for folder in sources for path in folder.rglob("*.py") for word in WORD.findall(path.read_text())}
    wrong = []
    for block in NOT_RUN:
        flags = [word.partition("=")[0] for words in commands_of(block) for word in words if word.startswith("--")]
        wrong += [f"{block.place}: {flag}" for flag in flags if not {flag[2:], flag[2:].replace("-", "_")} & known]
    assert wrong == []


def commands_of(block: Block) -> list[list[str]]:
    """The words after each `stayfinite` that begins a command of a block, up to another command behind `--`."""
    joined = block.code.replace("\\\n", " ")
    lines = [shlex.split(line, comments=True) for line in joined.splitlines() if line.startswith("stayfinite ")]
    return [list(takewhile(lambda word: word != "--", words[1:])) for words in lines if words[1:]]
