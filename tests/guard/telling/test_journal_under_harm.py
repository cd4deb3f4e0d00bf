"""A kill, a torn line, a full disk, a directory that is gone: whole lines stay, and training goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest

from run_files import events_of, lines_of
from stayfinite import Policy
from stayfinite.guard.telling.journal import JournalWarning
from tiny_training import Training

TESTS = Path(__file__).parents[2]


def in_a_process(script: str, *arguments: str) -> subprocess.Popen:
    code = "import torch, warnings\nfrom tiny_training import Training\ntorch.set_num_threads(1)\n" + textwrap.dedent(
        script
    )
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


KILLED = """
import os, random, signal, sys, time
from stayfinite import Policy

def run(steps):
    training = Training("AdamW-fused", run_dir=sys.argv[1], policy=Policy(max_vetoes=None, sample_every=1))
    for _ in range(steps):
        training.good()
        training.bad()

run(1)
pick = random.Random(0)
steps = f"{sys.argv[1]}/steps.jsonl"
for turn in range(12):
    child = os.fork()
    if child == 0:
        run(1_000_000)
    size = os.path.getsize(steps)
    while turn % 3 and os.path.getsize(steps) < size + 2000:
        time.sleep(0.001)
    time.sleep(pick.uniform(0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
run(1)
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_tears_at_most_a_line_that_the_next_start_removes(tmp_path):
    run = tmp_path / "run"
    _, error = in_a_process(KILLED, str(run)).communicate()
    for name in ("steps.jsonl", "events.jsonl"):
        assert (run / name).read_bytes().endswith(b"\n"), error
    steps = [line["step"] for line in lines_of(run / "steps.jsonl")]
    assert len(steps) > 50
    assert all(step in (1, before + 1) for before, step in zip([0, *steps], steps, strict=False)), "a line is missing"
    launches = len(json.loads((run / "run.json").read_text())["launches"])
    assert launches >= events_of(run).count("restart") + 1 > 3
    with np.load(run / "layers.npz") as layers:
        assert layers["norm"].shape[1] == 6


def test_a_torn_line_is_cut_off_at_the_next_start(tmp_path):
    first = Training(run_dir=tmp_path)
    first.good(2)
    first.bad()
    first.guard.close()
    whole = (tmp_path / "steps.jsonl").read_bytes()
    for name in ("steps.jsonl", "events.jsonl"):
        with (tmp_path / name).open("ab") as file:
            file.write(b'{"version": 1, "step": 4, "lo')
    second = Training(run_dir=tmp_path)
    second.good(1)
    second.guard.close()
    assert (tmp_path / "steps.jsonl").read_bytes().startswith(whole)
    assert [line["step"] for line in lines_of(tmp_path / "steps.jsonl")] == [1, 2, 3, 1]
    assert events_of(tmp_path) == ["start", "veto", "closed", "restart", "closed"]


def test_a_file_that_is_one_torn_line_becomes_an_empty_one(tmp_path):
    (tmp_path / "steps.jsonl").write_bytes(b'{"half')
    training = Training(run_dir=tmp_path)
    training.good()
    assert [line["step"] for line in lines_of(tmp_path / "steps.jsonl")] == [1]


def test_a_run_json_that_cannot_be_read_is_begun_anew(tmp_path):
    (tmp_path / "run.json").write_bytes(b"\xff\xfe{not json")
    Training(run_dir=tmp_path).good()
    assert len(json.loads((tmp_path / "run.json").read_text())["launches"]) == 1


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True  # Python would leave half a compiled module behind, for everybody
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    training = Training("AdamW-plain", run_dir=sys.argv[1])
    training.good(60)
    training.guard.close()
print(len(caught), caught[0].category.__name__, caught[0].message, sep="\\n")
print(len(training.guard.decisions), not any(d.refused for d in training.guard.decisions))
"""


@pytest.mark.slow
def test_a_file_that_can_grow_no_further_warns_once_and_training_goes_on(tmp_path):
    out, error = in_a_process(FULL, str(tmp_path)).communicate()
    count, kind, message, result = out.splitlines() or [error]
    assert (count, kind, result) == ("1", "JournalWarning", "60 True")
    assert str(tmp_path) in message
    written = lines_of(tmp_path / "steps.jsonl")  # and no torn line stays
    assert 5 < len(written) < 60
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 16 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_warns_once_and_writing_resumes_when_there_is_room(tiny_disk, monkeypatch):
    monkeypatch.setattr("stayfinite.guard.telling.journal.RETRY_AFTER", 0.0)
    training = Training(run_dir=tiny_disk / "run")
    (tiny_disk / "ballast").write_bytes(bytes(4096))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        training.good(60)
        assert [warning.category for warning in caught] == [JournalWarning]
        assert "No space left on device" in str(caught[0].message)
        (tiny_disk / "ballast").unlink()
        training.good(2)
        training.guard.close()
    steps = [line["step"] for line in lines_of(tiny_disk / "run" / "steps.jsonl")]
    assert len(steps) < 62
    assert steps[-1] == 62
    assert len(caught) == 1


def test_a_directory_that_cannot_be_made_any_more_warns_once_and_training_goes_on(tmp_path):
    training = Training(run_dir=tmp_path / "file" / "run")
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(JournalWarning, match="Training continues"):
        training.good()
    training.good(2)
    training.bad()
    training.guard.close()
    assert [d.refused for d in training.guard.decisions] == [False, False, False, True]
    assert "4 steps" in training.console.lines[-1]


def test_a_directory_that_vanishes_warns_once_and_training_goes_on(tmp_path):
    run = tmp_path / "run"
    training = Training(run_dir=run, policy=Policy(sample_every=0))
    training.good(2)
    shutil.rmtree(run)
    (tmp_path / "run").write_text("a file where the directory was")
    with pytest.warns(JournalWarning, match="Training continues"):
        training.good()
    training.good(2)
    training.guard.close()
    assert len(training.guard.decisions) == 5


def test_a_directory_that_vanishes_is_made_again_and_not_written_to_in_the_void(tmp_path):
    run = tmp_path / "run"
    training = Training(run_dir=run, policy=Policy(sample_every=0))
    training.good(2)
    shutil.rmtree(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JournalWarning)
        training.good(2)
        training.guard.close()
    assert run.exists()
    assert [line["step"] for line in lines_of(run / "steps.jsonl")][-1] == 4
