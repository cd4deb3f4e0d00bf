"""A run directory, copied to the real loggers and read back from them."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from guarded_training import NAN, GuardedTraining
from stayfinite.errors import MissingExtra, UsageError
from stayfinite.integrations import loggers
from stayfinite.integrations.loggers import SinkFailed, TensorBoardSink, TrackioSink, WandbSink, following, mirror


class Book:
    """A sink that keeps what it is told."""

    def __init__(self) -> None:
        self.curves: list[tuple[int, dict[str, float]]] = []
        self.words: list[tuple[int, str, str]] = []
        self.closed = 0

    def scalars(self, step, values):
        self.curves.append((step, dict(values)))

    def event(self, step, title, words):
        self.words.append((step, title, words))

    def close(self):
        self.closed += 1


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    training = GuardedTraining(folder)
    training.until_nan(6)
    training.steps(3)
    training.guard.close()
    return folder


def test_a_run_that_is_over_is_copied_whole(run):
    book = Book()
    assert mirror(run, book) == 10
    assert [step for step, _ in book.curves] == list(range(1, 11))
    assert [values["stayfinite/vetoes"] for _, values in book.curves] == [0.0] * 6 + [1.0] * 4
    assert math.isnan(book.curves[6][1]["stayfinite/loss"])
    assert set(book.curves[0][1]) == {f"stayfinite/{name}" for name in ("loss", "grad_norm", "lr", "vetoes", "bounded")}
    assert [title for _, title, _ in book.words] == ["veto", "autopsy"]
    assert "bad-data-row" in book.words[1][2]
    assert book.closed == 1


def test_a_run_is_followed_while_it_is_written(tmp_path):
    book = Book()
    training = GuardedTraining(tmp_path)
    with following(tmp_path, book, every=0.02):
        training.steps(4)
        deadline = time.monotonic() + 100
        while len(book.curves) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(book.curves) == 4
        training.steps(3, NAN)
        training.guard.close()
    assert [step for step, _ in book.curves] == list(range(1, 8))
    assert [step for step, title, _ in book.words if title == "veto"] == [5, 6, 7]
    assert book.closed == 1


def test_half_a_line_is_waited_for_and_what_was_there_before_is_not_told_again(tmp_path):
    line = json.dumps({"version": 1, "step": 2, "loss": 0.5, "decision": "accept"})
    steps = tmp_path / "steps.jsonl"
    steps.write_text('{"version": 1, "step": 1, "loss": 1.0, "decision": "veto"}\nrubbish\n' + line[:20])
    book = Book()
    with following(tmp_path, book, every=0.02):
        time.sleep(0.1)
        with steps.open("a") as file:
            file.write(line[20:] + "\n")
    assert book.curves == [(2, {"stayfinite/loss": 0.5, "stayfinite/vetoes": 1.0, "stayfinite/bounded": 0.0})]


def test_a_logger_that_fails_is_dropped_with_a_warning_and_the_others_go_on(run):
    class Broken(Book):
        def scalars(self, step, values):
            raise OSError("the disk is full")

    broken, book = Broken(), Book()
    with pytest.warns(SinkFailed, match="the disk is full"):
        mirror(run, broken, book)
    assert len(book.curves) == 10
    assert broken.closed == 0


def test_tensorboard_reads_it(run, tmp_path):
    mirror(run, TensorBoardSink(tmp_path))
    board = EventAccumulator(str(tmp_path)).Reload()
    assert [each.step for each in board.Scalars("stayfinite/grad_norm")] == list(range(1, 11))
    assert [each.value for each in board.Scalars("stayfinite/vetoes")] == [0.0] * 6 + [1.0] * 4
    assert math.isnan(board.Scalars("stayfinite/loss")[6].value)
    words = [each.tensor_proto.string_val[0].decode() for each in board.Tensors("stayfinite/events/text_summary")]
    assert any("bad-data-row" in each for each in words)


def test_our_own_reader_of_tensorboards_files_reads_it(run, tmp_path):
    from stayfinite.readers.logs import read_log

    mirror(run, TensorBoardSink(tmp_path))
    (file,) = tmp_path.iterdir()
    (series,) = read_log(file)
    assert series.last.step == 10
    assert series.last.loss is not None
    assert series.last.grad_norm is not None


@pytest.fixture
def wandb_at_leisure(monkeypatch):
    """Its service may take long to start: on a busy machine half a minute, which is what it is given otherwise."""
    for name, value in {"SILENT": "true", "X_SERVICE_WAIT": "200", "INIT_TIMEOUT": "200"}.items():
        monkeypatch.setenv(f"WANDB_{name}", value)


def wandb_records(folder: Path) -> list[Any]:
    """What W&B has written for its server: records in blocks of 32 KiB, each with a header of 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = (each for each in folder.rglob("*.wandb") if not each.parent.is_symlink())
    content, place, piece, records = file.read_bytes(), 7, b"", []
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, place)
        if place + 7 + length > len(content):
            break  # its service is still writing
        piece += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            records.append(Record.FromString(piece))
            piece = b""
    return records


def wandb_history(folder: Path) -> list[dict[str, float]]:
    # finish() returns before its service has written everything; the last record is that of the end.
    deadline = time.monotonic() + 100
    records = wandb_records(folder)
    while "exit" not in {each.WhichOneof("record_type") for each in records}:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        records = wandb_records(folder)
    return [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in each.history.item}
        for each in records
        if each.WhichOneof("record_type") == "history"
    ]


def test_wandb_has_it(run, tmp_path, wandb_at_leisure):
    mirror(run, WandbSink(project="first", mode="offline", dir=tmp_path))
    history = wandb_history(tmp_path)
    steps = [line for line in history if "stayfinite/loss" in line]
    assert [line["stayfinite/step"] for line in steps] == list(range(1, 11))
    assert [line["stayfinite/vetoes"] for line in steps] == [0.0] * 6 + [1.0] * 4
    (table,) = tmp_path.rglob("*.table.json")
    assert [row[1] for row in json.loads(table.read_text())["data"]] == ["veto", "autopsy"]


def test_a_wandb_run_of_the_loop_is_not_disturbed(run, tmp_path, wandb_at_leisure):
    import wandb

    own = wandb.init(project="first", mode="offline", dir=tmp_path / "own")
    own.log({"mine": 1.0}, step=1)
    sink = WandbSink(mode="offline", dir=tmp_path / "ours")
    mirror(run, sink)
    assert wandb.run is own
    own.log({"mine": 2.0}, step=2)
    own.finish()
    assert [line["mine"] for line in wandb_history(tmp_path / "own")] == [1.0, 2.0]
    assert len([line for line in wandb_history(tmp_path / "ours") if "stayfinite/loss" in line]) == 10


TRACKIO = """
import sys
from stayfinite.integrations.loggers import TrackioSink, mirror
mirror(sys.argv[1], TrackioSink(project="first", name="one", auto_log_gpu=False, auto_log_cpu=False))
from trackio.sqlite_storage import SQLiteStorage
logs = SQLiteStorage.get_logs("first", "one")
print(len(logs), logs[-1]["stayfinite/vetoes"], logs[-1]["step"])
"""


def test_trackio_has_it(run, tmp_path, monkeypatch):
    # It decides where it writes when it is loaded.
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    done = subprocess.run([sys.executable, "-c", TRACKIO, str(run)], capture_output=True, text=True, check=False)
    assert "10 1.0 10" in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize(
    ("sink", "package"), [(TensorBoardSink, "torch.utils.tensorboard"), (WandbSink, "wandb"), (TrackioSink, "trackio")]
)
def test_a_missing_logger_names_the_line_that_installs_it(monkeypatch, sink, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=r"pip install 'stayfinite\[loggers\]'"):
        sink("somewhere")


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no steps.jsonl"):
        mirror(tmp_path / "nothing", Book())
    with pytest.raises(UsageError, match="above 0"), following(tmp_path, Book(), every=0):
        pass


def test_loading_the_module_loads_no_logger():
    names = ("wandb", "trackio", "tensorboard")
    code = f"import sys, stayfinite.integrations.loggers; print([n for n in {names} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
    assert loggers.__all__


def test_a_refused_step_is_an_alert_of_wandb_and_a_mark_of_tensorboard(run, tmp_path, wandb_at_leisure):
    mirror(run, WandbSink(project="first", mode="offline", dir=tmp_path / "wandb"), TensorBoardSink(tmp_path / "board"))
    wandb_history(tmp_path / "wandb")  # waits for the end
    alerts = [each.alert for each in wandb_records(tmp_path / "wandb") if each.WhichOneof("record_type") == "alert"]
    assert [each.title for each in alerts] == ["stayfinite: veto", "stayfinite: autopsy"]
    assert "bad-data-row" in alerts[1].text
    board = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [each.step for each in board.Scalars("stayfinite/marks/veto")] == [7]
