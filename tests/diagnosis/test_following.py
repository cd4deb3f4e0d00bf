"""A live log: said once, when it turns, and not before."""

import json
import subprocess
import sys
import time

from stayfinite.diagnosis.following import Follower

GOOD = "".join(
    f"{{'loss': {3 - i / 20:.3f}, 'grad_norm': 1.2, 'learning_rate': 1e-4, 'epoch': {i / 100}}}\n" for i in range(20)
)
BAD = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-4, 'epoch': 0.3}\n"


def test_a_healthy_log_is_followed_in_silence():
    follower = Follower("train.log")
    for line in GOOD.splitlines(keepends=True):
        follower.feed(line.encode())
        assert follower.turned(at_once=True) == []
    assert follower.last.loss == 2.05


def test_a_turn_is_told_once_with_its_place():
    follower = Follower("train.log")
    follower.feed(b"ValueError: Attempting to unscale FP16 gradients.\n")
    (finding,) = follower.turned(at_once=True)
    assert (finding.cause, finding.where) == ("double-fp16", "train.log:1")
    follower.feed(b"ValueError: Attempting to unscale FP16 gradients.\n")
    assert follower.turned(at_once=True) == []


def test_the_command_follows_a_growing_file_and_leaves_at_the_turn(tmp_path):
    log = tmp_path / "train.log"
    command = [sys.executable, "-m", "stayfinite", "tail", str(log), "--poll", "0.05", "--stop", "--json"]
    tail = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    log.write_text(GOOD)
    time.sleep(0.5)
    assert tail.poll() is None
    with log.open("a") as file:
        file.write("Traceback (most recent call last):\nValueError: Attempting to unscale FP16 gradients.\n")
    out, _ = tail.communicate(timeout=100)
    assert tail.returncode == 1
    assert json.loads(out.splitlines()[0])["cause"] == "double-fp16"


def test_once_reads_what_is_there_and_leaves(tmp_path):
    log = tmp_path / "train.log"
    log.write_text(GOOD)
    done = subprocess.run(
        [sys.executable, "-m", "stayfinite", "tail", str(log), "--once"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_a_weak_guess_is_told_as_the_symptom(tmp_path):
    log = tmp_path / "train.log"
    losses = [*(3 - step / 100 for step in range(50)), "nan", "nan"]
    log.write_text("".join(f"step {step} loss {loss}\n" for step, loss in enumerate(losses)))
    done = subprocess.run(
        [sys.executable, "-m", "stayfinite", "tail", str(log), "--once"], capture_output=True, text=True, check=False
    )
    told, cause, advice = done.stdout.splitlines()
    assert done.returncode == 1
    assert told.partition(" ")[2] == "the loss is NaN or inf from step 50, after 50 finite losses"
    assert cause.startswith("  cause not certain; perhaps SF")
    assert advice == f"  next: stayfinite diagnose {log}"
