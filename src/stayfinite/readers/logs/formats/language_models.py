"""Trainers of language models: Megatron, DeepSpeed, nanoGPT, torchtitan."""

from __future__ import annotations

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.names import plain
from stayfinite.readers.logs.pairs import NUMBER, separated_pairs
from stayfinite.readers.logs.reading import NANS_HERE, RANK, SKIPS_EVER, SKIPS_HERE, TOTAL, Reading

_HEAD = lazy_regex(rf"\biteration\s+({NUMBER})\s*/\s*({NUMBER})\s*\|")
_EVALUATION = lazy_regex(r"\bvalidation loss at|\btest loss at|\bvalidation results at")
_AT = lazy_regex(rf"\bat\s+iteration\s+({NUMBER})")
_QUIET = {"consumed_samples", "consumed_tokens", "global_batch_size", "batch_size"}


class Megatron(Format):
    r"""Megatron-LM, Megatron-DeepSpeed, GPT-NeoX: one line per interval, fields separated by bars.

    ::

         iteration      122/  250000 | consumed samples: 124928 | learning rate: 9.150E-06 | lm loss: 2.504220E+00 | \
    loss scale: 1.0 | grad norm: 0.231 | number of skipped iterations:   0 | number of nan iterations:   0 |

    The loss is omitted unless it is positive, even while "nan iterations" stays 0. Skipped and NaN iterations are
    counted since the last line.
    """

    marks = ("iteration", "loss at")

    def read(self, line: str, start: int) -> Reading | None:
        evaluation = _EVALUATION.search(line, start)
        if evaluation:
            return self._evaluation(line, evaluation.start())
        head = _HEAD.search(line, start)
        if head is None:
            return None
        reading = Reading("megatron", loss_is_expected=True)
        reading.fields = [("step", *head.span(1)), (TOTAL, *head.span(2))]
        pairs: list[tuple[str, int, int]] = []
        for name, begin, end in separated_pairs(line, head.end()):
            known = plain(name)
            if known in {"number_of_skipped_iterations", "skipped_iterations"}:
                reading.fields.append((SKIPS_HERE, begin, end))
            elif known in {"number_of_nan_iterations", "nan_iterations"}:
                reading.fields.append((NANS_HERE, begin, end))
            elif known not in _QUIET:
                pairs.append((name, begin, end))
        reading.take(pairs)
        return reading

    @staticmethod
    def _evaluation(line: str, begin: int) -> Reading | None:
        reading = Reading("megatron", is_point=False)
        at = _AT.search(line, begin)
        if at:
            reading.fields.append(("step", *at.span(1)))
        reading.take(separated_pairs(line, at.end() if at else begin), evaluation=True)
        return reading if len(reading.fields) > bool(at) else None


_OVERFLOW = lazy_regex(
    r"OVERFLOW!\s*(?:Rank\s+(\d+)\s+)?Skipping step\.?"
    rf"(?:.{{0,80}}?loss scale:\s*({NUMBER})(?:,?\s+reducing to\s+({NUMBER}))?)?"
)
_NOT_FINITE = lazy_regex(r"OVERFLOW!\s*Skipping step\.?\s*Gradients are non-finite")
_STEP = lazy_regex(rf"\bstep=(\d+),\s*skipped=(\d+),\s*lr=\[+({NUMBER})")


class DeepSpeed(Format):
    """DeepSpeed overflow and step lines.

    ::

        [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
        [deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated.
        [Rank 0] step=2, skipped=0, lr=[2.8e-07, 2.8e-07], mom=[[0.9, 0.95], [0.9, 0.95]]

    The second form is used with bf16, fp32 and a static loss scale and contains no scale.
    """

    marks = ("overflow!", "skipped=")

    def read(self, line: str, start: int) -> Reading | None:
        if _NOT_FINITE.search(line, start):
            return Reading("deepspeed", constants={"grad_norm": math.nan}, skipped=True, is_message=True)
        overflow = _OVERFLOW.search(line, start)
        if overflow:
            reading = Reading("deepspeed", skipped=True, is_message=True)
            if overflow[1] is not None:
                reading.fields.append((RANK, *overflow.span(1)))
            if overflow[2] is not None:
                reading.fields.append(("loss_scale", *overflow.span(2 if overflow[3] is None else 3)))
            return reading if reading.fields else None
        step = _STEP.search(line, start)
        if step:
            fields = [("step", *step.span(1)), (SKIPS_EVER, *step.span(2)), ("lr", *step.span(3))]
            return Reading("deepspeed", fields=fields)
        return None


_ITER = lazy_regex(rf"\biter\s+(\d+)(?:\s+step\s+(\d+))?:\s+loss\s+({NUMBER})")
_NANOGPT_STEP = lazy_regex(
    rf"^\W*(?:\w{{2,12}}\s+)?(\d+)\s{{0,3}}[:|]\s*train(?: loss)?\s+({NUMBER})\s{{0,3}}[,| ]\s*"
    rf"val(?: loss)?\s+({NUMBER})"
)
_LITGPT = lazy_regex(
    rf"\bEp(?:och)?\s+(\d+)\s*\|\s*iter\s+(\d+)[\s|]+step\s+(\d+)\s*[|:]\s*loss train[^:|]{{0,20}}:\s*({NUMBER}),"
    rf"\s*val[^:|]{{0,30}}:\s*({NUMBER}|n/a|None)",
    re.IGNORECASE,
)


class NanoGpt(Format):
    """nanoGPT, litgpt and derivatives.

    ::

        iter 3010: loss nan, time 1019.95ms, mfu 14.12%
        step 3000: train loss 4.0390, val loss 4.0427
        step 1 | train 106.971 | val 107.465
        iter 7 step 1: loss 1.1201, iter time: 1819.72ms (optimizer.step)
        Epoch 1 | iter 512 step 128 | loss train: 1.123, val: n/a | iter time: 38.35 ms (step) remaining time: 0:01:41
        Ep 1 | iter 4 | step 1: loss train (curr): 1.585, val (prev val iter): None | iter time: 181.34 ms (opt.step)
    """

    marks = ("iter ", "step ", "train ")

    def read(self, line: str, start: int) -> Reading | None:
        match = _ITER.search(line, start)
        if match:
            return Reading("nanogpt", fields=[("step", *match.span(1)), ("loss", *match.span(3))])
        match = _NANOGPT_STEP.search(line, start)
        if match:
            fields = [("step", *match.span(1)), ("loss", *match.span(2)), ("val_loss", *match.span(3))]
            return Reading("nanogpt", fields=fields)
        match = _LITGPT.search(line, start)
        if match:
            fields = [("epoch", *match.span(1)), ("step", *match.span(2)), ("loss", *match.span(4))]
            if match[5] not in {"n/a", "None"}:
                fields.append(("val_loss", *match.span(5)))
            return Reading("litgpt", fields=fields)
        return None


_TORCHTITAN_HEAD = lazy_regex(r"(?<!\w)step:\s*\d+\s+(?=loss:|grad_norm:)")
_EVALUATES = lazy_regex(r"\bvalidate\s*$")


class TorchTitan(Format):
    """torchtitan.

    ::

        [rank0]:[titan] 2025-01-02 03:04:05,678 - root - INFO - step:  3  loss:  4.9925  grad_norm:  2.6422  tps: 30,768
    """

    marks = ("step:",)

    def read(self, line: str, start: int) -> Reading | None:
        head = _TORCHTITAN_HEAD.search(line, start)
        if head is None:
            return None
        evaluation = _EVALUATES.search(line, start, head.start()) is not None
        reading = Reading("torchtitan", is_point=not evaluation)
        reading.take(separated_pairs(line, head.start()), evaluation=evaluation)
        return reading
