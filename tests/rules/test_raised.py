"""The error of a traceback is quoted from its own line, with the user's last frame and a fix for it."""

from __future__ import annotations

from stayfinite.diagnosis.diagnose import judge_reading
from stayfinite.diagnosis.reading import read_text

OF_A_LIBRARY = '  File "/usr/lib/python3/site-packages/torch/nn/functional.py", line 3059, in cross_entropy'
ROWS = f"""step 10 loss 2.31
step 20 loss 2.10
Traceback (most recent call last):
  File "/home/u/train.py", line 118, in <module>
    main()
  File "/home/u/train.py", line 77, in main
    loss = criterion(model(x), y)
{OF_A_LIBRARY}
    return torch._C._nn.cross_entropy_loss(input, target)
ValueError: Expected input batch_size (32) to match target batch_size (64).
"""


def first(log: str):
    return judge_reading(read_text(log)).findings[0]


def test_the_place_is_the_line_of_the_error_and_the_frame_is_the_users():
    found = first(ROWS)
    assert found.cause == "loss-broadcast"
    assert found.where.endswith(":10")
    assert found.evidence[0].endswith("Expected input batch_size (32) to match target batch_size (64).")
    assert "your code at /home/u/train.py:77: loss = criterion(model(x), y)" in found.evidence


def test_other_numbers_of_rows_are_not_fixed_by_a_squeeze():
    assert "squeeze" not in first(ROWS).fix
    other = ROWS.replace("Expected input batch_size (32) to match target batch_size (64)", "multi-target not supported")
    assert "squeeze" in first(other).fix


def test_frames_of_libraries_alone_are_not_the_users():
    lines = ROWS.splitlines(keepends=True)
    found = first("".join([*lines[:3], *lines[7:]]))
    assert not any(line.startswith("your code") for line in found.evidence)


def test_a_caught_error_is_none():
    later = "".join(f"step {20 + step} loss {2 - step / 100}\n" for step in range(1, 30))
    assert "the run crashed" not in judge_reading(read_text(ROWS + later)).trouble


COURSE = "".join(f"step {step} loss {3 - step / 100:.2f}\n" for step in range(40))


def test_a_job_killed_for_its_host_memory_is_told_to_ask_for_more():
    found = first(f"{COURSE}slurmstepd: error: Detected 1 oom-kill event(s) in StepId=123.batch\n")
    assert found.cause == "out-of-memory"
    assert "--mem" in found.fix


def test_a_full_gpu_is_not_told_to_ask_for_host_memory():
    full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    for log in (COURSE + full, f"{COURSE}{full}slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.batch\n"):
        assert "--mem" not in first(log).fix
