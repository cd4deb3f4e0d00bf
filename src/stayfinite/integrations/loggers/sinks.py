"""Destinations for curves and texts. Each logger is imported when its sink is built."""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from stayfinite.errors import MissingExtra


class AimSink:
    """An Aim run, given or new. Refused steps and findings are also run warnings.

    Arguments:
        run: an ``aim.Run``; by default a new one from ``settings``.
        name: name of a new run.
        settings: for ``aim.Run``: repo, experiment.
    """

    def __init__(self, run: Any = None, *, name: str | None = None, **settings: Any) -> None:
        try:
            import aim
        except ImportError as error:
            raise MissingExtra("AimSink needs aim, which is not installed", fix="pip install aim") from error
        self._own = run is None
        self._run: Any = aim.Run(**settings) if run is None else run
        self._text: Any = aim.Text
        if self._own and name:
            self._run.name = name

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._run.track(value, name=name, step=step)

    def event(self, step: int, title: str, words: str) -> None:
        self._run.track(self._text(words), name="stayfinite/events", step=step)
        self._run["stayfinite", f"last_{title}"] = words
        if title in ALARMING:
            self._run.log_warning(words)

    def close(self) -> None:
        """Close a run that was created here."""
        if self._own:
            self._run.close()


REFUSED = ("veto", "cut", "rollback", "escalate", "stop")
ALARMING = (*REFUSED, "finding", "autopsy")
"""Events worth an alert."""

EXPERIMENT = "stayfinite"
MOST_AT_ONCE = 900
"""Metrics per request; MLflow's limit is 1,000."""
LONGEST_WAIT = 5.0
"""Seconds that a metric waits for others, to save requests."""
LONGEST_TAG = 4900
"""Characters per tag; MLflow's limit is 5,000 or more."""
MOST_STEPS = 200
"""Refused steps listed in a tag."""


class MlflowSink:
    """An MLflow run: the active one, or a new one in the experiment ``stayfinite``.

    Arguments:
        run_dir: the guard's run directory; its report.html, and incident.json and autopsy.json of each incident, become
            artifacts.
        run_id: an existing run to write to.
        name: name of a new run; by default that of the directory.
        experiment: experiment of a new run.
        tracking_uri: MLflow's tracking URI; by default as MLflow is configured.
        batches: upload complete incidents, with batch and weights, so they can be replayed.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        *,
        run_id: str | None = None,
        name: str | None = None,
        experiment: str = EXPERIMENT,
        tracking_uri: str | None = None,
        batches: bool = False,
    ) -> None:
        try:
            import mlflow
            from mlflow.entities import Metric
        except ImportError as error:
            raise MissingExtra("MlflowSink needs mlflow, which is not installed", fix="pip install mlflow") from error
        self._run_dir, self._batches = Path(run_dir), batches
        active = mlflow.active_run() if run_id is None and tracking_uri is None else None
        self._client: Any = mlflow.MlflowClient(tracking_uri)
        self._own = run_id is None and active is None
        self._run_id: str = run_id or (active.info.run_id if active else self._begin(experiment, name))
        self._metric: Any = Metric
        self._waiting: list[Any] = []
        self._sent = time.monotonic()
        self._refused: list[int] = []
        self._findings: list[str] = []

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        self._waiting += [self._metric(_name(name), value, now, step) for name, value in values.items()]
        if len(self._waiting) >= MOST_AT_ONCE or time.monotonic() - self._sent > LONGEST_WAIT:
            self._send()

    def event(self, step: int, title: str, words: str) -> None:
        """Write an event as a tag; refused steps and findings also as a list of all."""
        self._tag(f"last_{title}", words)
        if title in REFUSED:
            self._refused.append(step)
            more = f" and {len(self._refused) - MOST_STEPS} more" if len(self._refused) > MOST_STEPS else ""
            self._tag("refused_steps", ", ".join(map(str, self._refused[:MOST_STEPS])) + more)
        elif title in ALARMING:
            self._findings.append(words)
            self._tag("findings", "\n".join(dict.fromkeys(self._findings)))

    def close(self) -> None:
        """Send the rest and the artifacts; close a run that was created here."""
        self._send()
        report = self._run_dir / "report.html"
        if report.is_file():
            self._client.log_artifact(self._run_id, str(report), "stayfinite")
        for incident in sorted(self._run_dir.glob("incidents/[0-9]*")):
            place = f"stayfinite/incidents/{incident.name}"
            if self._batches:
                self._client.log_artifacts(self._run_id, str(incident), place)
                continue
            for file in (incident / "incident.json", incident / "autopsy.json"):
                if file.is_file():
                    self._client.log_artifact(self._run_id, str(file), place)
        if self._own:
            self._client.set_terminated(self._run_id)

    def _begin(self, experiment: str, name: str | None) -> str:
        found = self._client.get_experiment_by_name(experiment)
        place = found.experiment_id if found else self._client.create_experiment(experiment)
        began: str = self._client.create_run(place, run_name=name or self._run_dir.resolve().name).info.run_id
        return began

    def _tag(self, name: str, value: str) -> None:
        self._client.set_tag(self._run_id, f"stayfinite.{name}", value[:LONGEST_TAG])

    def _send(self) -> None:
        for start in range(0, len(self._waiting), MOST_AT_ONCE):
            self._client.log_batch(self._run_id, metrics=self._waiting[start : start + MOST_AT_ONCE])
        self._waiting, self._sent = [], time.monotonic()


def _name(name: str) -> str:
    """A valid MLflow name: letters, digits and a few signs; loss terms may have any name."""
    return re.sub(r"[^\w./ -]", "_", name, flags=re.ASCII)[:250]


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
        with MissingExtra.unless("tensorboard", extra="loggers", what_for=type(self).__name__):
            from torch.utils.tensorboard import SummaryWriter
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
        with MissingExtra.unless("wandb", extra="loggers", what_for=type(self).__name__):
            import wandb
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
        with MissingExtra.unless("trackio", extra="loggers", what_for=type(self).__name__):
            import trackio
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
