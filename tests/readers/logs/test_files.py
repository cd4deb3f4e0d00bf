"""Kinds of file, told apart by what is in them."""

# ruff: noqa: E501 -- log lines stand here as they are written

from __future__ import annotations

import gzip
import json
import math
import os
import pickle
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from readers.logs.reading_text import points_of, same, series_of
from stayfinite.readers.logs import UnreadableLog, read_log, reading
from stayfinite.readers.logs.tensorboard import masked_crc

NAN = math.nan

STATE = {
    "best_metric": None,
    "epoch": 0.2,
    "global_step": 20,
    "log_history": [
        {"epoch": 0.1, "grad_norm": 1.5, "learning_rate": 5e-05, "loss": 2.5, "step": 10},
        {"epoch": 0.1, "eval_loss": NAN, "eval_runtime": 3.5, "step": 10},
        {"epoch": 0.2, "grad_norm": NAN, "learning_rate": 4e-05, "loss": 0.0, "step": 20},
        {"epoch": 0.2, "step": 20, "total_flos": 1e9, "train_loss": 1.25, "train_runtime": 9.5},
    ],
    "max_steps": 200,
    "num_train_epochs": 1,
}
STATE_POINTS = [
    {"step": 10.0, "epoch": 0.1, "grad_norm": 1.5, "lr": 5e-05, "loss": 2.5},
    {"step": 20.0, "epoch": 0.2, "grad_norm": NAN, "lr": 4e-05, "loss": 0.0},
]


@pytest.mark.parametrize("indent", [None, 2])
def test_trainer_state(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps(STATE, indent=indent), encoding="utf-8")
    (series,) = read_log(path)
    assert same(points_of(series), STATE_POINTS)
    assert series.kind == "trainer state"
    assert series.total_steps == 200.0
    assert same(series.metrics["eval_loss"].values, [NAN])
    assert series.metrics["train_loss"].values == [1.25]
    if indent:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert [lines[point.line - 1].strip() for point in series.points] == ["{", "{"]


def test_a_trainer_state_that_was_written_half_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = json.dumps(STATE, indent=2)
    path = tmp_path / "trainer_state.json"
    path.write_text(text[: text.index('"train_loss"')], encoding="utf-8")
    assert same(points_of(read_log(path)[0]), STATE_POINTS)


def test_a_list_of_records() -> None:
    text = json.dumps([{"step": i, "train/loss": i / 4, "nested": {"acc": 0.5}} for i in range(3)], indent=1)
    (series,) = series_of(text, "history.json")
    assert points_of(series) == [{"step": float(i), "loss": i / 4} for i in range(3)]
    assert series.metrics["nested/acc"].values == [0.5] * 3


def test_a_history_of_lists() -> None:
    (series,) = series_of('{"loss": [2.5, 1.5, NaN], "val_loss": [2.0, 1.0, NaN]}', "history.json")
    assert same([point.loss for point in series.points], [2.5, 1.5, NAN])
    assert same(series.metrics["val_loss"].values, [2.0, 1.0, NAN])


def test_the_table_of_lightning_with_empty_cells() -> None:
    text = (
        "epoch,grad_norm,lr-AdamW,step,train_loss,val_loss\n0,,0.001,,,\n0,1.5,,49,2.5,\n0,,,99,,nan\n1,nan,,149,nan,\n"
    )
    (series,) = series_of(text, "metrics.csv")
    assert same(
        points_of(series),
        [
            {"epoch": 0.0, "lr": 0.001},
            {"epoch": 0.0, "step": 49.0, "grad_norm": 1.5, "loss": 2.5},
            {"epoch": 1.0, "step": 149.0, "grad_norm": NAN, "loss": NAN},
        ],
    )
    assert [point.line for point in series.points] == [2, 3, 5]
    assert same(series.metrics["val_loss"].values, [NAN])
    assert series.metrics["val_loss"].steps == [99.0]
    assert series.kind == "csv"


@pytest.mark.parametrize(
    "text",
    [
        "Step;Loss\n1;2.5\n2;1.5\n",
        "Step\tTraining Loss\n1\t2.5\n2\t1.5\n",
        '"Step","lucky-run-7 - train/loss","lucky-run-7 - train/loss__MIN"\n"1","2.5","2.5"\n"2","1.5","1.5"\n',
        "iteration, loss, time\n1, 2.5, 3\n2, 1.5, 3\n",
        "step,loss\n1,2.5\nstep,loss\n2,1.5\n",
    ],
)
def test_other_tables(text: str) -> None:
    (series,) = series_of(text, "table.csv")
    assert [(point.step, point.loss) for point in series.points] == [(1.0, 2.5), (2.0, 1.5)]


def test_an_export_of_tensorboard_takes_its_name_from_the_file() -> None:
    (series,) = series_of("Wall time,Step,Value\n1.5,10,2.5\n", "run-train_loss.csv")
    assert points_of(series) == [{"step": 10.0, "loss": 2.5}]


def varint(value: int) -> bytes:
    data = b""
    value &= (1 << 64) - 1
    while value >= 0x80:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def block(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


def event(step: int, *values: bytes) -> bytes:
    summary = b"".join(block(1, value) for value in values)
    return record(b"\x09" + struct.pack("<d", 1e9) + b"\x10" + varint(step) + block(5, summary))


def simple(tag: str, value: float) -> bytes:
    return block(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor(tag: str, value: float, *, packed: bool) -> bytes:
    if packed:
        body = b"\x08\x01" + block(4, struct.pack("<f", value))
    else:
        body = b"\x08\x01" + b"\x2d" + struct.pack("<f", value)
    return block(1, tag.encode()) + block(8, body)


def words(tag: str, value: str) -> bytes:
    return block(1, tag.encode()) + block(8, b"\x08\x07" + block(8, value.encode()))


def event_file() -> Iterator[bytes]:
    yield record(b"\x09" + struct.pack("<d", 1e9) + block(3, b"brain.Event:2"))
    yield event(0, words("args/text_summary", '{"learning_rate": 0.001, "fp16": true}'))
    yield event(10, simple("train/loss", 2.5))
    yield event(10, simple("train/grad_norm", 1.5))
    yield event(10, tensor("train/learning_rate", 0.25, packed=True))
    yield event(10, simple("eval/loss", 3.5))
    yield event(20, simple("train/loss", NAN), tensor("train/grad_norm", math.inf, packed=False))


TB_POINTS = [
    {"step": 10.0, "loss": 2.5, "grad_norm": 1.5, "lr": 0.25},
    {"step": 20.0, "loss": NAN, "grad_norm": math.inf},
]


def test_tensorboard() -> None:
    (series,) = series_of(b"".join(event_file()), "events.out.tfevents.1.host")
    assert same(points_of(series), TB_POINTS)
    assert series.metrics["eval/loss"].values == [3.5]
    assert series.messages[0].text == 'args/text_summary: {"learning_rate": 0.001, "fp16": true}'
    assert series.kind == "tensorboard"


def test_tensorboard_cut_off_in_the_middle_of_a_record() -> None:
    (series,) = series_of(b"".join(event_file())[:-7], "events.out.tfevents.1.host")
    assert points_of(series) == TB_POINTS[:1]


def test_tensorboard_with_damaged_bytes_loses_one_record_and_says_so() -> None:
    parts = list(event_file())
    parts[3] = parts[3][:20] + b"\xff" + parts[3][21:]
    (series,) = series_of(b"".join(parts))
    assert same(points_of(series), [{"step": 10.0, "loss": 2.5, "lr": 0.25}, TB_POINTS[1]])
    assert "skipped 1 damaged records" in series.messages[-1].text


def test_tensorboard_with_a_damaged_length_goes_on_at_the_next_record() -> None:
    parts = list(event_file())
    parts[3] = b"\xff" * 8 + parts[3][8:]
    (series,) = series_of(b"".join(parts))
    assert same(points_of(series), [{"step": 10.0, "loss": 2.5, "lr": 0.25}, TB_POINTS[1]])


def test_gzip(tmp_path: Path) -> None:
    text = "".join(f"step {i} loss {i}.5\n" for i in range(500))
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(text[:4000].encode()) + gzip.compress(text[4000:].encode()))
    (series,) = read_log(path)
    assert len(series) == 500
    path.write_bytes(path.read_bytes()[:900])
    assert 0 < len(read_log(path)[0]) < 500


def test_a_gzip_that_unpacks_without_end_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("stayfinite.readers.logs.opening.MOST_UNPACKED", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"step 1 loss 2.5\n" * 1_000_000))
    assert 0 < read_log(path)[0].points_seen < 200_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n\n",
        random.Random(0).randbytes(20_000),
        b"\x89PNG\r\n\x1a\n" + bytes(500),
        pickle.dumps({"loss": [1.0, 2.0], "weights": list(range(2000))}),
        b"PK\x03\x04" + bytes(100),
        bytes(10_000),
        b"\x1f\x8b" + bytes(50),
        b"{" * 10_000,
        b"[" * 10_000,
        b'[{"a":' * 3_000,
    ],
    ids=["empty", "newlines", "random", "png", "pickle", "zip", "zeros", "broken gzip", "braces", "brackets", "nested"],
)
def test_what_is_no_log_gives_an_empty_series(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    (series,) = read_log(path)
    assert len(series) == 0
    assert series.kind == ""
    assert not series.metrics


def test_our_own_run_directory(tmp_path: Path) -> None:
    steps = tmp_path / "steps.jsonl"
    steps.write_text(
        '{"version": 1, "step": 1, "loss": 2.5, "grad_norm": 1.5, "lr": 0.1, "loss_scale": 8.0, "decision": "accept", "code": ""}\n'
        '{"version": 1, "step": 2, "loss": NaN, "grad_norm": NaN, "lr": 0.1, "loss_scale": 8.0, "decision": "veto", "code": "SF101", '
        '"parts": {"text": 1.5}}\n',
        encoding="utf-8",
    )
    (series,) = read_log(steps)
    expected = [
        {"step": 1.0, "loss": 2.5, "grad_norm": 1.5, "lr": 0.1, "loss_scale": 8.0},
        {"step": 2.0, "loss": NAN, "grad_norm": NAN, "lr": 0.1, "loss_scale": 8.0, "skipped": True},
    ]
    assert same(points_of(series), expected)
    assert series.metrics["parts/text"].values == [1.5]
    events = tmp_path / "events.jsonl"
    events.write_text(
        '{"version": 1, "time": "2026-01-02T03:04:05", "event": "start", "step": 0, "model": "T5"}\n'
        '{"version": 1, "time": "2026-01-02T03:04:06", "event": "veto", "step": 2, "code": "SF101", "reason": "loss is NaN", "loss": NaN, '
        '"grad_norm": NaN, "loss_scale": 8.0, "batch": 1, "bad_parameters": ["a.weight"], "bad_count": 1}\n',
        encoding="utf-8",
    )
    (series,) = read_log(events)
    assert [(point.step, point.skipped) for point in series.points] == [(2.0, True)]
    assert len(series.messages) == 2


def test_progress_is_told(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text("step 1 loss 2.5\n" * 20_000, encoding="utf-8")
    told: list[tuple[int, int]] = []
    read_log(path, lambda done, total: told.append((done, total)))
    assert told[-1] == (path.stat().st_size, path.stat().st_size)
    assert told == sorted(told)


def test_a_file_that_cannot_be_opened_says_why_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnreadableLog, match="No such file"):
        read_log(tmp_path / "missing.log")
    with pytest.raises(UnreadableLog, match="is not a file"):
        read_log(tmp_path)
    loop = tmp_path / "loop.log"
    loop.symlink_to(loop)
    with pytest.raises(UnreadableLog, match="fix:"):
        read_log(loop)
    with pytest.raises(UnreadableLog, match="fix:"):
        read_log("a\0b")
    if os.geteuid():
        secret = tmp_path / "secret.log"
        secret.touch(mode=0)
        with pytest.raises(UnreadableLog, match="Permission denied"):
            read_log(secret)


def test_a_first_line_with_commas_alone_makes_no_table() -> None:
    (series,) = series_of("loss, step\nstep 1 loss 2.5\n")
    assert points_of(series) == [{"step": 1.0, "loss": 2.5}]


def test_lines_whose_metrics_have_names_of_their_own_compile_no_expression_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[str] = []
    shape_of = reading.shape_of
    monkeypatch.setattr(reading, "shape_of", lambda line, *rest: made.append(line) or shape_of(line, *rest))
    path = tmp_path / "train.log"
    path.write_text("".join(f"{{'loss': {3 - i / 4000:.3f}, 'metric_{i}': {i}.5}}\n" for i in range(4000)))
    (series,) = read_log(path)
    assert (len(series), len(series.metrics), series.metrics_left_out) == (4000, 2000, 2000)
    assert len(made) < 10
