"""Two trainings in one directory: the second is refused, until the first has ended in whatever way."""

import subprocess
import sys

import pytest
import torch

from stayfinite.errors import UsageError
from stayfinite.recipes.running.directories import alone
from stayfinite.recipes.running.processes import Place

pytest.importorskip("fcntl")
HERE = Place(device=torch.device("cpu"))
HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.truncate(0); file.write("process 12 on there"); file.flush()
print("held", flush=True)
time.sleep(60)
"""


def test_a_directory_in_which_another_process_trains_is_refused_until_it_is_killed(tmp_path):
    output = tmp_path / "run"
    with alone(output, HERE):
        pass
    with subprocess.Popen([sys.executable, "-c", HOLD, str(output / ".lock")], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        words = "another process is training in .*run: process 12 on there\n.*--output-dir"
        with pytest.raises(UsageError, match=words), alone(output, HERE):
            raise AssertionError("two at once")
        other.kill()
    with alone(output, HERE):
        pass


def test_it_is_let_go_when_a_training_fails(tmp_path):
    with pytest.raises(ZeroDivisionError), alone(tmp_path, HERE):
        raise ZeroDivisionError
    with alone(tmp_path, HERE):
        pass
