"""``stayfinite check``: check files, data, memory, or the real model and a batch before launch."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from stayfinite.cli.ending import given, print_json, run_command
from stayfinite.diagnosis.gathering import named_like_a_log
from stayfinite.errors import UsageError
from stayfinite.inspection.files.inspecting import inspect_each, inspect_files
from stayfinite.inspection.files.sources import missing_script_of
from stayfinite.inspection.project import Project, find_project, without_ignored
from stayfinite.report.printable import printable

if TYPE_CHECKING:
    from stayfinite.inspection.inspection import Inspection


Format = Literal["text", "json", "sarif", "github", "junit"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check a training before launch. Exit code 0: ready, 1: findings, 2: wrong use.

    Files are read, never executed: `stayfinite check train.yaml`, `train.py`, `notebook.ipynb`, `ds_config.json`, or
    the command in quotes, `stayfinite check 'python train.py --fp16'`. Without files: those named in
    `[tool.stayfinite]` of pyproject.toml, or in stayfinite.toml.
    """

    files: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Configs, scripts, notebooks, a command in quotes, or - for standard input."""

    gpu: str | None = None
    """The GPU to check for: T4, V100, A100, H100, ...; `none` reads scripts as on the CPU."""

    data: tuple[str, ...] = ()
    """Data files to check: csv, tsv, json, jsonl, parquet, arrow, tmx, zip, tar, two aligned texts, a directory; or
    hub:OWNER/NAME."""

    whole: bool = False
    """Read all data; by default only the start of each file above 1 GiB."""

    val: tuple[str, ...] = ()
    """Validation data, to compare with the training data."""

    tokenizer: str | None = None
    """Directory or name of the tokenizer; `bytes` for byte models."""

    max_length: int | None = None
    """Length limit in tokens (bytes for byte models)."""

    source: str | None = None
    """Input text column; guessed by default."""

    target: str | None = None
    """Target text or label column; guessed by default."""

    id: str | None = None
    """Id or group column that must not be in both splits; guessed by default."""

    memory: str | None = None
    """Estimate the training memory of this model: a directory, a config.json, or a name such as t5-small."""

    batch: int = 1
    """Rows per batch, for --memory."""

    seq: int = 512
    """Tokens per row, for --memory."""

    target_seq: int | None = None
    """Tokens per target row of encoder-decoders, for --memory; by default --seq."""

    optimizer: str = "adamw"
    """Optimizer, for --memory: adamw, adamw-fused, adamw-8bit, adafactor, sgd, sgd-plain, lion."""

    lora: int | None = None
    """Train LoRA adapters of this rank only, for --memory."""

    base: Literal["full", "8bit", "4bit"] = "full"
    """Storage of the weights under adapters, for --memory."""

    precision: Literal["fp32", "bf16", "fp16", "pure-bf16"] | None = None
    """Only this precision, for --memory: bf16 and fp16 mean autocast, pure-bf16 means bf16 weights."""

    checkpointing: Literal["on", "off"] | None = None
    """With or without gradient checkpointing only, for --memory."""

    attention: Literal["sdpa", "eager"] | None = None
    """Attention implementation, for --memory; by default that of transformers."""

    padded: bool = False
    """Rows have different lengths (attention mask), for --memory."""

    accumulate: bool = False
    """Gradients are accumulated over batches, for --memory."""

    quick: str | None = None
    """Check a recipe: one forward and backward pass and ten steps. Its flags may follow: `--quick sft --train
    my.jsonl`."""

    build: str | None = None
    """module:function that returns model, optimizer, batch and forward: check the real training."""

    steps: int = 10
    """Steps of the learning test; 0 for none."""

    lr_range: bool = False
    """Find the range of working learning rates, with a plot (with --build)."""

    each: bool = False
    """Check each file alone, not as the files of one run; files without training are skipped. For hooks."""

    format: Format = "text"
    """Output format: text, json, sarif (code scanning), github (annotations), junit (test reports)."""

    json: bool = False
    """Same as --format json."""

    strict: bool = False
    """Exit 1 for notes too, and when nothing could be checked."""

    warn_only: bool = False
    """Exit 0 whatever is found."""

    fix: bool = False
    """Show safe config changes as a diff, and what to change by hand."""

    write: bool = False
    """With --fix, write the changes."""

    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"])] = False
    """Print findings only."""

    verbose: Annotated[bool, tyro.conf.arg(aliases=["-v"])] = False
    """Print every check, passed and skipped ones too."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; 0 when ready, 1 with findings, 2 on wrong use."""
    own, others = _own_flags(list(arguments))
    return run_command(Check, own, "check", lambda settings: _run(settings, others), tells_interrupt=True)


def _run(settings: Check, others: Sequence[str]) -> int:
    project = find_project()
    settings = replace(settings, gpu=settings.gpu or project.gpu, format="json" if settings.json else settings.format)
    _refuse_what_contradicts(settings)
    instead = {}
    if "-" in settings.files:
        instead = {STDIN: sys.stdin.read()}
        settings = replace(settings, files=tuple(STDIN if name == "-" else name for name in settings.files))
    if not settings.each:
        _refuse_what_is_no_plan(settings.files)
    runs = _runs(settings, project)
    if settings.fix:
        return _fix(settings, runs, project)
    if settings.val and not settings.data:
        raise UsageError("--val needs --data", fix=f"stayfinite check --data train.csv --val {settings.val[0]}")
    found = _inspect(settings, runs, instead) if settings.quick is None else _inspect_recipe(settings.quick, others)
    if found is None:
        raise UsageError("name a config, or use --data, --memory, --build or --quick; see --help")
    found = without_ignored(found, project=project.ignore)
    _print(found, settings)
    return _exit_code(found, settings)


def _refuse_what_contradicts(settings: Check) -> None:
    for one, other in (("strict", "warn_only"), ("quiet", "verbose")):
        if getattr(settings, one) and getattr(settings, other):
            names = f"--{one} and --{other.replace('_', '-')}"
            raise UsageError(f"{names} cannot be combined", fix="use one of them")
    if settings.fix and "-" in settings.files:
        raise UsageError("--fix needs a file, not standard input", fix="name the file")
    if settings.write and not settings.fix:
        raise UsageError("--write needs --fix", fix="stayfinite check --fix --write ...")


STDIN = "stdin"
DATA_FILES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".arrow", ".tmx")


def _refuse_what_is_no_plan(files: Sequence[str]) -> None:
    """Raise UsageError for a missing script, a training log and a data file."""
    for name in files:
        if missing := missing_script_of(name):
            raise UsageError(f"no such file: {missing}", fix="give the script's path as seen from this directory")
        path = Path(name)
        try:
            if not path.is_file():
                continue
        except OSError:  # a command too long for a name
            continue
        if named_like_a_log(path) and _is_a_log(path):
            raise UsageError(f"{name} is a training log", fix=f"stayfinite diagnose {shlex.quote(name)}")
        if path.suffix.lower() in DATA_FILES:
            raise UsageError(f"{name} is a data file", fix=f"stayfinite check --data {shlex.quote(name)}")


def _is_a_log(path: Path) -> bool:
    """Whether a file of numbers holds losses."""
    from stayfinite.diagnosis.reading import read_paths

    try:
        return any(run.column("loss") for run in read_paths([path]).runs)
    except UsageError:
        return False


def _runs(settings: Check, project: Project) -> list[tuple[str, ...]]:
    """Files of each run: those named, else the project's."""
    other = settings.build or settings.memory or settings.data or settings.quick
    if settings.files:
        return [(each,) for each in settings.files] if settings.each else [settings.files]
    return [] if other else list(project.paths)


def _exit_code(found: Inspection, settings: Check) -> int:
    if settings.warn_only:
        return 0
    noted = found.findings or any(line.status == "note" for line in found.lines) or found.verdict == "unknown"
    return 1 if settings.strict and noted else found.exit_code


def _print(found: Inspection, settings: Check) -> None:
    data = found.to_json()
    if settings.format == "json":
        print_json("check", data, ensure_ascii=False)
    elif settings.format == "text":
        from stayfinite.report.inspection import show_inspection
        from stayfinite.report.standard_output import StandardOutput

        show_inspection(data, StandardOutput(), quiet=settings.quiet, verbose=settings.verbose)
    else:
        from stayfinite.report import formats

        text = getattr(formats, f"as_{settings.format}")(data)
        if text:
            print(text)


def _fix(settings: Check, runs: Sequence[Sequence[str]], project: Project) -> int:
    """Show the safe changes, and write them if requested; 0 if nothing is left to fix."""
    from stayfinite.inspection.files.fixing import Fixes, add_fixes

    if not runs:
        raise UsageError("--fix needs a config or script", fix="stayfinite check --fix train.yaml")
    fixes = Fixes()
    for run_files in runs:
        found = without_ignored(inspect_files(run_files, gpu=settings.gpu), project=project.ignore)
        add_fixes(fixes, run_files, found, gpu=settings.gpu)
    print(printable(fixes.diff()), end="")
    for finding, why in fixes.left:
        print(printable(f"not fixed: {finding.where} {finding.code} {finding.cause}: {why}; {finding.fix}"))
    if settings.write:
        written = fixes.write()
        print(f"Wrote {', '.join(written)}." if written else "Nothing to write.")
    elif fixes.after:
        print(f"Safe changes: {len(fixes.fixed)}. Nothing written; add --write to apply them.")
    else:
        print("No safe changes.")
    open_still = [finding for finding, _ in fixes.left if finding.severity != "info"]
    pending = fixes.after and not settings.write
    return 0 if settings.warn_only or not (open_still or pending) else 1


OF_EVERY_CHECK = ("--json", "--strict", "--warn-only", "-q", "--quiet", "-v", "--verbose")
"""Switches that `--quick RECIPE` also takes; all others are the recipe's."""


def _own_flags(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split off the recipe's own flags after ``--quick RECIPE``."""
    if "--quick" not in arguments or arguments.index("--quick") + 1 == len(arguments):
        return arguments, []
    at = arguments.index("--quick")
    others = arguments[:at] + arguments[at + 2 :]
    plain = [flag for flag in others if flag in OF_EVERY_CHECK]
    return [*arguments[at : at + 2], *plain], [flag for flag in others if flag not in OF_EVERY_CHECK]


def _inspect_recipe(name: str, flags: Sequence[str]) -> Inspection:
    from stayfinite.cli.train import RECIPES

    try:
        look = import_module(f"stayfinite.recipes.{name}").quick if name in RECIPES else None
    except (ModuleNotFoundError, AttributeError):
        look = None
    if look is None:
        raise UsageError(f"--quick {name}: not supported for this recipe", fix="--quick sft")
    found: Inspection = look(flags)
    return found


def _inspect(settings: Check, runs: Sequence[Sequence[str]], instead: Mapping[str, str]) -> Inspection | None:
    """Inspect the one thing that was named; None if nothing was."""
    if settings.build is not None:
        from stayfinite.inspection.preflight import inspect_build

        return inspect_build(settings.build, steps=settings.steps, lr_range=settings.lr_range)
    if settings.memory is not None:
        return _inspect_memory(settings, settings.memory)
    if settings.data:
        return _inspect_data(settings)
    if settings.each or len(runs) > 1:
        return inspect_each(runs, lambda files: inspect_files(files, gpu=settings.gpu, instead=instead))
    return inspect_files(runs[0], gpu=settings.gpu, instead=instead) if runs else None


def _inspect_memory(settings: Check, model: str) -> Inspection:
    from stayfinite.inspection.memory.inspecting import MemoryRequest, inspect_memory

    checkpointing = None if settings.checkpointing is None else settings.checkpointing == "on"
    same = (field.name for field in fields(MemoryRequest) if field.name not in ("model", "checkpointing"))
    return inspect_memory(MemoryRequest(model=model, checkpointing=checkpointing, **given(settings, *same)))


def _inspect_data(settings: Check) -> Inspection:
    from stayfinite.inspection.data.inspecting import inspect_data
    from stayfinite.report.progress import reading_progress

    with reading_progress(quiet=settings.quiet or settings.format != "text") as told:
        same = given(settings, "val", "tokenizer", "max_length", "source", "target", "whole")
        return inspect_data(settings.data, group=settings.id, progress=told, **same)
