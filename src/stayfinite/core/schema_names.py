"""Kinds of JSON that stayfinite prints and writes, and the version of their format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PRINTED: Mapping[str, str] = {
    "finding": "a known failure found in the run (in every answer; `tail --json` one per line)",
    "diagnosis": "`diagnose --json`",
    "check": "`check --json`",
    "diff": "`diff --json`",
    "scan": "`scan --json`",
    "doctor": "`doctor --json` of a program's own loop; for a guarded framework, a diagnosis with three more keys",
    "replay": "`replay --json`",
    "status": "state of one run: `watch --json`, a line on every change",
    "watch": "`watch --once --json`: all runs",
    "address": "`watch --web --json`: its first line",
    "hardware": "`hardware --json`",
    "report": "`report --json`",
    "plot": "`plot --json`",
    "rule": "`explain --json`; of several rules a list of these",
    "rules": "`rules --json`",
    "demo": "`demo --json`",
    "evaluation": "`evaluate --json`",
    "translation": "`translate --json`, a line each",
    "generation": "`generate --json`",
    "export": "`export --json`",
    "precision": "`precision --json`; precision.json without the key `schema`",
    "updates": "`precision --updates --json`",
    "rescale": "`rescale --json`",
    "chat_test": "`sft test --json`",
    "error": "with --json, when a command failed (exit code 2)",
}
"""Output of commands with --json."""

WRITTEN: Mapping[str, str] = {
    "run": "run.json in a run directory",
    "step": "a line of steps.jsonl",
    "event": "a line of events.jsonl",
    "incident": "incidents/0001/incident.json",
    "autopsy": "incidents/0001/autopsy.json",
}
"""Files of a guarded run; these have the key `"version"` instead of `"schema"`."""

VERSION = 1
"""Version of all formats; raised when a key is removed or changes its meaning, not when one is added."""


def tag(name: str) -> str:
    """Value of the key `schema`: ``stayfinite.finding/1``."""
    assert name in PRINTED or name in WRITTEN, name
    return f"stayfinite.{name}/{VERSION}"


def tagged(name: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with its schema as the first key."""
    return {"schema": tag(name), **record}
