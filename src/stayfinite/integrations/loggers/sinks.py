"""Where curves and words can go. Each logger is loaded when its sink is built, and not before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

from stayfinite.errors import MissingExtra
from stayfinite.integrations.loggers.reading import ALARMING

ALERT_PAUSE = 300
"""Seconds before W&B alerts of the same kind of event again."""


class Sink(Protocol):
    """Anything that takes curves and words; write your own with these three methods."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers of a step, by name; some may be NaN or infinite."""

    def event(self, step: int, title: str, words: str) -> None:
        """Something happened: a veto, a rollback, a finding, an autopsy."""

    def close(self) -> None:
        """There will be no more."""


class TensorBoardSink:
    """Event files for TensorBoard: curves under ``stayfinite/``, words under Text, a mark at the step of each event.

    Arguments:
        directory: what ``tensorboard --logdir`` is given.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard", self) from error
        self._writer: Any = SummaryWriter(os.fspath(directory))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """The numbers of a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def event(self, step: int, title: str, words: str) -> None:
        """Something happened: its words, and a point under ``stayfinite/marks``."""
        self._writer.add_text("stayfinite/events", words, step)
        self._writer.add_scalar(f"stayfinite/marks/{title}", 1.0, step)

    def close(self) -> None:
        """Write the rest."""
        self._writer.close()


class WandbSink:
    """A run of Weights & Biases, beside the one that the loop may have. Refused steps and findings are alerts too.

    W&B counts a step at every call and drops what is logged for an earlier one; so by default the curves go to a run of
    their own, in the group of the present one, and what the loop logs is not disturbed.

    Arguments:
        run: a run of ``wandb`` that nobody else logs steps to; by default a new one.
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
        """The numbers of a step."""
        self._run.log({**values, "stayfinite/step": step})

    def event(self, step: int, title: str, words: str) -> None:
        """Something happened."""
        self._table.add_data(step, title, words)
        self._run.summary[f"stayfinite/last_{title}"] = words
        if title in ALARMING:
            # W&B sends one alert of a title at a time: a hundred vetoes in a row are one message.
            self._run.alert(title=f"stayfinite: {title}", text=words, level="WARN", wait_duration=ALERT_PAUSE)

    def close(self) -> None:
        """Send the table of what happened; a run of one's own ends here."""
        if self._table.data:
            self._run.log({"stayfinite/events": self._table})
        if self._own:
            self._run.finish()


class TrackioSink:
    """A run of trackio: a given one, or one of its own. What happens becomes an alert.

    Arguments:
        run: what ``trackio.init`` returned; by default one that ``settings`` start.
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
        """The numbers of a step."""
        self._run.log(dict(values), step=step)

    def event(self, step: int, title: str, words: str) -> None:
        """Something happened."""
        self._run.alert(title=f"stayfinite: {title} at step {step}", text=words)

    def close(self) -> None:
        """A run of one's own ends here."""
        if self._own:
            self._run.finish()


def _missing(package: str, sink: object) -> MissingExtra:
    return MissingExtra.of(package, extra="loggers", what_for=type(sink).__name__)
