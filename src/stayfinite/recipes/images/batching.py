"""Batches of pairs, and a look at the first. A pair is one row; its swap is the same row, its images exchanged."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from stayfinite.errors import BadStep, NotReady
from stayfinite.inspection.inspection import Inspection
from stayfinite.recipes.images.data import decode
from stayfinite.recipes.images.pairs import LABELS, SIMILAR, Pair
from stayfinite.recipes.running.sharing import SharedBatches, Spare
from stayfinite.report.inspection import show_inspection

Batch = dict[str, Tensor]


class Pixels:
    """Loads images as model input, cached in memory up to a limit.

    Arguments:
        image_processor: of the model, from transformers.
        megabytes: size of the cache.
    """

    def __init__(self, image_processor: Any, *, megabytes: int) -> None:
        self._process = image_processor
        self._room = megabytes * 2**20
        self._kept: dict[str, Tensor] = {}

    def __call__(self, path: str) -> Tensor:
        """(3, H, W), float32. Raises UsageError if the image cannot be read."""
        known = self._kept.get(path)
        if known is not None:
            return known
        pixels: Tensor = self._process(images=[decode(path)], return_tensors="pt")["pixel_values"][0].float()
        if self._room >= pixels.nbytes:
            self._room -= pixels.nbytes
            self._kept[path] = pixels
        return pixels


class PairRows(Dataset[Batch]):
    """Pairs with their pixels. Torch collates them: images (B, 2, 3, H, W), labels, rows and counted (B,)."""

    def __init__(self, pairs: Sequence[Pair], pixels: Callable[[str], Tensor]) -> None:
        self.pairs = pairs
        self._pixels = pixels

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Batch:
        pair = self.pairs[index]
        return {
            "images": torch.stack([self._pixels(pair.first), self._pixels(pair.second)]),  # (2, 3, H, W)
            "labels": torch.tensor(pair.label),
            "rows": torch.tensor(index),
            "counted": torch.tensor(not isinstance(index, Spare)),
        }


def loader_of(rows: PairRows, batches: SharedBatches, *, workers: int, pin: bool) -> DataLoader[Batch]:
    """A data loader over these batches."""
    return DataLoader(rows, batch_sampler=batches, num_workers=workers, pin_memory=pin, persistent_workers=workers > 0)


def with_weight(batch: Batch, weight: float) -> Batch:
    """Add this step's weight of the consistency term, so that the batch can be replayed."""
    return batch | {"consistency": torch.full((len(batch["labels"]),), weight)}


def first_batch(rows: PairRows, size: int) -> Batch:
    """The first rows with readable images. Draws no random numbers.

    Raises:
        NotReady: none of the first images can be read.
    """
    found: list[Batch] = []
    failed = ""
    for index in range(min(len(rows), 4 * size)):
        try:
            found.append(rows[index])
        except ValueError as error:
            failed = failed or str(error)
        if len(found) == size:
            break
    if not found:
        raise NotReady(f"cannot read any image of the first {min(len(rows), 4 * size)} pairs: {failed}")
    batch: Batch = default_collate(found)
    return batch


def look_at_batch(batch: Batch, pairs: Sequence[Pair]) -> list[str]:
    """Warnings about a batch. Raises NotReady for wrong shape, non-finite pixels, or labels out of range."""
    images, labels = batch["images"], batch["labels"]
    if images.ndim != 5 or images.shape[:3] != (len(labels), 2, 3):
        raise NotReady(
            f"a batch of {len(labels)} pairs has images of shape {tuple(images.shape)}, expected ({len(labels)}, 2, "
            "3, height, width)",
            fix="use a model whose processor makes one picture per image, such as LLaVA 1.5",
        )
    if not bool(images.isfinite().all()):
        row = int((~images.isfinite()).flatten(1).any(1).nonzero()[0])
        raise NotReady(f"NaN pixels in {pairs[int(batch['rows'][row])]}", fix="replace the image")
    outside = (labels < 0) | (labels >= len(LABELS))
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise NotReady(
            f"{pairs[int(batch['rows'][row])].where}: label {int(labels[row])}, expected 0 to {len(LABELS) - 1}",
            fix="fix the table",
        )
    odd = []
    if bool((images.flatten(3).std(-1) == 0).all()):
        odd.append(f"all {2 * len(labels)} images of the first batch have a single color")
    same = (images[:, 0] == images[:, 1]).flatten(1).all(1) & (labels != SIMILAR)
    if bool(same.any()):
        row = int(same.nonzero()[0])
        odd.append(f"two equal images that are not labeled Similar: {pairs[int(batch['rows'][row])]}")
    return odd


def show_dry_run(found: Inspection, steps: int, say: Callable[[str], None]) -> None:
    """Print banner and check list. Raises NotReady if the check found an error."""
    paper = io.StringIO()
    show_inspection(found.to_json(), Console(file=paper, width=120), verbose=True)
    say("\n".join(line.rstrip() for line in paper.getvalue().splitlines()))
    wrong = [each for each in found.findings if each.severity == "error"]
    if wrong:
        raise NotReady(f"the dry run found {wrong[0].code} ({wrong[0].cause}): {wrong[0].title}", fix=wrong[0].fix)
    say(f"dry run: {steps:,} steps planned; nothing written")


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Use deterministic operators, or raise where there is none."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by cuBLAS
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.cudnn.benchmark = before[1]


@contextmanager
def anomalies(wanted: bool, step: Callable[[], int]) -> Iterator[None]:
    """Stop backward at the first operator that makes a NaN; torch prints its forward call.

    Raises:
        BadStep: a NaN was found.
    """
    with torch.autograd.set_detect_anomaly(wanted):
        try:
            yield
        except RuntimeError as error:
            if not wanted or "returned nan values" not in str(error):
                raise
            raise BadStep(
                f"--detect-anomaly: {error} The warning above shows the forward lines",
                step=step() + 1,
                code="anomaly",
                fix="without --detect-anomaly the step is refused and explained, and training continues",
            ) from error
