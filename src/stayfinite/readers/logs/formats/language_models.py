"""Trainers of language models: Megatron, DeepSpeed, nanoGPT, torchtitan."""

from __future__ import annotations

import math
import re

from stayfinite.core.log_names import plain
from stayfinite.readers.logs.formats.format import Format, Head
from stayfinite.readers.logs.pairs import NUMBER, Pair, separated_pairs
from stayfinite.readers.logs.reading import NANS_HERE, RANK, SKIPS_HERE, Reading

_EVALUATION = Head(
    rf"\b(?=(?:validation|test) loss at|validation results at)(?:.*?\bat\s+iteration\s+(?P<step>{NUMBER}))?",
    evaluates=True,
)
_ITERATION = Head(rf"\biteration\s+(?P<step>{NUMBER})\s*/\s*(?P<total>{NUMBER})\s*\|", loss_is_expected=True)
_COUNTS = {
    "number_of_skipped_iterations": SKIPS_HERE, "skipped_iterations": SKIPS_HERE,
    "number_of_nan_iterations": NANS_HERE, "nan_iterations": NANS_HERE,
}  # fmt: skip
_QUIET = {"consumed_samples", "consumed_tokens", "global_batch_size", "batch_size"}


class Megatron(Format):
    r"""Megatron-LM, Megatron-DeepSpeed, GPT-NeoX: one line per interval, fields separated by bars.

    ::

         iteration      122/  250000 | consumed samples: 124928 | learning rate: 9.150E-06 | lm loss: 2.504220E+00 | \
    loss scale: 1.0 | grad norm: 0.231 | number of skipped iterations:   0 | number of nan iterations:   0 |

    The loss is omitted unless it is positive, even while "nan iterations" stays 0. Skipped and NaN iterations are
    counted since the last line.
    """

    kind = "megatron"
    marks = ("iteration", "loss at")
    heads = (_EVALUATION, _ITERATION)

    def read(self, line: str, start: int) -> Reading | None:
        reading = super().read(line, start)
        if reading is None or (not reading.loss_is_expected and len(reading.fields) == reading.has("step")):
            return None
        reading.fields = [(_COUNTS.get(name, name), begin, end) for name, begin, end in reading.fields]
        return reading

    def pairs(self, line: str, place: int) -> list[Pair]:
        return [pair for pair in separated_pairs(line, place) if plain(pair[0]) not in _QUIET]


class DeepSpeed(Format):
    """DeepSpeed overflow and step lines.

    ::

        [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
        [deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated.
        [Rank 0] step=2, skipped=0, lr=[2.8e-07, 2.8e-07], mom=[[0.9, 0.95], [0.9, 0.95]]

    The second form is used with bf16, fp32 and a static loss scale and contains no scale.
    """

    kind = "deepspeed"
    marks = ("overflow!", "skipped=")
    heads = (
        Head(
            r"OVERFLOW!\s*Skipping step\.?\s*Gradients are non-finite",
            pairs=False,
            constants={"grad_norm": math.nan},
            skipped=True,
            is_message=True,
        ),
        Head(
            r"OVERFLOW!\s*(?:Rank\s+(?P<rank>\d+)\s+)?Skipping step\.?"
            rf"(?:.{{0,80}}?loss scale:\s*(?:{NUMBER},?\s+reducing to\s+)?(?P<loss_scale>{NUMBER}))?",
            pairs=False,
            needs=(RANK, "loss_scale"),
            skipped=True,
            is_message=True,
        ),
        Head(rf"\bstep=(?P<step>\d+),\s*skipped=(?P<skips>\d+),\s*lr=\[+(?P<lr>{NUMBER})", pairs=False),
    )


class NanoGpt(Format):
    """nanoGPT and derivatives.

    ::

        iter 3010: loss nan, time 1019.95ms, mfu 14.12%
        step 3000: train loss 4.0390, val loss 4.0427
        step 1 | train 106.971 | val 107.465
        iter 7 step 1: loss 1.1201, iter time: 1819.72ms (optimizer.step)
    """

    kind = "nanogpt"
    marks = ("iter ", "step ", "train ")
    heads = (
        Head(rf"\biter\s+(?P<step>\d+)(?:\s+step\s+\d+)?:\s+loss\s+(?P<loss>{NUMBER})", pairs=False),
        Head(
            rf"^\W*(?:\w{{2,12}}\s+)?(?P<step>\d+)\s{{0,3}}[:|]\s*train(?: loss)?\s+(?P<loss>{NUMBER})\s{{0,3}}[,| ]\s*"
            rf"val(?: loss)?\s+(?P<val_loss>{NUMBER})",
            pairs=False,
        ),
    )


class LitGpt(Format):
    """litgpt.

    ::

        Epoch 1 | iter 512 step 128 | loss train: 1.123, val: n/a | iter time: 38.35 ms (step) remaining time: 0:01:41
        Ep 1 | iter 4 | step 1: loss train (curr): 1.585, val (prev val iter): None | iter time: 181.34 ms (opt.step)
    """

    kind = "litgpt"
    marks = ("loss train",)
    heads = (
        Head(
            r"\bEp(?:och)?\s+(?P<epoch>\d+)\s*\|\s*iter\s+(?P<step>\d+)[\s|]+step\s+\d+\s*[|:]\s*loss train[^:|]{0,20}:"
            rf"\s*(?P<loss>{NUMBER}),\s*val[^:|]{{0,30}}:\s*(?:(?P<val_loss>{NUMBER})|n/a|None)",
            re.IGNORECASE,
            pairs=False,
        ),
    )


class TorchTitan(Format):
    """torchtitan.

    ::

        [rank0]:[titan] 2025-01-02 03:04:05,678 - root - INFO - step:  3  loss:  4.9925  grad_norm:  2.6422  tps: 30,768
    """

    kind = "torchtitan"
    marks = ("step:",)
    heads = (
        Head(r"\bvalidate\s*(?<!\w)(?=step:\s*\d+\s+(?:loss:|grad_norm:))", evaluates=True),
        Head(r"(?<!\w)(?=step:\s*\d+\s+(?:loss:|grad_norm:))"),
    )
