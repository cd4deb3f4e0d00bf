"""Read the settings of a config file of any kind."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from stayfinite.core.settings import Setting, Settings
from stayfinite.readers.configs.code_faults import faults_in_lines
from stayfinite.readers.configs.commands import read_shell, settings_of_command
from stayfinite.readers.configs.files import as_text, kind_of, read_content
from stayfinite.readers.configs.literals import parse_json
from stayfinite.readers.configs.notes import notes_of, read_notes, read_outline
from stayfinite.readers.configs.script_settings import is_python
from stayfinite.readers.configs.structured_files import Broken, parse_ini, parse_toml, parse_yaml
from stayfinite.readers.configs.tree import MOST_SETTINGS, Node, settings_of
from stayfinite.readers.configs.vocabulary import without_secrets

if TYPE_CHECKING:
    from stayfinite.readers.configs.program.state import Surroundings


MOST_QUOTED = 400
"""Lines among which a text may quote code."""


def read_config(path: str | os.PathLike[str], surroundings: Surroundings | None = None) -> Settings:
    """The settings of a file of any kind; nothing is executed.

    A script is read for ``surroundings``; by default an arbitrary CUDA GPU and no arguments. Anything unintelligible is
    skipped and mentioned in ``notes``. Raises UsageError if there is no file to read.
    """
    content = read_content(path)
    kind = kind_of(content.source, content.data[:4096])
    if kind == "pickle":
        from stayfinite.readers.configs.pickles import read_pickle

        settings = read_pickle(path, content)
    else:
        text = as_text(content.data)
        if text is None:
            return Settings(notes=[(content.source, "not read: not text and not a supported file type")])
        settings = settings_of_kind(kind, text, content.source, surroundings)
    if content.cut and kind != "pickle":
        settings = Settings(notes=[(content.source, content.cut)]) + settings
    return without_secrets(settings)


def settings_of_kind(kind: str, text: str, source: str, surroundings: Surroundings | None = None) -> Settings:
    """The settings of a text of a known kind."""
    if kind == "yaml":
        return _read_yaml(text, source)
    if kind == "json":
        nodes, whole = parse_json(text)
        notes = [] if whole else [(source, "incomplete: read up to the error")]
        return _from_nodes(nodes, source) + Settings(notes=notes)
    if kind == "toml":
        return _read_toml(text, source)
    if kind == "ini":
        return _from_nodes([parse_ini(text)], source)
    if kind == "shell":
        return read_shell(text, source, settings_of_kind)
    if kind not in ("script", "notebook") and not is_python(text):
        return read_notes(text, source) + _quoted(text, source)
    from stayfinite.readers.configs.notebooks import read_notebook  # with the evaluator of scripts, which is large
    from stayfinite.readers.configs.program.state import ANY_CARD
    from stayfinite.readers.configs.scripts import read_script

    if kind == "script":
        return read_script(text, source, surroundings=surroundings or ANY_CARD)
    if kind == "notebook":
        return read_notebook(text, source, settings_of_kind, surroundings or ANY_CARD)
    found = read_script(text, source)
    # A printed `Namespace(lr=0.1)` is an expression that sets nothing. Every line is kept as a note.
    return (Settings(found, notes_of(text, source)) if found else read_notes(text, source)) + _quoted(text, source)


def _quoted(text: str, source: str) -> Settings:
    """What the code in a text shows; what was left out of it could excuse each fault."""
    faults = faults_in_lines(text.split("\n", MOST_QUOTED)[:MOST_QUOTED], source)
    return Settings(code_faults=[replace(each, sure=False) for each in faults])


def _read_yaml(text: str, source: str) -> Settings:
    try:
        return _from_nodes(parse_yaml(text), source)
    except Broken as problem:
        note = (source, f"read line by line: invalid YAML: {problem}")
        return Settings(read_outline(text, source)[:MOST_SETTINGS], [note])


def _read_toml(text: str, source: str) -> Settings:
    try:
        return _from_nodes([parse_toml(text)], source)
    except Broken as problem:
        note = (source, f"read line by line: invalid TOML: {problem}")
        return Settings(settings_of(parse_ini(text), source), [note])


def _overrides(node: Node, source: str) -> list[Setting]:
    """Hydra's `overrides.yaml`: a list such as `optimizer.lr=3e-4`."""
    if not isinstance(node.value, list):
        return []
    texts = [(each.value, each.line) for each in node.value[:MOST_SETTINGS] if isinstance(each.value, str)]
    return [
        each for text, line in texts if "=" in text for each in settings_of_command(text, source, line, kind="file")
    ]


def _from_nodes(nodes: list[Node], source: str) -> Settings:
    settings = [setting for node in nodes for setting in (_overrides(node, source) or settings_of(node, source))]
    notes = [(source, f"only the first {MOST_SETTINGS:,} settings were read")] if len(settings) >= MOST_SETTINGS else []
    return Settings(settings[:MOST_SETTINGS], notes)
