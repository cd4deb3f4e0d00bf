"""Faults of the batch: bad values, nothing to learn from, absurd inputs."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from stayfinite.autopsy.conclusions.conclusion import Conclusion, Evidence, judge_of
from stayfinite.autopsy.conclusions.readings import is_labels
from stayfinite.autopsy.steps.batch_parts import batch_items

LARGE_IN_FP16 = 1e3
"""If finite values are this large, infinities beside them come from a cast."""
FEWEST_ROWS = 4
ABSURD = 1e3
"""Multiple of the other rows' size that is absurd."""


def bad_item(e: Evidence) -> Conclusion | None:
    """The batch has non-finite values before anything is computed."""
    origin = e.readings.origin
    if origin is None or not origin.leaf.startswith("batch"):
        return None
    what = (
        "the batch" if origin.leaf == "batch" else f"the {'label' if is_labels(origin.leaf) else 'input'} {origin.leaf}"
    )
    worlds = ("rows_removed", "inputs_sanitized")
    made = _made_by_a_cast(origin.tensor) or _bad_column(origin.tensor)
    cause, confidence, rows = "bad-data-row", 0.97, e.suspects
    if e.materials.notes.get("batch"):
        confidence, rows = 0.5, []
        lost = "the forward pass overwrites its batch, so the original values are lost"
        why = f"is NaN or inf{e.in_rows(e.suspects)}; {lost}"
        fix = "do not modify the batch in forward(batch): x / n instead of x.div_(n). Then run again"
    elif made is not None:
        (cause, why, fix), confidence, rows, worlds = made, 0.9, [], ("inputs_sanitized", "rows_removed")
    else:
        why = f"holds NaN or inf before the forward pass{e.in_rows(rows)}"
        fix = f"drop or repair {e.in_rows(rows, '', '') or 'such rows'}: check torch.isfinite when loading"
    return Conclusion(
        cause=cause,
        confidence=confidence,
        why=f"{what} {why}",
        fix=fix,
        setting={"rows": rows} if rows else {},
        worlds=worlds,
        covers=worlds,
    )


def _made_by_a_cast(item: Tensor | None) -> tuple[str, str, str] | None:
    """Infinities without NaN in fp16: larger numbers were cast."""
    if item is None or item.dtype is not torch.float16 or bool(item.isnan().any()) or not bool(item.isinf().any()):
        return None
    finite = item[item.isfinite()]
    if not finite.numel() or float(finite.abs().max()) < LARGE_IN_FP16:
        return None
    return "fp16-overflow", "was cast to fp16 (limit 65,504): larger numbers became inf", (
        "keep it in fp32, or scale it before the cast"
    )  # fmt: skip


def _bad_column(item: Tensor | None) -> tuple[str, str, str] | None:
    """NaN in every row of a few columns: made in preprocessing, for example by dividing by a std of 0."""
    if item is None or item.dim() != 2 or len(item) < FEWEST_ROWS:
        return None
    bad = ~item.isfinite()
    columns = bad.all(0)
    if not bool(columns.any()) or bool(columns.all()) or bool((bad & ~columns).any()):
        return None
    named = ", ".join(str(int(number)) for number in columns.nonzero()[:8, 0])
    several = int(columns.sum()) > 1
    return "constant-feature", f"is NaN or inf in every row of column{'s' if several else ''} {named}", (
        "a constant column divided by its std of 0 is NaN: divide by std.clamp_min(1e-6), or drop the column"
    )  # fmt: skip


@judge_of("empty-batch", 0.97, "drop empty batches in the loader: check its filters and its last batch")
def no_rows(e: Evidence) -> str | bool:
    """The batch is empty."""
    return e.readings.no_rows and "the batch has no rows: its mean is 0/0"


@judge_of(
    "all-labels-masked", 0.95,
    "raise the length limit or drop such batches, and divide by max(1, number of labels)", "origin_guarded",
)  # fmt: skip
def nothing_to_learn(e: Evidence) -> str | bool:
    """All labels are masked."""
    return e.readings.no_labels and f"all of {e.readings.no_labels} is masked: the mean over 0 labels is 0/0"


@judge_of(
    "bad-data-row", 0.9, "drop rows whose input is shorter than their label, or nn.CTCLoss(zero_infinity=True)",
    "origin_guarded", "rows_removed", covers=("origin_guarded", "rows_removed"), setting={"zero_infinity": True},
)  # fmt: skip
def too_short_for_its_label(e: Evidence) -> str | bool:
    """CTC loss with an input shorter than its label."""
    why = f"the CTC loss is infinite: an input is shorter than its label{e.in_rows(e.suspects)}"
    return "ctc_loss" in e.readings.operator and why


def absurd_rows(e: Evidence) -> Conclusion | None:
    """Finite rows so large that even fp32 overflows."""
    if not e.rows or not e.readings.overflowed or e.readings.dtype == "float16" or e.readings.in_backward:
        return None
    item, size = _largest_item(e)
    if not item:
        return None
    return Conclusion(
        cause="bad-data-row",
        confidence=0.9,
        why=f"{e.readings.operator} overflows {e.readings.dtype} because of{e.in_rows(e.rows, ' ', '')}: "
        f"{item} reaches {size:.3g} there",
        fix=f"drop or repair{e.in_rows(e.rows, ' ', '')}, and scale the inputs to about unit size",
        setting={"rows": e.rows},
        worlds=("rows_removed",),
    )


def _largest_item(e: Evidence) -> tuple[str, float]:
    """Batch item whose bad rows are far larger than the others, and their size."""
    for name, item in batch_items(e.readings.step.batch).items():
        if item.is_floating_point() and item.dim() and item.shape[0] > max(e.rows):
            guilty = _size(item[e.rows])
            rest = _size(item[[row for row in range(item.shape[0]) if row not in e.rows]])
            if math.isfinite(guilty) and guilty > ABSURD * max(rest, 1e-30):
                return name, guilty
    return "", 0.0


def _size(rows: Tensor) -> float:
    return float(rows.detach().abs().amax()) if rows.numel() else 0.0
