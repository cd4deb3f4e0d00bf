"""End of a command: report an error, and choose the exit code."""

import difflib
import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any, TypeVar

from stayfinite.core.schema_names import tagged
from stayfinite.errors import MissingExtra, NotReady, StayfiniteError, TrainingStopped
from stayfinite.recipes.running.once import print_once

Settings = TypeVar("Settings")

EXTRAS = {
    "lightning": "lightning", "pyarrow": "data", "bitsandbytes": "quant", "matplotlib": "report", "gguf": "smollm2",
    "mcp": "mcp", "tensorboard": "loggers", "wandb": "loggers", "trackio": "loggers",
} | dict.fromkeys(
    ("transformers", "tokenizers", "accelerate", "peft", "sentencepiece", "sacrebleu", "PIL", "numpy"), "recipes"
)  # fmt: skip
"""Optional packages by import name, and the stayfinite extra that installs each."""


def exit_code(
    command: str, work: Callable[[], int], *, also: tuple[type[Exception], ...] = (), as_json: bool = False
) -> int:
    """Run a command, and report its errors.

    Arguments:
        command: as typed, after `stayfinite`.
        also: further errors that the user can fix, such as OSError for file access.
        as_json: also report errors as JSON on stdout.

    Returns:
        The result of the work; 1 if a check refused to start, 2 on wrong use; a stopped training has its own code.
    """
    told: tuple[type[Exception], ...] = (StayfiniteError, *also)
    try:
        return work()
    except BrokenPipeError:
        raise  # the reader closed the pipe
    except told as error:
        code = error.exit_code if isinstance(error, TrainingStopped) else 1 if isinstance(error, NotReady) else 2
        return tell_error(command, error, as_json=as_json, code=code)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise  # not an optional package: a bug, so show it
        missing = MissingExtra.of(package, extra=EXTRAS[package], what_for="this command")
        return tell_error(command, missing, as_json=as_json)
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # torch's error, without importing torch
            raise
        return tell_error(command, _no_memory(error), as_json=as_json)


def run_command(
    kind: type[Settings],
    arguments: Sequence[str],
    command: str,
    work: Callable[[Settings], int],
    *,
    also: tuple[type[Exception], ...] = (),
    tells_interrupt: bool = False,
) -> int:
    """Read the flags of a command and run it; see `exit_code`. Exits with a message on wrong flags.

    ``tells_interrupt``: Ctrl-C means that a result is missing, so say it.
    """
    from stayfinite.flags import parsed  # tyro is slow to load, and some commands do without

    settings = parsed(kind, arguments, f"stayfinite {command}", pairs=False)
    as_json = getattr(settings, "json", False) or getattr(settings, "format", "") == "json"
    try:
        return exit_code(command, lambda: work(settings), also=also, as_json=as_json)
    except KeyboardInterrupt:
        if not tells_interrupt:
            raise
        print(f"stayfinite {command}: interrupted; no result", file=sys.stderr)
        return 130


def command(
    kind: type[Settings], *, also: tuple[type[Exception], ...] = (), tells_interrupt: bool = False
) -> Callable[[Callable[[Settings], int]], Callable[[Sequence[str]], int]]:
    """Make a function of its settings the ``run(arguments) -> exit code`` of the command its module is named after."""

    def ready(work: Callable[[Settings], int]) -> Callable[[Sequence[str]], int]:
        name = work.__module__.rpartition(".")[2]
        return lambda arguments: run_command(kind, arguments, name, work, also=also, tells_interrupt=tells_interrupt)

    return ready


def given(settings: object, *names: str) -> dict[str, Any]:
    """These settings by name, as arguments for a function whose parameters are called the same."""
    return {name: getattr(settings, name) for name in names}


def print_json(kind: str, record: Mapping[str, Any], *, indent: int | None = 1, **options: Any) -> None:
    """Print the JSON of a command with the name of its schema; ``options`` are those of `json.dumps`."""
    print(json.dumps(tagged(kind, record), indent=indent, **options))


def tell(
    kind: str, record: Mapping[str, Any], show: Callable[[Any, Any], object], *, as_json: bool, **options: Any
) -> None:
    """Print what a command found: its JSON, or what ``show(record, console)`` draws."""
    if as_json:
        print_json(kind, record, **options)
    else:
        from stayfinite.report.standard_output import StandardOutput

        show(record, StandardOutput())


@contextmanager
def without_numpy_warning() -> Iterator[None]:
    """Context without torch's warning on first use that the bare install has no numpy."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy", category=UserWarning)
        yield


def tell_error(command: str, error: Exception | str, *, as_json: bool = False, code: int = 2) -> int:
    """Print why a command failed on stderr, and with --json on stdout; return its exit code."""

    def show() -> None:
        if _in_full.get() and isinstance(error, Exception):
            traceback.print_exception(error)
        print(f"stayfinite {command}: {error}", file=sys.stderr, flush=True)

    print_once(str(error), show)
    if as_json:
        what, fix = (error.message, error.fix) if isinstance(error, StayfiniteError) else (str(error), "")
        print_json("error", {"command": command, "error": what, "fix": fix, "exit_code": code})
    return code


def _no_memory(error: RuntimeError) -> StayfiniteError:
    what = str(error).splitlines()[0] if str(error) else "CUDA out of memory"
    return StayfiniteError(
        what,
        fix=(
            "lower --batch-size and raise --accumulation, shorten sequences, or add --gradient-checkpointing. The "
            "same command resumes from the last checkpoint"
        ),
    )


_in_full: ContextVar[bool] = ContextVar("in_full", default=False)


@contextmanager
def told_in_full() -> Iterator[None]:
    """Context that shows errors with their tracebacks, for `stayfinite -v`."""
    token = _in_full.set(True)
    try:
        yield
    finally:
        _in_full.reset(token)


def run_program(
    command: str,
    kind: str,
    about: str,
    programs: Mapping[str, tuple[str, str]],
    arguments: Sequence[str],
    hint: str = "",
) -> int:
    """Run the program named by the first argument.

    Arguments:
        command: as typed, after `stayfinite`.
        kind: what a program is called: recipe, verb.
        about: what the command does.
        programs: the module of each, with its ``main(arguments)``, loaded only when called, and what it does.
        hint: printed after the list.

    Returns:
        0 if it was done, 1 if its check refused to start, 2 on wrong use; a stopped training has its own code.
    """
    width = max(map(len, programs))
    lines = "\n".join(f"  {name:<{width}}  {what}" for name, (_, what) in programs.items())
    usage = (
        f"usage: stayfinite {command} {kind.upper()} [OPTIONS]\n\n{about}\n\n{lines}\n\n"
        f"stayfinite {command} {kind.upper()} --help explains its settings{hint}."
    )
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name, *flags = arguments
    if name not in programs:
        close = difflib.get_close_matches(name, programs, n=1)
        meant = f" Did you mean {close[0]!r}?" if close else ""
        print(f"stayfinite {command}: no {kind} {name!r}.{meant}\n\n{usage}", file=sys.stderr)
        return 2

    def work() -> int:
        import_module(programs[name][0]).main(flags)
        return 0

    return exit_code(f"{command} {name}", work)
