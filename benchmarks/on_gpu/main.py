"""The command line of ``benchmarks/gpu.py`` and ``benchmarks/guard_overhead.py``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.on_gpu.added import added_table, measure_added
from benchmarks.on_gpu.kernel_alone import kernel_table, kernel_verdicts, measure_kernel
from benchmarks.on_gpu.shapes import SHAPES, Shape
from benchmarks.on_gpu.turns import measure, table, verdicts
from benchmarks.on_gpu.ways import BARE, BASE, COMPILED_ONLY, GUARD, MAKERS, SLOW
from stayfinite import __version__

KERNEL, ADDED = "kernel", "added"
QUICK = 0.2
"""The part of the time that a quick look takes."""


def main(description: str, device: str) -> int:
    """Measure what was asked for; write after every part, so that a run that is cut off leaves what it has."""
    shapes = [shape for shape in SHAPES if shape.device == device]
    alone_too = [KERNEL, ADDED] if device == "cuda" else []
    options = _arguments(description, [*alone_too, *(shape.name for shape in shapes)])
    if device == "cuda" and not torch.cuda.is_available() and not options.rehearse:
        print("benchmarks/gpu.py needs a CUDA device, and torch sees none; --rehearse runs tiny shapes on the CPU")
        return 0
    facts = _circumstances()
    report = _Report(options.output, facts)
    wanted = options.only or [*alone_too, *(shape.name for shape in shapes)]
    judged: list[str] = []
    if KERNEL in wanted and not options.rehearse:
        alone = measure_kernel(torch.device("cuda", 0), tune=options.tune, quick=options.quick)
        report.add("the kernel alone", "gradients as those of a LLaMA, 3.2 GB", kernel_table(alone), asdict(alone))
        judged += kernel_verdicts(alone)
    if ADDED in wanted and not options.rehearse:
        added = [measure_added(shape) for shape in shapes if shape.added]
        report.add(
            "added to the device's work", "by torch's profiler", added_table(added), {"": list(map(asdict, added))}
        )
    for shape in shapes:
        if shape.name not in wanted:
            continue
        begun = time.perf_counter()
        try:
            seconds = (options.seconds or shape.seconds) * (QUICK if options.quick else 1.0)
            seconds = 0.0 if options.rehearse else seconds
            result = measure(shape, _names(shape, options.ways), seconds, small=options.rehearse)
        except Exception as error:
            judged.append(f"----  {shape.name} could not be measured: {type(error).__name__}: {error}")
            print(judged[-1], flush=True)
            continue
        repeats = max((len(times) for times in result.milliseconds.values()), default=0)
        about = (
            f"{result.description}; {result.parameters / 1e6:.0f} M parameters in {result.tensors} tensors, "
            f"fused AdamW; {repeats} repeats of {shape.turn} steps, {time.perf_counter() - begun:.0f} s"
        )
        report.add(shape.name, about, table(result), asdict(result))
        judged += verdicts(result, shape)
    report.close(judged)
    return int(any(line.startswith("SHORT") for line in judged))


class _Report:
    """Prints parts as they come, and keeps them in files."""

    def __init__(self, output: Path | None, facts: dict[str, str]) -> None:
        self._output, self._facts = output, facts
        self._text = [f"{name}: {value}" for name, value in facts.items()]
        self._raw: dict[str, Any] = {}
        print("\n".join(self._text), flush=True)

    def add(self, name: str, about: str, text: str, raw: dict[str, Any]) -> None:
        """A part is done."""
        part = f"\n{name}: {about}\n\n{text}"
        print(part, flush=True)
        self._text.append(part)
        self._raw[name] = raw
        self._write()

    def close(self, judged: list[str]) -> None:
        """All is done."""
        print(*("", *judged), sep="\n", flush=True)
        self._text += ["", *judged]
        self._write()

    def _write(self) -> None:
        if self._output is None:
            return
        self._output.mkdir(parents=True, exist_ok=True)
        (self._output / "gpu.txt").write_text("\n".join(self._text) + "\n", encoding="utf-8")
        raw = json.dumps({**self._facts, "parts": self._raw}, indent=1)
        (self._output / "gpu.json").write_text(raw, encoding="utf-8")


def _names(shape: Shape, only: list[str] | None) -> list[str]:
    if shape.ways is not None:
        names = list(shape.ways)
    else:
        names = [name for name in MAKERS if name not in (*COMPILED_ONLY, *shape.without)]
    if only:
        names = [name for name in names if name in (BASE, BARE, GUARD) or any(part in name for part in only)]
    # The slow ones last: they are measured once, and spoil nothing for the others.
    return [name for name in names if name not in SLOW] + [name for name in names if name in SLOW]


def _circumstances() -> dict[str, str]:
    versions = {"python": platform.python_version(), "stayfinite": __version__, "torch": torch.__version__}
    for name in ("triton", "transformers", "accelerate"):
        try:
            versions[name] = __import__(name).__version__
        except ImportError:
            versions[name] = "none"
    path = os.environ.get("PYTHONPATH")
    return {
        "command": f"{f'PYTHONPATH={shlex.quote(path)} ' if path else ''}{shlex.join(['python', *sys.argv])}",
        "cpu": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "date": time.strftime("%Y-%m-%d"),
    }


def _arguments(description: str, parts: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=parts, metavar="PART", help=f"parts: {', '.join(parts)}")
    parser.add_argument("--ways", nargs="+", metavar="TEXT", help="only ways with this in their name, and the bases")
    parser.add_argument("--seconds", type=float, metavar="S", help="for the repeats of each shape, in place of its own")
    parser.add_argument("--quick", action="store_true", help="a fifth of the time")
    parser.add_argument("--tune", action="store_true", help="the kernel with other divisions of its work as well")
    parser.add_argument("--output", type=Path, metavar="DIR", help="write gpu.txt and gpu.json there")
    parser.add_argument("--rehearse", action="store_true", help="tiny shapes, without a GPU: to see that it runs")
    return parser.parse_args()
