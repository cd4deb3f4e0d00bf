"""What a collector puts around every line does not change what is read."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from tests.readers.logs.reading_text import points_of, same, series_of

from stayfinite.readers.logs.wrapping import wrapping_of

LOG = [
    "Loading the data",
    "epoch 1 step 100 loss 2.310 grad_norm 1.2",
    "epoch 1 step 200 loss 2.105 grad_norm 1.1",
    "UserWarning: slow image processor",
    "epoch 1 step 300 loss nan grad_norm nan",
    "epoch 1 step 400 loss nan grad_norm nan",
]


def clock(place: int) -> str:
    return f"2026-05-06 07:08:{place:02}"


WRAPPERS: dict[str, Callable[[int, str], str]] = {
    "docker compose": lambda _, line: f"trainer-1  | {line}",
    "docker's JSON": lambda at, line: json.dumps(
        {"log": f"{line}\n", "stream": "stderr" if at % 2 else "stdout", "time": f"2026-05-06T07:08:{at:02}.1Z"}
    ),
    "structured logging": lambda at, line: json.dumps({"level": "info", "ts": 1.7e9 + at, "msg": line}),
    "kubectl with pods": lambda at, line: f"[pod/trainer-7f9c6-x2x/main] 2026-05-06T07:08:{at:02}.12Z {line}",
    "Python's logging": lambda _, line: f"INFO:mine.train:{line}",
    "hydra": lambda at, line: f"[{clock(at)},123][mine.train][{'INFO' if at else 'WARNING'}] - {line}",
    "files and lines": lambda at, line: f"[{clock(at)},123] [train.py:{30 + at}] [INFO] {line}",
    "loguru": lambda at, line: f"{clock(at)}.123 | INFO     | mine.engine:train:{30 + at} - {line}",
    "logfmt": lambda at, line: f"ts=2026-05-06T07:08:{at:02}Z level=info app=mine msg={line}",
    "a quotation": lambda _, line: f"> {line}",
    "a quotation of docker compose": lambda _, line: f"> trainer-1  | {line}",
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapped_log_reads_like_the_log_itself(name: str) -> None:
    plain = series_of("\n".join(LOG))
    wrapped = series_of("\n".join(WRAPPERS[name](at, line) for at, line in enumerate(LOG)))
    assert [same(points_of(a), points_of(b)) for a, b in zip(wrapped, plain, strict=True)] == [True]
    assert [one.text for one in plain[0].messages] == [one.text for one in wrapped[0].messages]


def test_lines_without_the_wrapping_stay_as_they_are() -> None:
    lines = [f"trainer-1  | step {step} loss 1.5" for step in range(40)]
    (series,) = series_of("\n".join([*lines, "step 40 loss 1.25"]))
    assert list(series.points)[-1].loss == 1.25


@pytest.mark.parametrize(
    "lines",
    [
        [f"Train: {n} loss: {1 / n:.3f}" for n in range(1, 9)],
        [f"[Epoch {n}] [D loss: 0.5] [G loss: {n / 7:.3f}]" for n in range(1, 9)],
        [f"{clock(n)} loss: {1 / n:.3f}" for n in range(1, 9)],
        [f"gen: {1 / n:.3f}, disc: {n / 9:.3f}" for n in range(1, 9)],
        [f"| run | {n} | {1 / n:.3f} |" for n in range(1, 9)],
        [json.dumps({"msg": f"row {n}", "loss": 1 / n}) for n in range(1, 9)],
        [f"[rank{n % 2}]: loss {1 / n:.3f}" for n in range(1, 9)],
        [f"trainer-{n % 2} | loss {1 / n:.3f}" for n in range(1, 9)],
        ["INFO: starting"] * 8,
        ["> a sentence that somebody wrote"],
        [],
    ],
    ids=[
        "a split", "brackets", "times", "two networks", "a table", "metrics beside the text", "ranks", "two workers",
        "one line again and again", "one line", "nothing",
    ],
)  # fmt: skip
def test_what_a_training_prints_itself_is_no_wrapping(lines: list[str]) -> None:
    assert wrapping_of(lines) is None
