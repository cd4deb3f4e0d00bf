"""Aim: curves as metrics, events as text at their step, the last of each kind as a run parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stayfinite.errors import MissingExtra
from stayfinite.integrations.loggers.reading import ALARMING


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
