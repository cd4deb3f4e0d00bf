"""Toolkits for speech and translation: fairseq, ESPnet, icefall, OpenNMT."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.logs.formats.format import Format, Head
from stayfinite.readers.logs.pairs import NUMBER, Pair, separated_pairs
from stayfinite.readers.logs.reading import BATCH, BATCHES, Reading

_SUMMARY = lazy_regex(r"(?<![^\s|])epoch\s+(\d+)\s*\|")
_CELL = lazy_regex(rf"\|\s*([A-Za-z_][\w/ ]{{0,40}}?)\s+({NUMBER})\s*%?\s*(?=\||$)")


class Fairseq(Format):
    """fairseq, both formats.

    ::

        | INFO | train_inner | epoch 003:      5 / 356 loss=9.44, lr=0.000175, gnorm=156.036, loss_scale=0
        | epoch 010  2000 / 8223 loss=1.27 (1.50), wps=962, gnorm=2.1427
        | epoch 010 | train loss 1.44 | train ppl 2.72 | lr 0.001000 | clip 100% | gnorm 2.1113
        | epoch 010 | valid on 'valid' subset | valid loss 1.94 | valid ppl 3.83
        | INFO | train | epoch 001 | loss 9.1 | ppl 548 | num_updates 99 | gnorm 2.0
    """

    kind = "fairseq"
    marks = ("epoch",)
    heads = (
        Head(
            r"\bepoch\s+(?P<epoch>\d+):?\s+(?P<batch>\d+)\s*/\s*(?P<batches>\d+)\s+(?=\w+=)",
            needs=("loss", "grad_norm"),
        ),
    )

    def read(self, line: str, start: int) -> Reading | None:
        inner = super().read(line, start)
        if inner is not None and inner.has("step"):  # surer than the batch
            inner.fields = [field for field in inner.fields if field[0] not in (BATCH, BATCHES)]
        if inner is not None:
            return inner
        summary = _SUMMARY.search(line, start)
        if summary is None:
            return None
        evaluation = bool(re.search(r"\|\s*valid\b", line)) or "valid on" in line
        reading = Reading("fairseq", fields=[("epoch", *summary.span(1))], epoch_is_step=True)
        cells = [(match[1], *match.span(2)) for match in _CELL.finditer(line, summary.end() - 1)]
        reading.take(cells, evaluation=evaluation)
        reading.fields = [(_unprefixed(name), begin, end) for name, begin, end in reading.fields]
        reading.is_point = not evaluation and reading.has("loss", "grad_norm")
        return reading if len(reading.fields) > 1 else None


def _unprefixed(name: str) -> str:
    """`eval_valid_loss` -> `valid_loss`."""
    return name.removeprefix("eval_") if name.startswith("eval_valid") else name


class EspNet(Format):
    """ESPnet 2.

    ::

        INFO: 5epoch:train:129-256batch: iter_time=0.001, loss_ctc=100.2, acc=0.3, loss=90.1, grad_norm=12.3, \
    loss_scale=1.000, optim0_lr0=1.2e-06, train_time=0.5
        INFO: 5epoch results: [train] loss=80.1, acc=0.4, [valid] loss=91.2, acc=0.3, [att_plot] time=2 minutes
    """

    kind = "espnet"
    marks = ("epoch:", "epoch results:")
    heads = (
        Head(r"\b(?P<epoch>\d+)epoch:(?P<mode>\w+):\d+-(?P<batch>\d+)batch:", point_needs=("loss", "grad_norm")),
        Head(r"\b(?P<epoch>\d+)epoch results:.*?\[valid\]", evaluates=True),
    )

    def pairs(self, line: str, place: int) -> list[Pair]:
        found = separated_pairs(line, place)
        found = [("lr" if name == "optim0_lr0" else name, begin, end) for name, begin, end in found]
        return [pair for pair in found if pair[0] != "time" and not pair[0].endswith("_time")]


_TOTAL = lazy_regex(r"\btot_loss\[[^\]]*\]?")


class Icefall(Format):
    r"""icefall and other k2 recipes.

    ::

        INFO [train.py:904] Epoch 1, batch 14300, loss[loss=0.2, simple_loss=0.4, over 5580.00 frames. ], \
    tot_loss[loss=0.21, simple_loss=0.4, over 1e6 frames. ], batch size: 40, lr: 1.2e-02, grad_scale: 6.1e-05
        INFO [train.py:936] Epoch 1, validation: loss=0.19, simple_loss=0.36, over 1000.00 frames.
    """

    kind = "icefall"
    marks = (", batch ", "validation:")
    heads = (
        Head(r"\bEpoch\s+(?P<epoch>\d+), validation:\s+", evaluates=True),
        Head(
            r"\bEpoch\s+(?P<epoch>\d+), batch\s+(?P<batch>\d+),\s+(?=\w*loss\[|\w*loss:)",
            needs=("loss", "loss_scale", "lr"),
        ),
    )

    def read(self, line: str, start: int) -> Reading | None:
        reading = super().read(line, start)
        if reading is not None and reading.is_point and (total := _TOTAL.search(line)):
            for pair in separated_pairs(line, total.start()):
                if pair[1] < total.end():
                    reading.fields.append((f"tot_loss/{pair[0].strip()}", *pair[1:]))
        return reading

    def pairs(self, line: str, place: int) -> list[Pair]:
        total = _TOTAL.search(line)
        found = separated_pairs(line, place)
        return [pair for pair in found if total is None or not total.start() <= pair[1] < total.end()]


_SPEED = lazy_regex(r";\s*(\d+)\s*/\s*(\d+) tok/s")
_VALIDATION = lazy_regex(rf"\bValidation (perplexity|accuracy|loss|xent): ({NUMBER})\s*$")
_NUMBERED = lazy_regex(rf"[a-z]\s?[:=]\s{{0,4}}{NUMBER}", re.IGNORECASE)


class OpenNmt(Format):
    """OpenNMT-py.

    ::

        [2023-01-02 03:04:05,678 INFO] Step 100/100000; acc: 16.1; ppl: 6103.2; xent: 8.7; lr: 0.00002; 5001/5500 tok/s
        [2023-01-02 03:04:05,678 INFO] Validation perplexity: 12.3
        Epoch 13, 64500/64667; acc: 57.58; ppl: 7.99; 5375 src tok/s; 5294 tgt tok/s; 18163 s elapsed
    """

    kind = "opennmt"
    marks = ("step ", "validation ", "; acc:")
    heads = (
        Head(r"\bStep\s+(?P<step>\d+)\s*/\s*(?P<total>\d+);", needs=("loss", "lr", "ppl", "acc")),
        Head(r"\bEpoch\s+(?P<epoch>\d+),\s*(?P<batch>\d+)/\s*(?P<batches>\d+);\s*(?=acc:)", is_point=False),
    )

    def read(self, line: str, start: int) -> Reading | None:
        validation = _VALIDATION.search(line, start)
        if validation and _NUMBERED.search(line, start, validation.start()) is None:  # otherwise part of a longer line
            return Reading("opennmt", fields=[(f"valid_{validation[1]}", *validation.span(2))], is_point=False)
        reading = super().read(line, start)
        speed = _SPEED.search(line, start) if reading is not None else None
        if reading is not None and reading.is_point and speed and not reading.has("throughput"):
            reading.fields.append(("throughput", *speed.span(2)))
        return reading
