"""Records of a run: settings in run.json, losses in steps.jsonl, outcome in result.json, and the best model."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stayfinite.errors import TrainingDiverged, UsageError
from stayfinite.readers.runs.reader import read_object
from stayfinite.recipes.running.directories import mend, replacing, write_whole
from stayfinite.recipes.settings import Refusing

RUN, RESULT = "run.json", "result.json"
PLAN = ("steps", "minutes", "ends")
"""Keys of run.json that plan the length of this launch."""
VERSION = 1
STARTS = ("start", "restart")
"""The guard's events at the first step of a process."""
LONGEST = 100 * 365 * 24 * 60
"""Minutes; longer means no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Numbers all recipes have; each result adds its scores."""

    first_loss: float
    last_loss: float
    steps: int
    seconds: float
    directory: Path

    def numbers(self) -> dict[str, Any]:
        """For result.json."""
        return {
            "steps": self.steps, "seconds": round(self.seconds, 1), "first_loss": self.first_loss,
            "last_loss": self.last_loss,
        }  # fmt: skip


def write_launch(directory: Path, recipe: str, config: Any, **more: Any) -> None:
    """Write recipe and settings to run.json. Keeps the guard's entries, drops an earlier plan."""
    directory.mkdir(parents=True, exist_ok=True)
    known = read_record(directory / RUN) if (directory / RUN).exists() else {"version": VERSION, "launches": []}
    known = {name: value for name, value in known.items() if name not in PLAN}
    write_record(directory / RUN, known | {"recipe": recipe, "config": asdict(config)} | more)


def write_end(directory: Path, minutes: float | None, *, used: float = 0.0) -> None:
    """Write the time limit and the end to run.json, counting from now.

    Arguments:
        minutes: of the whole training; None writes nothing.
        used: minutes used by earlier processes.
    """
    if minutes is None or not minutes <= LONGEST:
        return
    ends = datetime.now(UTC) + timedelta(minutes=max(0.0, minutes - used))
    write_record(
        directory / RUN,
        read_record(directory / RUN) | {"minutes": minutes, "ends": ends.isoformat(timespec="seconds")},
    )


def read_launch(directory: str | os.PathLike[str], recipe: str) -> dict[str, Any]:
    """The settings a run of this recipe was started with. Raises UsageError if not a run of this recipe."""
    path = Path(directory) / RUN
    if not path.is_file():
        raise UsageError(f"{directory} is not a run directory: {RUN} is missing", fix="name its --output-dir")
    record = read_record(path)
    if record.get("recipe") != recipe or not isinstance(record.get("config"), dict):
        raise UsageError(
            f"{path} is from {record.get('recipe') or 'another program'}, not {recipe}",
            fix="choose another --output-dir",
        )
    return dict(record["config"])


def settings_of(kind: type[Any], recorded: Mapping[str, Any]) -> Any:
    """Recorded settings as their dataclass: lists become tuples, unknown names are skipped."""
    known = {name: value for name, value in recorded.items() if name in kind.__dataclass_fields__}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()})


def write_result(directory: Path, record: Mapping[str, Any]) -> None:
    """Write result.json, with non-finite numbers as null."""
    write_record(directory / RESULT, {"version": VERSION} | _plain(dict(record)))


def finished_result(directory: Path, steps: int) -> dict[str, Any] | None:
    """The result of a run that has taken all its steps, else None."""
    record = read_object(directory / RESULT)
    return record if record is not None and int(record.get("steps") or 0) >= steps else None


def read_record(path: Path, fix: str = "move it away, or use another --output-dir") -> dict[str, Any]:
    """Read a JSON object; {} for other JSON. Raises UsageError if unreadable."""
    with Refusing(f"cannot read {path}", fix):
        record = json.loads(path.read_text(encoding="utf-8"))
    return record if isinstance(record, dict) else {}


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record atomically."""
    with replacing(path) as file:
        file.write(json.dumps(record, indent=1, ensure_ascii=False))


def losses_of(directory: Path) -> list[float]:
    """Finite losses by step; of a repeated step, the later one."""
    found: dict[int, float] = {}
    for record in _records(directory / "steps.jsonl"):
        with suppress(ValueError, KeyError, TypeError):  # a step without a loss
            if math.isfinite(loss := float(record["loss"])):
                found[int(record["step"])] = loss
    return [found[step] for step in sorted(found)]


def seconds_of(directory: Path) -> float:
    """Seconds that the processes of a run trained, each up to its last event (a checkpoint, if it was killed)."""
    spans: list[tuple[datetime, datetime]] = []
    fresh = False
    for record in _records(directory / "events.jsonl"):
        try:
            at, event = datetime.fromisoformat(record["time"]), record["event"]
        except (ValueError, KeyError, TypeError):
            continue
        if event == "resume":
            spans.append((at, at))
        elif event in STARTS and not fresh:
            spans = [(at, at)]  # from the beginning: earlier processes left nothing
        elif spans and event != "checkpoint-passed-over":  # which comes before `resume`
            spans[-1] = (spans[-1][0], at)
        fresh = event == "resume" or (fresh and event not in STARTS)
    return sum((last - first).total_seconds() for first, last in spans)


def _records(path: Path) -> Iterator[Any]:
    """The JSON values in a file of lines, if there is one; a line truncated by a kill is passed over."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    for line in lines:
        with suppress(ValueError):
            yield json.loads(line)


def first_and_last(losses: list[float], window: int = 10) -> tuple[float, float]:
    """The first loss and the mean of the last few; NaN if there are none."""
    if not losses:
        return math.nan, math.nan
    tail = losses[-window:]
    return losses[0], sum(tail) / len(tail)


def require_one_finite(directory: Path, steps: int) -> None:
    """Raise TrainingDiverged if no step had a finite loss, so that nothing was trained."""
    if not losses_of(directory):
        raise TrainingDiverged(
            f"all {steps} steps had a NaN or inf loss: nothing was trained",
            step=steps,
            code="loss-not-finite",
            fix=f"see {directory / 'incidents'} for the cause; --check stop finds most causes before step 1",
        )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


WORST = -1e30
"""Value of a non-finite score."""


class Best:
    """Keeps ``best/`` in a directory, replaced atomically.

    Arguments:
        output: directory of the run.
        metric: the deciding score; higher is better unless ``lowest``.
        patience: evaluations without improvement before stopping; 0 for never.
        lowest: lower is better, as for a loss.
    """

    def __init__(self, output: Path, *, metric: str, patience: int = 0, lowest: bool = False) -> None:
        self._output = output
        self._metric = metric
        self._sign = -1.0 if lowest else 1.0
        self.patience = patience
        self.history: list[dict[str, Any]] = []

    @property
    def over(self) -> bool:
        """Whether patience ran out."""
        if not self.patience or not self.history:
            return False
        values = [entry["value"] for entry in self.history]
        return len(values) - 1 - values.index(max(values)) >= self.patience

    @property
    def scores(self) -> dict[str, Any]:
        """Scores of the best model; empty before the first evaluation."""
        return dict(max(self.history, key=lambda entry: float(entry["value"]), default={}))

    def judge(self, step: int, scores: Mapping[str, float], save: Callable[[Path], None] | None = None) -> bool:
        """Record an evaluation and save the model if it is the best. Returns whether it is.

        Arguments:
            step: a repeated step replaces its earlier entry.
            scores: by name.
            save: writes the model into a directory.
        """
        value = self._sign * float(scores[self._metric])
        value = value if math.isfinite(value) else WORST
        self.history = [entry for entry in self.history if entry["step"] != step]
        better = all(value > entry["value"] for entry in self.history)
        self.history.append({"step": step, "value": value, **scores})
        if better and save is not None:
            write_whole(self.directory, save)
        write_record(self._record, {"version": 1, "evaluations": self.history})
        return better

    def recall(self, step: int | None = None) -> None:
        """Restore the history up to ``step``; later evaluations will run again."""
        mend(self.directory)
        if self._record.exists():
            found = json.loads(self._record.read_text(encoding="utf-8"))["evaluations"]
            self.history = [entry for entry in found if step is None or entry["step"] <= step]

    def knows(self, step: int) -> bool:
        return any(entry["step"] == step for entry in self.history)

    @property
    def directory(self) -> Path:
        return self._output / "best"

    @property
    def _record(self) -> Path:
        return self._output / "evaluations.json"
