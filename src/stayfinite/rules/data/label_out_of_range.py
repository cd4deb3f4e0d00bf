"""A label is outside the model's classes.

## What it means
The loss got a class index below 0 or at or above the number of outputs, and it is not the ignore_index of the loss. On
the CPU torch raises `IndexError: Target 5 is out of bounds`; on CUDA a kernel assert ends the process (`Assertion t >=
0 && t < n_classes failed`), and every later call fails with `device-side assert triggered`.

## Why it happens
- Labels count from 1, the model counts from 0; or `num_labels` is one too small (the default of transformers is 2).
- Masks hold other values than class ids: 255 for "ignore" or for white, colors of a palette, anti-aliased edges
  after a resize with bilinear interpolation.
- The ignore label is not the loss's: -1 or 255 in the data, `ignore_index=-100` in the loss.
- A token classification labels with a map that does not cover every tag; an added class that the head does not know.
- Language models: labels from a larger vocabulary than the head, or -1 for masked places.

## How to recognize it
- `nll_loss_forward_reduce_cuda_kernel_2d`, `nll_loss2d_forward_kernel`, `ClassNLLCriterion`,
  `SpatialClassNLLCriterion` with `t >= 0 && t < n_classes` or `cur_target >= 0 && cur_target < n_classes`.
- `Target -1 is out of bounds`, `Class values must be smaller than num_classes` (one_hot),
  `all elements of target should be between 0 and 1` (BCE with class ids).
- A cross entropy, BCE or Dice loss below 0: labels of 255 where 0 and 1 are meant. With labels in range they never are.
- `index 10 is out of bounds for axis 1 with size 10`, and the model has 10 classes.
- One line tells: `labels.unique()` against `logits.shape[1]`.

## How to fix it
- transformers: `AutoModelFor...from_pretrained(name, num_labels=n, id2label=..., label2id=...)`; labels from 0 to n -
  1; -100 where nothing is to be learned. `ignore_mismatched_sizes=True` to put a new head on a trained checkpoint.
- Segmentation: `nn.CrossEntropyLoss(ignore_index=255)`, masks resized with `InterpolationMode.NEAREST`, palette
  images read as indices (mode "P", not converted to RGB), `reduce_zero_label` or `do_reduce_labels` where class 0 is
  background.
- Map once when loading: `labels = torch.tensor([index[name] for name in names])`, and assert the range there.
- To see the true place: one batch on the CPU, or `CUDA_LAUNCH_BLOCKING=1`.

## When it is a false alarm
A label equal to `ignore_index` may lie anywhere. After a device-side assert the process is lost: later messages about
cuBLAS or memory are only echoes.
"""

import re

from stayfinite.core.series import Message
from stayfinite.rules.contradictions import MAY_BE_NEGATIVE
from stayfinite.rules.data.lookups import (
    SCATTER,
    VOCABULARY,
    asked_and_rows,
    bare_assert,
    is_class_count,
    lookup_failure,
    target_failure,
)
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.aftermath import went_on

_CLASSES = (
    r"\bn(?:um)?_?(?:labels|classes)\b|\bclasses\b|\bn_classes\b|ignore_index|ignore_label|\bsegmentation\b|"
    r"\bmasks?\b.{0,30}\bclass|label ?(?:map|encoder|2id)|classification|nll_?loss|cross_?entropy|one_hot|"
    r"\bnc ?[:=] ?\d"
)

_PICTURES = (
    r"\b(?:own|custom|my|new) (?:[\w-]+ )?data(?:set)?\b|\bdata(?:set)?: ?(?:own|custom)|\bsegment\w*|\bdetect\w*|"
    r"\byolo\w*|"
    r"\bu-?net\b|\bresnet|\bdeeplab|\bimage|\bclassif|\bcifar|\bimagenet|\blanes?\b|\bmask\b|\bface"
)
"""Tasks in which a failing index is a class."""


_PIXELS = r"\bauto-?encoder|\bmasks?\b|\bsegment\w*|\bu-?net\b|reconstruct|\bmnist\b.{0,40}\bimages?\b"
"""Tasks whose targets are images."""

_DRAWN = r"\bmasks?\b|\bsegment(?:ation|ing)\b"
_WHITE = (
    r"\b(?:masks?|labels?|annotations?|ground ?truth|gt)\b.{0,60}\b0\s?(?:and|or|,|/|&)\s?255\b|"
    r"\b0\s?(?:and|or|,|/|&)\s?255\b.{0,40}\b(?:masks?|labels?|annotations?)\b"
)
_FROM_ONE = (
    r"\b(?:labels?|class(?:es)?|ids?|categor\w+)\b[^.;\n]{0,40}?"
    r"(?:\b(?:start\w*|begin\w*|count\w*)\s(?:at|from|with)\s1\b|\b(?:are|is|from|in)\W{1,3}1\s?(?:to|,|\.\.|-|~)\s?[\d.n]|"
    r"\b1-(?:based|indexed))"
)
ABSURD = 1e6
"""A first loss that no valid label gives."""

_BOUNDED = r"\bbce\w*|binary_?cross_?entropy\w*|(?<!nll_)cross[ _]?entropy\w*|\bfocal|\bsigmoid_focal|soft_?margin"
"""Losses that are never negative for valid labels; overlap losses are often negative."""
_MORE_CLASSES_WORK = r"class\w*\b.{0,16}\bto \d+.{0,60}\b(?:works?|fine|trains)\b"
_ASSIGNED = r"^\s*(?:label|target|y|class_?id)\s*[=:]\s*(\d+)\s*$"


def judge(facts: Facts) -> Clues:
    """Clues: the loss's own error; else a failed gather or a bare assert in a classification task."""
    target, scatter, vague = target_failure(facts), facts.said(SCATTER), bare_assert(facts)
    if target is not None:
        yield Clue(target.text, PROOF, target.where)
        if facts.symptoms.healthy and went_on(facts, target):
            yield Clue("training continues normally", REFUTED, facts.symptoms.at("start"))
    elif scatter is not None:
        yield Clue(scatter.text, 2.5, scatter.where)
        yield from _counted(facts, scatter)
    elif vague is not None:
        yield Clue(vague.text, 1.5, vague.where)
    yield from _below_zero(facts)
    if facts.symptoms.trouble:
        yield from _pixels_for_classes(facts)
        if facts.symptoms.non_finite:
            # On a GPU, TensorFlow gives NaN where torch and its own CPU kernel raise.
            yield from quote(
                facts.mentioned(r"sparse_(?:softmax_)?(?:categorical_)?cross_?entropy"),
                FAIR + HINT,
                "on a GPU, TensorFlow returns NaN for a label outside the classes: {:.80}",
            )
        yield from _raised(facts)
    if target is None and (scatter is not None or vague is not None):
        lookup = lookup_failure(facts)
        named = facts.mentioned(_CLASSES)
        yield from quote(named, FAIR, "a loss over classes: {}")
        if named is None and lookup is None and scatter is None:
            yield from quote(facts.mentioned(_PICTURES), FAIR, "labels are looked up, not text: {:.80}")
    if target is not None or scatter is not None or vague is not None:
        declared = facts.mentioned(
            r"ignore_index|ignore_label|labels? (?:start|from) (?:at )?1\b|class(?:es)? ids?|\b255\b"
        )
        yield from quote(declared, HINT, "labels that need a map: {}")


def _raised(facts: Facts) -> Clues:
    """More classes help, or labels in the code that are beyond their own number."""
    yield from quote(facts.mentioned(_MORE_CLASSES_WORK), STRONG, "fine with more classes: {:.100}")
    lines = [text for _, text in facts.lines]
    given = {int(number) for line in lines for number in re.findall(_ASSIGNED, line)}
    if len(given) >= 2 and max(given) > 2 * len(given):
        some = ", ".join(map(str, sorted(given)[:3]))
        yield Clue(f"labels {some}: {len(given)} classes are 0 to {len(given) - 1}", STRONG + HINT)


def _counted(facts: Facts, scatter: Message) -> Clues:
    """Identify the table if the settings give its size."""
    asked = asked_and_rows(scatter)
    if asked is None:
        return
    if asked[1] >= VOCABULARY:
        yield Clue(f"a table of {asked[1]} rows is a vocabulary", AGAINST)
    classes = is_class_count(facts, asked[1])
    if classes is not None:
        label = "a label beyond them" if asked[0] is None else f"label {asked[0]}"
        yield Clue(f"{label}, but the model has {asked[1]} classes ({classes.text})", STRONG, classes.where)


def _pixels_for_classes(facts: Facts) -> Clues:
    """Masks stored as pictures, or labels counted from 1, where classes from 0 are expected."""
    yield from quote(facts.mentioned(_WHITE), STRONG, "masks hold pixels, not classes: {:.80}")
    below = facts.symptoms.said("negative loss")
    counted = facts.mentioned(_FROM_ONE)
    if below is not None and counted is not None:
        yield Clue(
            f"labels start at 1, and the loss is negative: {counted.text.strip()[:80]}", STRONG + HINT, counted.where
        )
    start, drawn = facts.symptoms.first_loss, facts.mentioned(_DRAWN)
    if start is not None and start >= ABSURD and drawn is not None:
        text = (
            f"the first loss is {start:.3g}, and targets are masks: 0 to 255 unless scaled ({drawn.text.strip()[:60]})"
        )
        yield Clue(text, STRONG, drawn.where)


def _below_zero(facts: Facts) -> Clues:
    """A negative loss where valid labels cannot cause one."""
    symptoms = facts.symptoms
    best, above = symptoms.best_loss, symptoms.contradicted("share above 1")
    yield from quote(above, STRONG + HINT, "{}; targets above 1 make it larger", where=symptoms.at("start"))
    told, bounded = symptoms.said("negative loss"), facts.mentioned(_BOUNDED)
    said = told and re.search(rf"(?:{_BOUNDED})[^.;,\n]{{0,40}}\bnegative", told.text, re.IGNORECASE)
    if told is not None and said:
        text = f"labels from 0 to 1 cannot make this loss negative: {told.text[said.start() :][:80]}"
        yield Clue(text, STRONG + FAIR, told.where)
    elif best is None and told is not None and bounded is not None and facts.mentioned(MAY_BE_NEGATIVE) is None:
        yield Clue(f"labels outside 0 to 1 make this loss negative: {bounded.text.strip()[:80]}", STRONG, bounded.where)
    if best is None or best >= -0.01:
        return
    negative = symptoms.contradicted("negative loss")
    if negative is not None:
        yield Clue(negative.text, FAIR, symptoms.at("start"))
        yield from quote(facts.mentioned(_PIXELS), FAIR, "targets are pixels: 0 to 255 unless scaled ({:.60})")
    if bounded is not None and facts.mentioned(MAY_BE_NEGATIVE) is None:
        text = f"loss {best:.4g}; cross entropy of labels from 0 to 1 is never below 0"
        yield Clue(text, STRONG + HINT, facts.symptoms.at("start"))
        yield Clue(f"this loss cannot be negative: {bounded.text.strip()[:80]}", 1.5, bounded.where)


RULE = Rule(
    code="SF305",
    fix=(
        "map labels to 0 ... num_labels - 1, set num_labels to their number and ignore_index to the value of ignored "
        "positions"
    ),
    proofs={
        # The labels of a batch that are no class and not ignored, a list.
        "data.labels_out_of_range": "labels outside the classes: {}",
    },
    prior=-3.0,
    beats=("token-id-out-of-range", "position-out-of-range", "environment", "hardware", "nan-loss"),
    says={
        r"saw a non-null label \(index >= num_classes": PROOF,
    },
)
