"""Destinations for curves and texts. Each logger is imported when its sink is built."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

from stayfinite.errors import MissingExtra
from stayfinite.integrations.loggers.reading import ALARMING

ALERT_PAUSE = 300
"""Seconds before W&B alerts again for the same kind of event."""


class Sink(Protocol):
    """Destination for curves and texts; implement these three methods for your own."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Values of a step by name; some may be NaN or infinite."""

    def event(self, step: int, title: str, words: str) -> None:
        """An event: a veto, a rollback, a finding, an autopsy."""

    def close(self) -> None:
        """No more data follows."""


class TensorBoardSink:
    """Event files for TensorBoard: curves under ``stayfinite/``, words under Text, a mark at the step of each event.

    Arguments:
        directory: for ``tensorboard --logdir``.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard", self) from error
        self._writer: Any = SummaryWriter(os.fspath(directory))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def event(self, step: int, title: str, words: str) -> None:
        """Write an event's text, and a point under ``stayfinite/marks``."""
        self._writer.add_text("stayfinite/events", words, step)
        self._writer.add_scalar(f"stayfinite/marks/{title}", 1.0, step)

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """A Weights & Biases run beside the loop's own. Refused steps and findings are also alerts.

    W&B counts a step at every call and drops values for earlier ones; so by default the curves go to a separate run in
    the same group, and the loop's logging is not disturbed.

    Arguments:
        run: a ``wandb`` run without other step logging; by default a new one.
        settings: for ``wandb.init``, if it is called.
    """

    def __init__(self, run: Any = None, **settings: Any) -> None:
        try:
            import wandb
        except ImportError as error:
            raise _missing("wandb", self) from error
        self._own = run is None
        if run is None and wandb.run is not None:
            present = wandb.run
            beside = {"project": present.project, "group": present.group or present.id, "reinit": "create_new"}
            settings = {**beside, "job_type": "stayfinite", **settings}
        self._run: Any = wandb.init(**settings) if run is None else run
        self._table = wandb.Table(columns=["step", "event", "words"])
        self._run.define_metric("stayfinite/step", hidden=True)
        for names in ("stayfinite/*", "evaluation/*"):
            self._run.define_metric(names, step_metric="stayfinite/step")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, "stayfinite/step": step})

    def event(self, step: int, title: str, words: str) -> None:
        self._table.add_data(step, title, words)
        self._run.summary[f"stayfinite/last_{title}"] = words
        if title in ALARMING:
            # W&B groups alerts by title: a hundred vetoes in a row are one message.
            self._run.alert(title=f"stayfinite: {title}", text=words, level="WARN", wait_duration=ALERT_PAUSE)

    def close(self) -> None:
        """Send the table of events; close a run that was created here."""
        if self._table.data:
            self._run.log({"stayfinite/events": self._table})
        if self._own:
            self._run.finish()


class TrackioSink:
    """A trackio run, given or new. Events become alerts.

    Arguments:
        run: from ``trackio.init``; by default a new one from ``settings``.
        settings: for ``trackio.init``, if it is called.
    """

    def __init__(self, run: Any = None, **settings: Any) -> None:
        try:
            import trackio
        except ImportError as error:
            raise _missing("trackio", self) from error
        self._own = run is None
        self._run: Any = trackio.init(**settings) if run is None else run

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def event(self, step: int, title: str, words: str) -> None:
        self._run.alert(title=f"stayfinite: {title} at step {step}", text=words)

    def close(self) -> None:
        """Close a run that was created here."""
        if self._own:
            self._run.finish()


def _missing(package: str, sink: object) -> MissingExtra:
    return MissingExtra.of(package, extra="loggers", what_for=type(sink).__name__)
