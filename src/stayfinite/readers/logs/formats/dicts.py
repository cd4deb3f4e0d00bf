"""Python dicts and JSON objects, one per line: transformers, trl, ms-swift, fairseq's JSON, JSON Lines.

::

    {"loss": 0.0, "grad_norm": nan, "learning_rate": 5e-05, "epoch": 0.97}
    {"loss": "3.846", "grad_norm": "1.2", "learning_rate": "3.4e-07", "epoch": "0.01"}
    {"loss": 1e-08, "grad_norm": 0.03865505, "global_step/max_steps": "2/4389"}
    {"step": 92261, "loss": NaN, "text_loss": 2.1, "latent_loss": NaN, "grad_norm": NaN, "lr": 0.0001}

transformers filters NaN losses out of its averages, and a resulting loss of 0.0 is kept as it is.
"""

from __future__ import annotations

import re
from typing import ClassVar

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.log_names import column_of, is_evaluation, is_loss_part, plain
from stayfinite.readers.logs.formats.format import Format
from stayfinite.readers.logs.pairs import NUMBER, Pair, worst_of_list
from stayfinite.readers.logs.reading import TOTAL, Reading

_OPENS = lazy_regex(r"\{\s*['\"][^'\"]{1,120}['\"]\s*:")
_TOKENS = lazy_regex(
    rf"(?P<brace>[{{}}])|'(?P<single>[^'\n]{{0,4000}})'(?P<key1>\s*:)?|\"(?P<double>(?:[^\"\\\n]|\\.){{0,4000}})\"(?P<key2>\s*:)?"
    rf"|(?<![\w.])(?P<number>{NUMBER})"
)
_NUMBER = lazy_regex(NUMBER)
_FRACTION = lazy_regex(r"(\d+)\s*/\s*(\d+)")
_MEANS_SOMETHING = frozenset({"decision", "event", "code", "split", "type", "mode", "phase", "subset", "stage"})
_TELLING = lazy_regex(r"reward|accuracy|acc\b|perplexity|ppl|bleu|kl\b|logps|entropy|wer\b|cer\b|rouge|f1\b|map\b")
_LISTED_STEP = lazy_regex(r"\"step\":\s*\[(?:\d+,\s*){1,3}(\d+)\]")
"""DLLogger: epoch, step, and position within them."""
_DEEPEST = 16
ENOUGH = 4
"""Numbers that make an object of a line that was cut off."""
_EVALUATES = {"eval", "val", "valid", "validation", "test", "dev"}


class Dicts(Format):
    """Any object with a loss, a gradient norm or similar."""

    marks = ("{",)

    def read(self, line: str, start: int) -> Reading | None:
        opening = _OPENS.search(line, start)
        if opening is None:
            return None
        begin = opening.start()
        pairs, texts, wild = _flattened(line, begin)
        if line[-1] not in "}] )," and "}" not in line[-40:]:
            if len(pairs) < ENOUGH:
                return None
            pairs.pop()  # the line was cut off, perhaps within this number
        if not pairs:
            return None
        listed = _LISTED_STEP.search(line, begin)
        if listed:
            pairs = [(name, *(listed.span(1) if name == "step" else span)) for name, *span in pairs]
        lists = [worst_of_list(line, *span) if "loss" in name else None for name, *span in pairs]
        pairs = [(name, *(worst or span)) for (name, *span), worst in zip(pairs, lists, strict=True)]
        names = {plain(name) for name, _, _ in pairs}
        kind = "transformers" if line[begin + 1 :].lstrip()[:1] == "'" else "json lines"
        reading = Reading(kind, wild=wild, has_shape=not any(lists))
        for name, span_start, span_end in list(pairs):
            fraction = _FRACTION.fullmatch(line, span_start, span_end)
            if fraction:
                pairs.remove((name, span_start, span_end))
                if "step" in name or "iter" in name:
                    reading.fields += [("step", *fraction.span(1)), (TOTAL, *fraction.span(2))]
                    reading.kind = "ms-swift"
        evaluation = any(
            texts.get(key, "") in _EVALUATES for key in ("split", "mode", "phase", "type", "subset", "stage")
        )
        reading.take(pairs, evaluation=evaluation)
        measured = reading.has("loss", "grad_norm")
        if not measured and not any(map(_tells, names)):
            plain_numbers = not texts and len(names) > 1 and "epochs" not in names and all(map(column_of, names))
            if not plain_numbers:
                return None
        if any("fp16" in name or "batch_size" in name for name in names) and not reading.has("step", "epoch"):
            return None
        if "train_runtime" in names:
            reading.is_summary = True
        reading.is_point = reading.has("loss", "grad_norm", "lr", "loss_scale") and not evaluation
        parts = [name for name, _, _ in reading.fields if is_loss_part(name)]
        if len(parts) > 1 and not evaluation and not reading.has("loss") and reading.has("step", "epoch"):
            reading.loss_is_sum = reading.is_point = True
        event = texts.get("event")
        if event is not None:
            reading.is_message = True
        reading.skipped = "veto" in (event, texts.get("decision"))
        return reading


def _tells(name: str) -> bool:
    return is_loss_part(name) or (is_evaluation(name) and "loss" in name) or _TELLING.search(name) is not None


def _flattened(line: str, begin: int) -> tuple[list[Pair], dict[str, str], list[tuple[int, int, str]]]:
    """Return ``(name, start, end)`` of numbers, text values by name, and spans of variable text."""
    pairs: list[Pair] = []
    texts: dict[str, str] = {}
    wild: list[tuple[int, int, str]] = []
    path: list[str] = []
    key = ""
    for token in _TOKENS.finditer(line, begin):
        brace = token["brace"]
        if brace == "{":
            if len(path) < _DEEPEST:
                path.append(key)
            key = ""
        elif brace == "}":
            if path:
                path.pop()
            if not path:
                break
        elif token["key1"] or token["key2"]:
            key = token["single"] or token["double"] or ""
        elif key and token["number"] is not None:
            pairs.append(("/".join([*filter(None, path), key]), *token.span("number")))
            key = ""
        elif key:
            group = "single" if token["single"] is not None else "double"
            value, span = token[group], token.span(group)
            if _NUMBER.fullmatch(value) or _FRACTION.fullmatch(value):
                pairs.append(("/".join([*filter(None, path), key]), *span))
            else:
                texts[key] = value[:200]
                if key not in _MEANS_SOMETHING:
                    wild.append((*span, "[^']*" if group == "single" else r'(?:[^"\\]|\\.)*+'))
            key = ""
    return pairs, texts, wild


class NamedNumbers(Format):
    """One name with its number on a line; a step that comes in another row is ignored."""

    row: ClassVar[re.Pattern[str]]
    telling: ClassVar[re.Pattern[str]] = lazy_regex(r"(?!)")
    """Names that count besides losses."""

    def read(self, line: str, start: int) -> Reading | None:
        found = self.row.match(line, start)
        if found is None:
            return None
        name = plain(found[1])
        column = column_of(name)
        if column in {"loss", "grad_norm"}:
            return Reading(self.kind, fields=[(column, *found.span(2))])
        if is_loss_part(name) or self.telling.search(name) or (is_evaluation(name) and "loss" in name):
            return Reading(self.kind, fields=[(name, *found.span(2))], is_point=False)
        return None


class JsonFragments(NamedNumbers):
    """Lines pasted from a JSON file, one key per line.

    ::

          "eval_logits/rejected": NaN,
          "loss": 0.0,
    """

    kind = "json"
    marks = ('":',)
    row = lazy_regex(rf"\s*\"([^\"]{{1,80}})\"\s*:\s*\"?({NUMBER})\"?\s*,?\s*$")
    telling = lazy_regex(r"reward|logits|logps|accuracy|perplexity|bleu|entropy|\bkl\b")


class BoxedRows(NamedNumbers):
    """Two-column tables of name and value, as in guided-diffusion, stable-baselines and Lightning.

    ::

        | grad_norm  | 0.25     |
        | loss       | nan      |
        │        train_loss         │            nan            │
    """

    kind = "table"
    marks = (
        "loss", "norm", "rew", "ret", "val", "entropy", "variance", "acc", "auc", "bleu", "f1", "iou", "dice", "score",
        "kl", "clip_f",
    )  # fmt: skip
    telling = lazy_regex(
        r"^loss|rew|ret$|return|vals$|entropy|explained_variance|approx_kl$|clip_fraction$|acc(?:uracy)?$|auc$|bleu|f1$|iou$|dice$"
    )
    row = lazy_regex(rf"\s*+[|│]\s*+([A-Za-z][\w/.-]{{0,60}}+)\s*+[|│]\s*+({NUMBER})\s*+[|│]\s*$")
