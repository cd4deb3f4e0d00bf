"""Backward without a graph: torch's messages, shared by three causes, and how to separate these."""

from __future__ import annotations

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Message
from stayfinite.rules.facts import Facts, Line

NO_GRAPH = (
    r"element \d+ of (?:tensors|variables) does not require grad|does not require grad and does not have a grad_fn|"
    r"loss (?:tensor )?does not (?:require|have) (?:a )?grad|one of the differentiated tensors does not require grad|"
    r"no graph nodes that require computing gradients|no gradients? provided for any variable|"
    r"an operation has `?none`? for gradient|cannot register a hook on a tensor that doesn'?t require grad"
)
"""Errors of torch, old and new, and of TensorFlow and Keras."""
TRAINS_A_PART = (
    r"\btrain(?:able|ed|ing|s)?\b(?: (?:part|module|layer|param\w*)s?)?: ?"
    r"(?!0\b|none|null|false|\[\])(?:\w+[./]\w|only|the )|"
    r"\bunfr(?:eez|oz)e?\w*|requires_grad(?:_\(| ?= ?)True|requires_grad_\(\)"
)
"""A remark on what is trained."""
CHECKPOINTED_NOTHING = r"none of the inputs have requires_grad"


def no_graph(facts: Facts) -> Message | None:
    """The error of backward for a loss that depends on no parameter."""
    return facts.said(NO_GRAPH)


TRAINABLE = (
    r"(?:(?<![不非無无])可(?:[訓训][練练]|[学學][習习])的?[參参][數数](?:[總总]?[數数]?量)?|"
    r"(?:学習|訓練)可能な?パラメーター?(?:の?数)?|학습 ?가능한? ?(?:파라미터|매개 ?변수)(?: ?수)?|"
    r"\b\u043e\u0431\u0443\u0447\u0430\u0435\u043c\w+ (?:параметр|вес)\w*|\bparam[eè]tres? entra[iî]nables?|"
    r"(?<!nicht )(?<!nicht-)\btrainierbare\w* parameter|\bpar[aá]metros entrenables|\bpar[aâ]metros trein[aá]veis|"
    r"\bparametri (?:addestrabili|allenabili)|\be[gğ]itilebilir parametre\w*)\s*[:=\uff1a]+\s*"
)
"""What is printed before the number of trainable parameters, in other languages than English."""


def nothing_trainable(facts: Facts) -> Line | None:
    """A trainable parameter count of zero."""
    return _nothing_in_english(facts) or facts.mentioned(
        TRAINABLE + r"0(?:\.0+)?(?![\d.,]*[1-9])(?!\d)\s*(?:$|[^\s\w%.,]|[MKB个個]\b|[,\uff0c])"
    )


def _nothing_in_english(facts: Facts) -> Line | None:
    """The same as English programs print it."""
    return facts.mentioned(
        r"(?<!non-)(?<!un)(?<!not )trainable(?: model)? param\w*\s*[:=]+\s*0(?:\.0*)?\s*(?:[|M,]|B?\s*$|\()|"
        r"(?:^|[|\s])0\s+trainable param\w*|\b(?:all|every) (?:param\w*\W{1,3})?requires_grad\W{1,3}false\b|"
        r"(?<!non-)\btrainable\b(?: [a-z]+){0,4}\s?[:=]+\s*0(?![\d.])|"
        r"\b(?:len|sum|count)\(.{0,40}trainable.{0,20}[:=]+\s*0\b|trainable%:\s*0\.0*\s*$|"
        r"\bnum(?:ber)?\.? (?:of )?train(?:ed|able)(?: param\w*)?\s*[:=]\s*0\b(?!\.\d*[1-9])|"
        r"\(0(?:\.0+)?[MBK]? trainable|"
        r"(?<!non-)(?<!un)trainable param\w*\s(?:is|are|was|were)(?: set to)? (?:0(?:\.0+)?(?![\d.])|zero)\b"
    )


def loaded_frozen(facts: Facts) -> Line | None:
    """An adapter that was loaded for inference."""
    for where, text in facts.lines:
        lowered = text.lower()
        if "is_trainable" in lowered and "true" in lowered.partition("is_trainable")[2]:
            return None
        if "peftmodel" in lowered and "from_pretrained" in lowered:
            return Line(where, text)
        if "inference_mode" in lowered and "true" in lowered.partition("inference_mode")[2][:8]:
            return Line(where, text)
        if "is_trainable" in lowered and "false" in lowered.partition("is_trainable")[2]:
            return Line(where, text)
    return None


_LISTED = lazy_regex(
    r"\b\w+(?:\.\w+)+(?:\.(?:weight|bias)\w*)?['\"]?[\s:=,(|]+(?:requires_grad\W{0,3})?(True|False)\b", re.IGNORECASE
)
SEVERAL = 3
"""Names in a parameter list that suffice to judge the rest."""


def all_switched_off(facts: Facts) -> Line | None:
    """A parameter list in which every name has False."""
    listed = [
        (Line(message.where, message.text.strip()), found.group(1).lower() == "true", message.count)
        for message in facts.messages
        if (found := _LISTED.search(message.text)) is not None
        and re.search(r"\.(?:weight|bias)\b|lora_|requires_grad", message.text, re.IGNORECASE)
    ]
    if sum(count for *_, count in listed) < SEVERAL or any(on for _, on, _ in listed):
        return None
    return next((line for line, *_ in listed if "lora" in line.text.lower()), listed[0][0])
