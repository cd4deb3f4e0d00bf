"""Any bytes, cut anywhere: no exception, no hang, and the same series however they arrive."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from readers.logs.reading_text import series_of
from readers.logs.test_files import STATE, event_file
from readers.logs.test_formats import POINTS
from readers.logs.test_metrics_and_messages import FRAMES, METRICS, TRACEBACK
from stayfinite.core.series import RunSeries
from stayfinite.readers.logs import LogReader
from stayfinite.readers.logs.formats import FORMATS

LINES = [line for _, text, _ in POINTS for line in text.split("\n")] + [text.strip("\n") for text, _ in METRICS]
LINES += TRACEBACK.split("\n") + FRAMES.split("\n")

pieces = st.one_of(
    st.sampled_from(LINES).map(str.encode),
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
    st.sampled_from(
        [
            b"\r",
            b"\n",
            b"\r\n",
            b"\0",
            b"\x1b[31m",
            b"\x1b[",
            b"\b\b",
            b"\xff\xfe",
            b"\xef\xbb\xbf",
            b"nan",
            b"{",
            b"'",
            b'"',
        ]
    ),
)
logs = st.lists(pieces, max_size=30).map(b"\n".join)
sources = st.sampled_from(["train.log", "metrics.csv", "trainer_state.json", "events.out.tfevents.1", "steps.jsonl"])


def facts(found: list[RunSeries]) -> list[Any]:
    """Everything that a series says, in a form in which NaN equals NaN."""
    return [
        repr(
            (
                series.rank, series.kind, series.lines, series.total_steps, series.points_seen, list(series.points),
                series.messages, series.metrics,
            )
        )
        for series in found
    ]  # fmt: skip


def fed(chunks: list[bytes], source: str) -> list[Any]:
    reader = LogReader(source)
    for chunk in chunks:
        reader.feed(chunk)
    reader.close()
    return facts(reader.series)


@given(data=logs, source=sources)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_read_without_an_exception(data: bytes, source: str) -> None:
    for series in series_of(data, source):
        assert series.lines >= 0
        assert all(message.count > 0 and message.text is not None for message in series.messages)
        for name in ("loss", "grad_norm", "lr"):
            series.column(name)


@given(data=logs, source=sources, cuts=st.lists(st.integers(0, 3000), max_size=8))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_cutting_into_chunks_changes_nothing(data: bytes, source: str, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    chunks = [data[begin:end] for begin, end in itertools.pairwise(places)]
    assert fed(chunks, source) == fed([data], source)


@pytest.mark.parametrize("size", [1, 2, 7, 100, 5000])
@pytest.mark.parametrize("kind", ["text", "json", "tensorboard", "csv", "utf-16"])
def test_small_chunks_of_every_kind_of_file_change_nothing(kind: str, size: int) -> None:
    import json

    text = "\r\n".join(LINES * 3)
    data = {
        "text": text.encode(),
        "json": json.dumps(STATE, indent=2).encode(),
        "tensorboard": b"".join(event_file()),
        "csv": b"step,loss,grad_norm\n" + b"".join(b"%d,%d.5,\n" % (i, i) for i in range(800)),
        "utf-16": text.encode("utf-16"),
    }[kind]
    chunks = [data[place : place + size] for place in range(0, len(data), size)]
    assert fed(chunks, "log") == fed([data], "log")


@given(data=st.binary(max_size=400), place=st.integers(0, 400), flip=st.integers(1, 255))
@settings(max_examples=150, deadline=None)
def test_damage_anywhere_in_an_event_file_is_survived(data: bytes, place: int, flip: int) -> None:
    whole = bytearray(b"".join(event_file()))
    whole[place % len(whole)] ^= flip
    series_of(bytes(whole) + data, "events.out.tfevents.1")


@given(st.lists(st.sampled_from(LINES), max_size=40))
@settings(max_examples=60, deadline=None)
def test_lines_of_all_formats_may_be_mixed(lines: list[str]) -> None:
    for series in series_of("\n".join(lines)):
        assert series.points_seen >= len(series)


HOSTILE = [
    "a" * 60_000,
    "1" * 60_000,
    " " * 60_000,
    "\t" * 30_000 + "x",
    "loss" * 15_000,
    "loss " * 12_000,
    "loss: " * 10_000,
    "loss=1," * 8_000,
    "loss 1 " * 8_000,
    "step 1/2 " * 6_000,
    "1,234," * 9_000,
    "1.1.1." * 9_000,
    "1e" * 30_000,
    "{'a': " * 9_000,
    "{'loss': '" + "x" * 50_000,
    '{"loss": "' + "\\" * 50_001 + "}",
    "'" * 60_000,
    '"a":' * 15_000 + "}",
    "|" * 60_000,
    "| a 1 " * 9_000,
    "0%|" + " " * 60_000,
    "1%|1%|" * 10_000,
    "Epoch [1][1/2] " * 4_000,
    "Epoch 1, batch 1, loss[" * 2_500,
    "iteration 1/ 2 |" * 3_500,
    "overflow " * 7_000,
    "overflow scale " * 4_000,
    "OVERFLOW! Skipping step " * 2_500,
    "loss is nan " * 5_000,
    "loss is " * 7_000,
    "eta: " * 12_000,
    "eta: 1 days, " * 5_000,
    "[" * 60_000,
    "[rank1" * 10_000,
    "[rank1]: " * 6_000,
    "2024-01-02 03:04:05 " * 3_000,
    "(RayTrainWorker pid=1, " * 2_500,
    "-" * 60_000,
    "\x1b[" * 30_000,
    "\x1b]" * 30_000,
    "\b" * 60_000,
    "\r" * 60_000,
    "x\r" * 20_000,
    "a b c d e f " * 5_000,
    "A" * 30_000 + ":" * 30_000,
    "=1" * 30_000,
    "Error" * 12_000,
    "step: 1 " * 7_000,
    "trainable params: " * 3_000,
    "Step Training Loss " * 3_000,
    "tensor(" * 9_000,
    "nan" * 20_000,
    "nan " * 15_000,
    "1/" * 30_000,
    "━" * 60_000,
    "1/2 " + "━" * 60_000,
    "1/2 [" + "=" * 60_000,
]


@pytest.mark.parametrize("line", HOSTILE, ids=[f"{i}-{line[:12]!r}" for i, line in enumerate(HOSTILE)])
def test_time_grows_with_the_length_of_a_hostile_line_and_not_faster(line: str) -> None:
    def seconds(text: str) -> float:
        begun = time.process_time()
        series_of(f"step 1 loss 2.5\n{text[:16_000]}\n{text[:16_000]}1\n{text}\n")
        return time.process_time() - begun

    assert seconds(line) < 2.0


@pytest.mark.parametrize("make", FORMATS, ids=[make.__name__ for make in FORMATS])
def test_each_format_alone_stands_hostile_lines(make: Any) -> None:
    format_ = make()
    begun = time.process_time()
    for line in HOSTILE:
        format_.read(line[:20_000], 0)
    assert time.process_time() - begun < 5.0
