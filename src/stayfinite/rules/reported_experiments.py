"""Reported reruns: `fp32: trains`, `without the mask: finite`, `lr reduced to one tenth, no change`.

People try things before they ask and write down what helped: the same training with one change. What this says about
each cause is the same for every rule, so it is defined here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from stayfinite.core.lazy_regex import lazy_regex

LONGEST = 240
"""Characters of a remark: of a longer text, each two sentences that follow each other are one."""
MOST_SENTENCES = 24
_TRIED = lazy_regex(
    r"\b(?:tried|trying|tested|changed|chang(?:e|ing)|switch\w*|instead|without|disabl\w+|remov\w+|lower\w*|reduc\w+|"
    r"replac\w+|(?:when|if|once|after) (?:I|we))\b",
    re.IGNORECASE,
)
"""Without one of these a long text's version or card is what somebody has."""
_SENTENCE = lazy_regex(r"(?:[^.!?]|[.](?=\S))+[.!?]?")

_GOOD = lazy_regex(
    r"\b(?:(?<!to )trains?|works?|working|fine|ok(?:ay)?|normal(?:ly)?|finite|stable|converges?|"
    r"no (?:problem|issue|nan|error|overflow)s?|without (?:nan|problem|error|issue)s?|"
    r"(?:does|did)(?: not|n't) (?:happen|occur|appear|crash|diverge|reproduce)|"
    r"not (?:seen|happen\w*|reproduc\w*|affected)|never (?:happens?|occurs?|seen|nan\w*|diverges?|fails?)|"
    r"(?:is|are) good|gone|disappear(?:s|ed)?|vanish(?:es|ed)|resolve[sd]?|(?:solve|fixe|cure)[sd]?|help(?:s|ed)|"
    r"(?:goes?|going|went) away|succeeds?|learns|fall(?:s|ing)|decreas(?:es|ing)|improves?|"
    r"does (?:rise|fall|learn|train|work|converge|improve|go (?:up|down))|healthy)\b|"
    r"\b(?:grad\w*|gnorm|cross-?entropy)\b(?: ?norm)?(?: is| ?=| ?:)? ?\d*\.\d",
    re.IGNORECASE,
)
_BAD = lazy_regex(
    r"\b(?:no (?:change|effect|difference|help)|same (?:problem|issue|result|error|nan|thing)|the same\b|still|"
    r"also (?:nan|fails?|happens?)|(?:does|did)(?: not|n't) (?:help|work|train|solve|fix|change|matter|converge|learn)|"
    r"as well|nan (?:too|as well|again)|fails? too|not (?:fine|stable|finite|working)|never (?:works?|trains?|"
    r"converges?|learns?)|nothing (?:helps|helped|changes)|changed nothing|did nothing|"
    r"no (?:luck|faster|better|avail)|in vain|makes? no difference|made no difference|to no effect)\b|[:,] ?same\W*$",
    re.IGNORECASE,
)
_LOST = lazy_regex(
    r"\b(?:nan|inf|diverg(?:e[sd]?|ing)|explode[sd]?|overflow(?:s|ed)?|crash(?:es|ed)?|fail(?:s|ed)?)\b",
    re.IGNORECASE,
)
"""The outcome, in a clause without success."""

_IN_THE_END = lazy_regex(
    r"\b(?:then|until|later|eventually|at first|finally)\b.{0,30}\b(?:nan|inf|diverge|explode|overflow|crash|fail)",
    re.IGNORECASE,
)
"""`falls, then NaN`: the end counts."""

_CLAUSE = lazy_regex(
    r"[;.]\s|,\s(?!(?:then|until|later|finally|eventually)\b)|\b(?:but|while|whereas|although|though|however)\b",
    re.IGNORECASE,
)


def _off(names: str) -> str:
    """Words for something that is left out: `without X`, `X disabled`, `when I turn X off`."""
    return (
        rf"\b(?:without|no|disabl\w+|remov\w+|switch\w* off|turn\w* off)(?: the)?(?: \w+)? (?:{names})|"
        rf"\b(?:{names})\b[^.;:]{{0,14}}\b(?:off|disabled|false|removed)\b"
    )


_SUBJECTS = {
    "eager attention": r"\beager\b(?! mode)|enable_(?:flash|mem_efficient)_sdp\(false|"
    r"\breplac\w+ \W?(?:\w+\.)?scaled_dot_product_attention|\bmath (?:kernel|sdp\w*|attention|backend)|"
    + _off(r"flash\w*|xformers|sdpa|fused"),
    "no fp8": _off("fp8|float8"),
    "rowwise scales": r"\b(?:row-?wise|axis-?wise|block-?wise|per-row)\b",
    "dynamic scales": r"\b(?:dynamic|current|just-in-time) scal(?:e|es|ing)\b",
    "bf16": r"\b(?:bf16|bfloat16)\b",
    "fp32": r"\b(?:fp32|f32|float32|full precision|single precision)\b|"
    + _off("amp|fp16|half|mixed precision|autocast"),
    "one part in fp32": r"\b(?:softmax|layer ?norm|attention|loss|head|norms?|logits|lm_head|vae)\b[^.;]{0,16}"
    r"\b(?:in|to|as|kept in) (?:fp32|float32|float\b)|\b(?:upcast\w*|\.float\(\))",
    "another ZeRO stage": r"\bzero[-_ ]?(?:stage[-_ ]?)?[0-3]\b|"
    + _off("deepspeed|overlap_comm"),
    "no mask": _off("mask") + r"|\bmask none\b",
    "another device": r"\b(?:an)?other (?:gpus?|cards?|machines?|devices?|node)|"
    r"\b(?:on|with)(?: an?| the)? (?:A100|V100|H100|T4|P100|CPU|TPU|RTX ?\w+|GTX ?\w+|Azure|Colab)\b|"
    r"^\s*(?:cpu|colab)\b",
    "another version": r"\b(?:older|newer|earlier|previous|nightly|latest|upgrad\w+|downgrad\w+)\b[^.;]{0,24}"
    r"\b(?:version|torch|pytorch|cuda|cudnn|driver|transformers|release|to \d)|"
    r"\b(?:torch|pytorch|cuda|cudnn|transformers|deepspeed|apex|tensorflow|tf)[ =:-]{1,3}v?\d+\.\d[\w.+]*(?=[ :,;])",
    "a lower rate": r"\b(?:lower\w*|smaller|reduc\w+|decreas\w+|tenth|halv\w+)\b(?:(?!\bduring\b|\bwarm)[^.;]){0,30}"
    r"\b(?:lr|learning[ _-]?rate|rate)\b|"
    r"\b(?:lr|learning[ _-]?rates?)\b[^.;]{0,24}\b(?:lower(?:ed)?|smaller|reduced|decreased|tenth|several|changed|"
    r"other values|different|any)\b|"
    r"\b(?:other|different|several|tried|chang\w+)\b[^.;]{0,30}\b(?:lr|learning[ _-]?rates?)\b|"
    r"\blr ?/ ?10\b",
    "another batch size": r"\b(?:smaller|larger|bigger|lower|other) batch|\b(?:fewer|less) gpus|"
    r"\bbatch[ _-]?size\b(?: of| to|:| =)? ?(?:[2-9]|\d{2,})\b(?=[^.;]*[a-z]{3})",
    "a batch of one": r"\bbatch(?:[ _-]?size)?\b(?: of| to|:| =)? ?(?:1|one)\b(?![\d.])|\bno padding|\bwithout padding",
    "other data": r"\b(?:other|another|original|official|public|toy|synthetic|random|dummy|clean\w*) "
    r"(?:data\w*|images?|corpus|inputs?|rows?)|"
    r"\b(?:VOC|COCO|MNIST|CIFAR\w*|ImageNet|LibriSpeech|WMT\w*) (?:itself|data\w*)|\bwithout (?:the )?augment\w*|"
    r"\bwithout (?:that|this|those) \w+",
    "scaled inputs": r"\b(?:normali[sz]|standardi[sz]|(?:re)?scal)ing (?:the |my |all )?(?:\w+ )?"
    r"(?:inputs?|targets?|features?|data|images?|labels?|values|observations?)\b",
    "a mean over elements": r"\breduction\W{1,3}['\"]?mean\b|\baverag\w+ the loss\b|\bloss\.mean\(\)",
    "the bad batch skipped": r"\bskip\w* (?:that|this|the|those|these|it)\b|"
    r"\bwithout (?:that|this|those) (?:batch|step)",
    "another seed": r"\b(?:an)?other seeds?|\bdifferent seeds?|\bdepends on the seed",
    "another optimizer": r"\b(?:with|using|and)? ?(?:sgd|adafactor|rmsprop|adagrad|adadelta|another optimizer)\b",
    "a larger eps": r"\b(?:larger|bigger|increas\w+|rais\w+)\b[^.;]{0,16}\b(?:adam'?s? )?eps(?:ilon)?\b|"
    r"\beps(?:ilon)?(?:[ =:]{1,3}| to )1e-0?[2-6]\b",
    "a guarded loss": r"\b(?:add(?:ing|ed)?|with) (?:an? |small )*(?:eps(?:ilon)?|1e-\d+|clamp\w*)\b[^.;]{0,30}"
    r"\b(?:log|sqrt|norm|div\w*|denominator|loss|inside|before)|\bclamp(?:ing|ed)\b[^.;]{0,30}\b(?:log|sqrt|prob\w*|"
    r"var\w*)",
    "clipping": r"\b(?:with|adding|after|using) (?:gradient |grad )?clip\w*|^\s*(?:gradient |grad )?clipping\b",
    "warmup": r"\b(?:with|adding|longer|more) (?:\w+ )?warm-?up|^\s*warm-?up (?:of|for|added)",
    "pretrained weights": r"\b(?:with|from|loading|using) (?:the )?pre-?trained|"
    r"\bpre-?trained (?:weights|backbone|model)\b",
    "a longer limit": r"\b(?:longer|larger|increas\w+|rais\w+|bigger)\b[^.;]{0,20}"
    r"\b(?:max[_ ]?(?:seq[_ ]?)?len\w*|cutoff\w*|context|sequence length|max[_ ]length)",
    "one process": r"\b(?:single|one|1)[- ](?:gpu|card|process|node)\b|" + _off("ddp|fsdp|distributed"),
    "no compilation": _off(r"(?:torch\.?)?compil\w+") + r"|\beager mode",
    "no checkpointing": _off("checkpointing") + r"|\benable_input_require_grads\b|\buse_reentrant\b[^.;]{0,3}\bfalse\b",
}  # fmt: skip
SUBJECTS = {name: lazy_regex(pattern, re.IGNORECASE) for name, pattern in _SUBJECTS.items()}


@dataclass(frozen=True, slots=True)
class ReportedExperiment:
    """A report that the training was tried with a change."""

    subject: str
    good: bool
    where: str
    text: str


def reported_experiments(remarks: Iterable[tuple[str, str]]) -> list[ReportedExperiment]:
    """Every rerun in remarks ``(where, text)``, one per subject."""
    found: dict[str, ReportedExperiment] = {}
    for where, text in remarks:
        for world in _in_remark(where, text):
            found.setdefault(world.subject, world)
    return list(found.values())


def _in_remark(where: str, text: str) -> Iterator[ReportedExperiment]:
    if len(text) > LONGEST:
        sentences = _SENTENCE.findall(text)
        for pair in pairwise(sentences) if len(sentences) <= MOST_SENTENCES else ():
            if len(remark := "".join(pair)) <= LONGEST and _TRIED.search(remark):
                yield from _in_remark(where, remark)
        return
    clauses = [clause for clause in _CLAUSE.split(text) if clause.strip()]
    for subject, pattern in SUBJECTS.items():
        at = next((index for index, clause in enumerate(clauses) if pattern.search(clause)), None)
        if at is None and pattern.search(text) is None:
            continue
        # `lr reduced to one tenth, no change`: the outcome may be in its own clause.
        told = next((good for clause in clauses[at or 0 :] if (good := _outcome(clause)) is not None), None)
        good = told if told is not None else _outcome(text)
        if good is not None:
            yield ReportedExperiment(subject, good, where, text.strip())


_TAKEN_OFF = lazy_regex(r"\b(?:without|disabl\w+|remov\w+|(?:switch|turn)\w* off)\b", re.IGNORECASE)


def tells_of_loss(text: str) -> bool:
    """Whether a remark also says that something failed; without, `works fine with X` is praise.

    Who takes something off has had trouble with it.
    """
    return any(each.search(text) is not None for each in (_LOST, _BAD, _TAKEN_OFF))


def _outcome(clause: str) -> bool | None:
    """Whether a clause reports success; None if neither."""
    if _BAD.search(clause) or _IN_THE_END.search(clause):
        return False
    if _GOOD.search(clause):
        return True
    return False if _LOST.search(clause) else None
