"""A corpus of 5 GB through `stayfinite train mt5`: what its loader gives, and the memory that it takes.

    python benchmarks/stream_memory.py
    python benchmarks/stream_memory.py --gigabytes 0.2 --seconds 10     # a quick look

The corpus is JSON lines of made-up sentences in files of 200 MB, in a directory that is removed again. Three things are
measured, each in a process of its own:

- reading: one whole pass over all rows, shuffled in windows, without a tokenizer;
- the loader: tokenized and masked batches, with 0, 1 and 2 workers, for so many seconds each;
- training: `stayfinite train mt5 --stream on`, a tiny model, for as long.

Memory is what the process and its workers hold together, pages that they share counted once (PSS), twice a second.
The promise is 2 GiB. On a machine that others use too, the rate a second of processor time is the one to compare.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

PROMISED = 2 << 30
FILE = 200_000_000
LINES = 60_000


def main() -> None:
    """Write the corpus, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the loader, and of training")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--json", type=Path, help="write all numbers there")
    asked = parser.parse_args()
    size = int(asked.gigabytes * 1e9)
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < size * 1.2 + 1e9:
        raise SystemExit(f"{free / 1e9:.1f} GB are free in {tempfile.gettempdir()}: --gigabytes {free / 2e9:.1f}")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as work:
        place = Path(work)
        start = time.monotonic()
        files = write_corpus(place / "corpus", size)
        print(f"corpus: {files} files, {size / 1e9:.1f} GB, written in {time.monotonic() - start:.0f} s", flush=True)
        train_tokenizer(place)
        print(
            "\n| what | rate | a second of processor time | memory at 25, 50, 75, 100 % of the time | highest |\n"
            "|---|---|---|---|---|",
            flush=True,
        )
        jobs: list[tuple[str, Any, tuple[Any, ...]]] = [("reading, whole pass", read_all, (place,))]
        jobs += [(f"loader, {n} workers", load_for, (place, n, asked.seconds)) for n in asked.workers]
        jobs += [("train mt5 --stream on", train_for, (place, asked.seconds))]
        for name, job, arguments in jobs:
            found[name] = watched(job, arguments)
            print(row(name, found[name]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    highest = max(max(each["memory"]) for each in found.values())
    print(f"\nhighest memory {highest / 2**30:.2f} GiB, promised {PROMISED / 2**30:.0f} GiB: "
          f"{'kept' if highest <= PROMISED else 'NOT KEPT'}")  # fmt: skip
    sys.exit(highest > PROMISED)


def sentences(count: int, seed: int = 0) -> Iterator[str]:
    """Texts of 20 to 200 random words."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("abdegiklmnoprstuz", k=chance.randint(2, 9))) for _ in range(30_000)]
    weights = list(accumulate(1 / (number + 10) for number in range(len(words))))
    for _ in range(count):
        text = " ".join(chance.choices(words, cum_weights=weights, k=chance.randint(20, 200)))
        yield text[:1].upper() + text[1:] + "."


def write_corpus(directory: Path, size: int) -> int:
    """Write the same sentences in another order and with other numbers to each file; returns the number of files."""
    directory.mkdir(parents=True)
    lines = list(sentences(LINES))
    written = number = 0
    while written < size:
        chance = random.Random(number)
        with (directory / f"part-{number:05d}.jsonl").open("wb") as file:
            here = 0
            while here < min(FILE, size - written):
                chance.shuffle(lines)
                block = "".join(
                    f'{{"id": "{number}-{here}-{at}", "text": "{at} {line}"}}\n' for at, line in enumerate(lines)
                ).encode()
                here += file.write(block[: block.rindex(b"\n", 0, FILE) + 1] if len(block) > FILE else block)
        written, number = written + here, number + 1
    return number


def train_tokenizer(place: Path) -> None:
    """Train a tokenizer of 8,000 pieces, as the recipe would."""
    from stayfinite.recipes.seq2seq.tokenizers import train_sentencepiece

    train_sentencepiece(list(sentences(5000)), place / "tokenizer", 8000)


def read_all(place: Path) -> dict[str, Any]:
    """Read all rows once."""
    from stayfinite.recipes.language.streaming import TextReader, text_files
    from stayfinite.recipes.streaming.loader import StreamLoader
    from stayfinite.recipes.streaming.stream import Rows, Stream

    rows = Rows(text_files([str(place / "corpus")]), TextReader())
    stream = Stream(rows=rows, make=lambda texts, _: [sum(map(len, texts))], pool=512)
    clock = Clock()
    return clock.rate(sum(StreamLoader(stream)) / 1e6, "MB of text/s")


def load_for(place: Path, workers: int, seconds: float) -> dict[str, Any]:
    """Masked batches of 32 blocks, for this many seconds after the first."""
    import torch

    from stayfinite.recipes.language.blocks import masking_for
    from stayfinite.recipes.language.streaming import streamed_corpus, text_files
    from stayfinite.recipes.mt5 import Mt5
    from stayfinite.recipes.running.processes import Place
    from stayfinite.recipes.seq2seq.batching import tokens_in
    from stayfinite.recipes.seq2seq.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(str(place / "tokenizer"))
    config = Mt5(data=(str(place / "corpus"),), stream="on", workers=workers, train_batch_size=32)
    here = Place(device=torch.device("cpu"))
    corpus = streamed_corpus(config, text_files(config.data), lambda _: None)
    masking = masking_for("span_corruption", tokenizer, density=0.15, mean_span=3.0)
    tokens, clock = 0, None
    for batch in corpus.loader(config, tokenizer, masking, here, print, batch_size=config.train_batch_size):
        tokens += int(tokens_in(batch)) if clock is not None else 0
        clock = clock or Clock()
        if clock.seconds > seconds:
            return clock.rate(tokens, "tokens/s")
    raise SystemExit("the corpus is too small for so many seconds: --gigabytes or --seconds")


def train_for(place: Path, seconds: float) -> dict[str, Any]:
    """Run the recipe, stopped after this many seconds of training."""
    command = [
        sys.executable, "-m", "stayfinite", "train", "mt5", "--data", str(place / "corpus"), "--stream", "on",
        "--model", "tiny", "--tokenizer-dir", str(place / "tokenizer"), "--output-dir", str(place / "run"),
        "--check", "off", "--logging-steps", "5", "--max-steps", "100000", "--checkpoint-steps", "20",
        "--device", "cpu", "--eval-steps", "100000",
    ]  # fmt: skip
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    start, rate = 0.0, 0.0
    try:
        for line in child.stdout:
            if line.startswith("step "):
                start = start or time.monotonic()
                rate = float(line.split(" tokens/s")[0].split()[-1].replace(",", ""))
                if time.monotonic() - start > seconds:
                    return {"rate": rate, "unit": "tokens/s", "by_processor": None}
    finally:
        child.kill()
        child.wait()
    raise SystemExit(f"train mt5 ended before its time, with exit code {child.returncode}")


class Clock:
    """Wall time, and processor time of this process and its workers."""

    def __init__(self) -> None:
        self._start, self._used = time.monotonic(), self._processor()

    @property
    def seconds(self) -> float:
        """Wall seconds."""
        return time.monotonic() - self._start

    def rate(self, amount: float, unit: str) -> dict[str, Any]:
        """Rate by both clocks."""
        used = self._processor() - self._used
        return {"rate": amount / self.seconds, "unit": unit, "by_processor": amount / used}

    def _processor(self) -> float:
        import psutil

        return sum(sum(each.cpu_times()[:2]) for each in _family(psutil.Process()))


def watched(job: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Run a job in its own process; return its result and the memory of it and its children, twice a second."""
    import psutil

    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    process = context.Process(target=_answer, args=(job, arguments, answers))
    process.start()
    memory: list[int] = []
    while process.is_alive():
        total = 0
        for each in _family(psutil.Process(process.pid)):
            try:
                total += each.memory_full_info().pss
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        memory.append(total)
        process.join(0.5)
    if process.exitcode:
        raise SystemExit(f"{job.__name__} failed")
    found: dict[str, Any] = answers.get()
    return found | {"memory": memory}


def _family(process: Any) -> list[Any]:
    import psutil

    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _answer(job: Any, arguments: tuple[Any, ...], answers: Any) -> None:
    answers.put(job(*arguments))


def row(name: str, found: dict[str, Any]) -> str:
    """A line of the table."""
    memory = [each / 2**20 for each in found["memory"]]
    quarters = ", ".join(f"{memory[min(len(memory) - 2, len(memory) * part // 4)]:,.0f}" for part in (1, 2, 3, 4))
    by_processor = "" if found["by_processor"] is None else f"{found['by_processor']:,.0f}"
    return (
        f"| {name} | {found['rate']:,.0f} {found['unit']} | {by_processor} | {quarters} MiB | {max(memory):,.0f} MiB |"
    )


if __name__ == "__main__":
    main()
