"""Toolkits for speech and translation: fairseq, ESPnet, icefall, OpenNMT."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import NUMBER, separated_pairs
from stayfinite.readers.logs.reading import BATCH, BATCHES, TOTAL, Reading

_INNER = lazy_regex(r"\bepoch\s+(\d+):?\s+(\d+)\s*/\s*(\d+)\s+(?=\w+=)")
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

    marks = ("epoch",)

    def read(self, line: str, start: int) -> Reading | None:
        inner = _INNER.search(line, start)
        if inner:
            reading = Reading("fairseq", fields=[("epoch", *inner.span(1))])
            reading.take(separated_pairs(line, inner.end()))
            if not reading.has("step"):
                reading.fields += [(BATCH, *inner.span(2)), (BATCHES, *inner.span(3))]
            return reading if reading.has("loss", "grad_norm") else None
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


_HEAD = lazy_regex(r"\b(\d+)epoch:(\w+):\d+-(\d+)batch:")
_RESULTS = lazy_regex(r"\b(\d+)epoch results:")
_VALID = lazy_regex(r"\[valid\]")


class EspNet(Format):
    """ESPnet 2.

    ::

        INFO: 5epoch:train:129-256batch: iter_time=0.001, loss_ctc=100.2, acc=0.3, loss=90.1, grad_norm=12.3, \
    loss_scale=1.000, optim0_lr0=1.2e-06, train_time=0.5
        INFO: 5epoch results: [train] loss=80.1, acc=0.4, [valid] loss=91.2, acc=0.3, [att_plot] time=2 minutes
    """

    marks = ("epoch:", "epoch results:")

    def read(self, line: str, start: int) -> Reading | None:
        head = _HEAD.search(line, start)
        if head:
            reading = Reading("espnet", fields=[("epoch", *head.span(1)), (BATCH, *head.span(3))])
            evaluation = head[2] != "train"
            pairs = separated_pairs(line, head.end())
            pairs = [("lr" if name == "optim0_lr0" else name, begin, end) for name, begin, end in pairs]
            reading.take([pair for pair in pairs if not pair[0].endswith("_time")], evaluation=evaluation)
            reading.is_point = not evaluation and reading.has("loss", "grad_norm")
            return reading
        results = _RESULTS.search(line, start)
        valid = _VALID.search(line, start) if results else None
        if results is None or valid is None:
            return None
        reading = Reading("espnet", fields=[("epoch", *results.span(1))], is_point=False)
        pairs = [pair for pair in separated_pairs(line, valid.end()) if "time" not in pair[0]]
        reading.take(pairs, evaluation=True)
        return reading


_ICEFALL_HEAD = lazy_regex(r"\bEpoch\s+(\d+), batch\s+(\d+),\s+(?=\w*loss\[|\w*loss:)")
_VALIDATION = lazy_regex(r"\bEpoch\s+(\d+), validation:\s+")
_TOTAL = lazy_regex(r"\btot_loss\[[^\]]*\]?")


class Icefall(Format):
    r"""icefall and other k2 recipes.

    ::

        INFO [train.py:904] Epoch 1, batch 14300, loss[loss=0.2, simple_loss=0.4, over 5580.00 frames. ], \
    tot_loss[loss=0.21, simple_loss=0.4, over 1e6 frames. ], batch size: 40, lr: 1.2e-02, grad_scale: 6.1e-05
        INFO [train.py:936] Epoch 1, validation: loss=0.19, simple_loss=0.36, over 1000.00 frames.
    """

    marks = (", batch ", "validation:")

    def read(self, line: str, start: int) -> Reading | None:
        validation = _VALIDATION.search(line, start)
        if validation:
            reading = Reading("icefall", fields=[("epoch", *validation.span(1))], is_point=False)
            reading.take(separated_pairs(line, validation.end()), evaluation=True)
            return reading
        head = _ICEFALL_HEAD.search(line, start)
        if head is None:
            return None
        total = _TOTAL.search(line, head.end())
        reading = Reading("icefall", fields=[("epoch", *head.span(1)), (BATCH, *head.span(2))])
        pairs = separated_pairs(line, head.end())
        inside = [] if total is None else [pair for pair in pairs if total.start() <= pair[1] < total.end()]
        reading.take([pair for pair in pairs if pair not in inside])
        reading.fields += [(f"tot_loss/{name.strip()}", begin, end) for name, begin, end in inside]
        return reading if reading.has("loss", "loss_scale", "lr") else None


_OPENNMT_HEAD = lazy_regex(r"\bStep\s+(\d+)\s*/\s*(\d+);")
_OLD = lazy_regex(r"\bEpoch\s+(\d+),\s*(\d+)/\s*(\d+);\s*acc:")
_SPEED = lazy_regex(r";\s*(\d+)\s*/\s*(\d+) tok/s")
_OPENNMT_VALIDATION = lazy_regex(rf"\bValidation (perplexity|accuracy|loss|xent): ({NUMBER})\s*$")
_NUMBERED = lazy_regex(rf"[a-z]\s?[:=]\s{{0,4}}{NUMBER}", re.IGNORECASE)


class OpenNmt(Format):
    """OpenNMT-py.

    ::

        [2023-01-02 03:04:05,678 INFO] Step 100/100000; acc: 16.1; ppl: 6103.2; xent: 8.7; lr: 0.00002; 5001/5500 tok/s
        [2023-01-02 03:04:05,678 INFO] Validation perplexity: 12.3
        Epoch 13, 64500/64667; acc: 57.58; ppl: 7.99; 5375 src tok/s; 5294 tgt tok/s; 18163 s elapsed
    """

    marks = ("step ", "validation ", "; acc:")

    def read(self, line: str, start: int) -> Reading | None:
        validation = _OPENNMT_VALIDATION.search(line, start)
        if validation and _NUMBERED.search(line, start, validation.start()) is None:  # otherwise part of a longer line
            return Reading("opennmt", fields=[(f"valid_{validation[1]}", *validation.span(2))], is_point=False)
        head = _OPENNMT_HEAD.search(line, start)
        if head is None:
            return self._old(line, start)
        reading = Reading("opennmt", fields=[("step", *head.span(1)), (TOTAL, *head.span(2))])
        reading.take(separated_pairs(line, head.end()))
        speed = _SPEED.search(line, head.end())
        if speed and not reading.has("throughput"):
            reading.fields.append(("throughput", *speed.span(2)))
        return reading if reading.has("loss", "lr", "ppl", "acc") else None

    @staticmethod
    def _old(line: str, start: int) -> Reading | None:
        head = _OLD.search(line, start)
        if head is None:
            return None
        fields = [("epoch", *head.span(1)), (BATCH, *head.span(2)), (BATCHES, *head.span(3))]
        reading = Reading("opennmt", fields=fields, is_point=False)
        reading.take(separated_pairs(line, head.end() - 5))
        return reading
