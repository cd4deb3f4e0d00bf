"""`%load_ext stayfinite`: live curves of every guard in the cell that trains, and the commands as `%stayfinite`."""

import shlex
from typing import Any

from stayfinite.guard.telling.live import Draw, Switch

HELP = "%stayfinite on|off, or a command: %stayfinite check train.yaml, %stayfinite diagnose train.log"


def load_ipython_extension(ipython: Any) -> None:
    """Called by `%load_ext stayfinite`: turn on live curves and register `%stayfinite`."""
    ipython.register_magic_function(magic, "line", "stayfinite")
    if getattr(ipython, "kernel", None) is not None:  # a terminal has no cell to draw in
        Switch.place = _cell


def unload_ipython_extension(ipython: Any) -> None:
    """Called by `%unload_ext stayfinite`."""
    Switch.place = None
    ipython.magics_manager.magics["line"].pop("stayfinite", None)


def magic(line: str) -> Any:
    """`%stayfinite off`, `%stayfinite check train.yaml`, ...; check and diagnose return their result."""
    words = shlex.split(line)
    if not words:
        print(HELP)  # noqa: T201
    elif words in (["on"], ["off"]):
        Switch.place = _cell if words == ["on"] else None
    elif words[0] == "check" and not any(word.startswith("-") for word in words[1:]):
        from stayfinite.inspection.files.inspecting import inspect_files

        return inspect_files(words[1:])
    elif words[0] == "diagnose" and not any(word.startswith("-") for word in words[1:]):
        from stayfinite.diagnosis.diagnose import diagnose

        return diagnose(*words[1:])
    else:
        import subprocess
        import sys

        done = subprocess.run([sys.executable, "-m", "stayfinite", *words], capture_output=True, text=True, check=False)
        print(done.stdout + done.stderr, end="")  # noqa: T201
    return None


def _cell() -> Draw:
    """A display in the running cell whose content is replaced."""
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)

    def draw(html: str) -> None:
        handle.update(HTML(html))

    return draw
