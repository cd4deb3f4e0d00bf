"""Symptoms reported in words: `loss is always 0`, `weights are not changing`, `stuck around 1.11`.

What is said of a loss, a gradient, weights, a rate or a score is read by :mod:`told_states`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.signs.in_chinese import from_chinese
from stayfinite.rules.signs.nan_words import says_not_finite, speaks_of_nan
from stayfinite.rules.signs.shown_text import shown_repetition
from stayfinite.rules.signs.told_scores import tells_low_score, tells_what_was_hoped_for
from stayfinite.rules.signs.told_states import tells_of_arrival, told_states
from stayfinite.rules.signs.usual_courses import usual_kinds

Kind = Literal[
    "not finite", "zero loss", "zero gradient", "still", "weights still", "explodes", "same answers", "rate 0",
    "rate still", "worse after loading", "bad answers", "low score", "score falls", "negative loss", "negative kl",
    "rate off", "overflows", "memory grows", "loss rises", "hangs", "not as expected", "slow",
]  # fmt: skip

_LOSS = r"(?:(?:\w{1,16}_)?loss(?:es)?|cost|objective|error|perplexity|ppl)"
_SCORE = (
    r"(?:(?:\w{1,16}_)?acc(?:uracy)?|bleu|rouge|f1|m?ap|auc|(?:mean )?m?iou|dice|recall|precision|"
    r"score|reward|metrics?|psnr|ssim)"
)
_FAR = r"(?:[^.;\n]|\.(?=\d)){0,40}"
_OUTPUT = (
    r"(?:outputs?|logits?|predict(?:s|ed|ions?)?|probabilit\w+|answers?|class(?:es)?|labels?|sentences?|tokens?|"
    r"translations?|captions?|images?|frames?|render(?:ing)?s?|pictures?|videos?|spectrograms?|masks?|boxes|detections?|samples?|responses?|actions?|embeddings?|features?|"
    r"attentions?(?: weights| maps?)?|values?)"
)
_EVERY = r"(?:all|every|each|any|always|regardless|whatever|no matter|only)"
_VOID = (
    r"(?:zeros?|0s?|black|blank|white|gr[ae]y|empty|background|the same|identical|constant|uniform|equal(?! to)|"
    r"one (?:class|color|value)|"
    r"(?:class|label) \d+)"
)
_ONE_OF_MANY = (
    r"(?:workers?|ranks|gpus|processes|pids?|crops?|batches|rows|experts|heads|augmentations?|boxes|images|"
    r"rollouts|samples|numbers|noise)"
)
_LOADS = r"(?:resum\w*|load\w*|restart\w*|reload\w*)"

_PATTERNS: tuple[tuple[Kind, str], ...] = (
    ("same answers",
     (rf"^(?!.*\b(?:{_LOSS}|different|other|var(?:y|ies|ied))\b)(?=.*\b{_EVERY}\b)(?=.*\b(?:same|identical|constant)\b).*\b{_OUTPUT}\b|"
      r"\bpredict(?:s|ed|ing)? (?:only|always|just|the same|one class|"
      r"all (?:the )?(?:same|0s?|zeros?|1s?|ones?|black|background|negatives?|positives?|class\b))\b|"
      r"\b(?:only|just|always) (?:predict|output|return|generat|produc)\w*+"
      r"(?! (?:the |a )?(?:\w+ )?(?:checkpoint|file|model|log)s?\b)|"
      r"\bonly (?:\w+ )?background\b|"
      r"\bentropy\b[^.;\n]{0,20}\b(?:went|goes|falls?|fell|drops?|dropped|collapses?) to ~?(?:0(?:\.0\d*)?|zero)\b|"
      r"\b(?:everything|all (?:of them|inputs?|samples?|examples?|images?|points|users))\b[^.;\n]{0,24}"
      r"\b(?:one|a single|the same) (?:single )?(?:class|label|cluster|category|token|action|value|point)\b|"
      r"\b(?:background|black|zeros?|nothing|(?:one|the same|a single) (?:class|label|word|token)|class \d+) "
      r"(?:is |are |was |gets? |being )?predicted\b|"
      r"\bpredict\w* \S{1,12}(?: \S{1,12})? for (?:all|every|each|any)\b|"
      r"\b(?:predict|classif)\w* (?:every|each|all)(?:thing| (?:\w+ ){1,2})? ?as\b|"
      r"\bpredict(?:s|ed|ing)? (?:(?:\w+ ){1,3}everywhere|(?:the|a) (?:mean|average|constant|majority))\b|"
      r"\balways (?:answer|giv)\w*+(?! (?:me |us )?(?:a )?different)|"
      r"\b(?:gives?|outputs?|predicts?|produces?) (?:exactly |only |just |always )?(?:0(?:\.0+)?|1(?:\.0+)?|zeros?) "
      r"for (?:every|each|all|any)\b|"
      rf"\b{_OUTPUT}(?: of (?:the |my |our )?\w+| (?:it|they|the model) \w+(?: \w+)?)? (?:(?:is|are|were|was|"
      rf"become|becomes|look|looks|come out|"
      rf"turn out|end up|all|only|completely|entirely|just|pure|mostly|always) )+"
      rf"{_VOID}\b|\b{_OUTPUT} (?:all|only) (?:zeros?|0s?|black|blank)\b|"
      r"\b(?:mode|posterior|representation\w*|embedding|feature|model|training|policy|entropy|codebook|output)s? "
      r"(?:(?:has|have|is|are|was|and|then|suddenly|completely|unstable) ){0,3}collaps\w+|"
      r"\b(?:training|run|policy|agent)\b[^.;\n]{0,48}\bcollaps(?:es|ed)\b")),
    ("bad answers",
     (r"\b(?:outputs?(?! (?:dir|folder|file|path))|answers?|responses?|completions?|generat\w+|samples?|"
      rf"translations?)\b{_FAR}?"
      r"(?:\b(?:empty|blank|gibberish|garbage|nonsense|rubbish|unrelated|(?:looks? like|pure|only|just) noise|"
      r"repeat\w*)\b|"
      r"[\"']{2}(?:\W|$))|\b(?:(?:looks?|sounds?) like|resembles?) (?:\w+ )?noise\b|"
      r"\b(?:gibberish|babble|word salad|rambl(?:es?|ing)|(?:pure|total|complete) (?:nonsense|garbage|noise))\b|"
      r"\b(?:response|completion|answer|output|generation)s?[ _]len\w*\b[^.;\n]{0,20}"
      r"\b(?:falls?|fell|drops?|dropped|collapses?|went|shr[aiu]nks?) to [0-3]\b|"
      r"\bno new tokens generated\b|\bgenerat\w+ (?:\w+ ){0,2}(?:garbage|gibberish|nonsense)\b|"
      r"\b(?:giv|return|produc|generat|output)\w* (?:an? |only |just )?(?:empty|blank) (?!l(?:ist|ine))|"
      r"\brepeat\w* (?:endless\w*|forever|over and over|again and again|non-?stop)\b|\bnothing to do with (?:it|"
      r"the (?:question|"
      r"prompt|input|text))\b|"
      r"\bsame (?:token|word|phrase|sentence|character)s? (?:again|over|repeated)|"
      r"\bforgets? (?:everything|all|how)|"
      r"\bcatastrophic\w* forget|\beos\b[^.;\n]{0,20}\bnever\b|\bnever [^.;\n]{0,20}\beos\b|"
      r"\brepeat(?:s|ing)? (?:the (?:same|last|first|previous)|itself|one (?:word|token|phrase))\b|"
      r"\b(?:keeps?|continu\w+|endless\w*|non-?stop) (?:generating|outputting|predicting|printing)\b|"
      r"\b(?:generat\w+|answers?|outputs?|model)\b[^.;\n]{0,30}(?:\b(?:never|not)|n't) "
      r"(?:know when to )?(?:stop(?:s|ped)?|end(?:s|ed)?|terminat\w+|finish\w*)\b|"
      r"\b(?:generat\w+|answers?|outputs?|model)\b[^.;\n]{0,20}\b(?:goes|go|went|runs?|ran|keeps?) (?:going |"
      r"on |right )?(?:until|up to|to|into) "
      r"(?:the )?(?:max\w*|limit|token limit|length limit)|"
      r"\bgenerat\w+\b[^.;\n]{0,24}\b(?:on and on|endless\w*|forever|without (?:ever )?(?:stopping|end\w*)|"
      r"until (?:the )?max\w+ (?:\w+ )?(?:is|are) reached)|"
      r"\b(?:generat\w+|outputs?|answers?) lengths? (?:is |are )?(?:always|fixed|constant)|"
      r"\bno (?:detections?\b|(?:boxes|objects|predictions?) (?:(?:are|is|"
      r"were) )?(?:detected|predicted))")),
    ("zero gradient",
     (rf"\bgrad(?:ient)?s?\b(?!.{{0,30}}\b(?:lr|eps)){_FAR}?(?<![\w.])\d(?:\.\d+)?e-(?:[89]|[1-4]\d)\b")),
    ("not as expected",
     (rf"\b{_ONE_OF_MANY}\b{_FAR}?\b(?:identical|(?:exactly|completely|all) the same|the (?:very|exact) same|"
      rf"duplicat\w+|twice)\b|\b(?:identical|duplicated?) (?:\w+ ){{0,2}}{_ONE_OF_MANY}\b|"
      r"\bignores? (?:the |my |its |all )?(?:\w+ )?(?:text|image|input|prompt|condition\w*|context|observation|"
      r"question)s?\b|"
      r"\b(?:whatever|no matter what) (?:I|the|we|it)\b|"
      r"\b(?:never|does(?: not|n't)) (?:recovers?|come back|steps?|stops?|ends?|get (?:past|over|above|below|up))\b|"
      r"\b(?:fails? on|(?:is|are) (?:very |really )?(?:bad|poor|useless|terrible|horrible|broken)\b(?! for)|"
      r"babble|shifted by|off by (?:one|a factor)|far too|"
      r"too many(?! (?:\w+ )?(?:workers|files|requests|arguments|values)))\b|"
      r"\b(?:strange|weird|suspicious|abnormal) (?:\w+ ){0,2}(?:behaviou?r|oscillat\w+|results?|loss\w*|curves?|"
      r"spikes?|jumps?)\b")),
    ("slow",
     (r"\b(?:gpu|util\w*)\b[^.;\n\d]{0,30}\b(?:[0-9]|[1-4]\d)(?:\.\d+)?(?:\s?[-\u2013]\s?\d+)?\s?%|"
      r"\b(?:(?:is|are|the|a|main|major) (?:data |io |i/o |cpu |loader )?bottleneck(?! ?(?:block|layer|feature|dim))|"
      r"starv\w+|"
      r"waits? (?:for|on) (?:the )?(?:data|next batch|loader|batch\w*)|(?:mostly|is|sits) idle)\b")),
    ("explodes",
     (rf"\bgrad(?:ient)?s?\b{_FAR}?(?<![\w.-])\d(?:\.\d+)?e\+?(?:[5-9]|[1-3]\d)\b|"
      rf"\b(?:activations?|std|hidden|logits?|weights?|norms?|loss|ratio)\b{_FAR}?(?<![\w.-])\d(?:\.\d+)?e\+?(?:[7-9]|[1-3]\d)\b")),
    ("still", r"^\W*(?:[\w-]+ ){1,4}(?:is |are )?not (?:learning|converging|training)\W*$"),
    ("hangs",
     (r"\b(?:trainings?|it|program|process\w*|script|job|run|gpus?|ranks?|workers?)\b[^.;\n]{0,24}"
      r"\b(?:hangs?|hung|hanging|freezes|(?:got|gets|get|is|are) (?:stuck|blocked) (?:at|in|on|before|after|"
      r"forever|when|during)(?! ?~?\d*\.\d)|deadlock\w*)")),
    ("overflows",
     (r"\boverflow(?:s|ed|ing)?\b[^.;\n]{0,30}\b(?:endless\w*|forever|without (?:an )?end|non-?stop|again and again|"
      r"one after (?:the other|another)|constantly|always|all the time|"
      r"(?:on|at|in)? ?(?:every|each) (?:\w+ )?(?:step|iteration|update|batch))\b|"
      r"\b(?:keeps?|endless\w*|constant\w*|always) (?:\w+ )?overflow\w*|"
      r"\bloss[_ ]scal\w+[^.;\n]{0,20}\b(?:keeps? (?:on )?(?:decreas|reduc|dropp|halv|go)\w*|"
      r"(?:decreas|drop|reduc|collaps)\w* (?:\w+ )?(?:to|until) (?:0|1|zero|one)\b)")),
    ("worse after loading",
     (rf"\b(?:after|when|on|once|upon)\b[^;\n]{{0,30}}\b{_LOADS}\b[^.;\n]{{0,60}}\b(?:{_LOSS}|{_SCORE}|"
      rf"results?)\b|"
      rf"\b{_LOSS}\W{{1,3}}(?:\w+ )?~?\d[\d.]*\d? (?:right |just )?(?:after|once|upon|on) (?:\w+ ){{0,2}}{_LOADS}|"
      rf"\b{_LOADS}\b[^;\n]{{0,80}}\b(?:{_LOSS}|{_SCORE}|learning[ _]rate|lr|steps?|epochs?|iterations?|"
      rf"schedul\w+|momentum)\b"
      r"[^.;\n]{0,40}\b(?:(?:begin|start|restart)\w* (?:all )?(?:over\b|again|anew|from (?:the )?(?:start|"
      r"beginning|scratch|zero|0\b|1\b|initial))|"
      r"from (?:the )?(?:start|beginning|scratch|zero)\b|(?:the )?initial (?:one|value))|"
      rf"\b{_LOADS}\b[^;\n]{{0,60}}\b{_LOSS}\b[^.;\n]{{0,20}}\b(?:higher|worse|larger|bigger|jumps?|"
      r"starts? (?:over|again))\b|"
      rf"\b(?:{_LOSS}|{_SCORE}|performance|results?)\b[^.;\n]{{0,40}}\b(?:higher|worse|lower|larger|bigger|"
      rf"jump\w*|reset\w*|"
      rf"collaps\w+|drop\w*|differ\w*|(?:not|n't) (?:agree|match))\b[^.;\n]{{0,20}}\b(?:after|when|once|upon|"
      rf"on)\b[^.;\n]{{0,16}}\b{_LOADS}\b|"
      r"\b(?:re)?(?:loaded|resumed)\s?[:=]\s?~?\d[\d.]*+(?!\s*(?:s|ms|sec\w*|images?|rows?|params?|samples?|"
      r"%)\b)|"
      r"\b(?:training|it|I|we|script|count\w*) (?:\w+ )?(?:resum\w+|continu\w+|"
      r"restart\w*)\b[^.;\n]{0,30}\b(?:at|from|with) (?:step|epoch|iteration) [01]\b|"
      rf"\bafter {_LOADS}\b[^.;\n]{{0,60}}\d ?db\b|"
      rf"\b(?:{_LOSS}|{_SCORE})\b[^.;\n]{{0,60}}\bback (?:up )?to (?:where|the (?:start|beginning|initial))")),
)  # fmt: skip


@cache
def _sentences() -> tuple[tuple[Kind, re.Pattern[str]], ...]:
    """Compiled when the first sentence is read: a log of numbers has none."""
    return tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS)


_SENTENCE = lazy_regex(r"(?:[^.!?]|[.](?=\S))+[.!?]?")
"""A dot inside a number or a name does not end a sentence."""

_DENIED = lazy_regex(
    r"\(no decay\)|\brejected (?:answers?|responses?|completions?)\b|"
    r"\b(?:no longer (?!chang|mov|decreas|improv|learn|updat|drop|go)|fixed(?! (?:at|as|to) )|solved|unless|"
    r"whether|(?:is|are|was|were|be|it's|that's) (?!as )(?:\w+ )?expected\b(?! (?:parameter|value))|"
    r"(?<!but it )(?<!but they )should(?! (?:be|have been)\W*$)(?! be (?:~?\d|higher|lower|trainable))|"
    r"would(?! not|n'?t)|can (?:cause|lead|result)|"
    r"could(?! not|n'?t| (?:this|that|it) be)|may(?! i )|might|train(?:ing)? until|"
    r"will be(?! the)|ignor\w+|skipp\w+|using (?:an? )?(?:empty|blank|default)|"
    r"to (?:avoid|prevent)|\w*loss did not improve|(?:did not improve|not improved) (?:from|since|for)|early ?stop\w*|"
    r"patience|not improved$)|"
    r"(?<!even )\bif\b[^.;\n]{0,30}\b(?:loss|grad\w*|nan|weights?|lr)\b|"
    r"\bwhen(?:ever)? (?:(?:the|a|an|any|your|its|this|training|val\w*) ){0,2}(?:loss|grad\w*|nan|weights?|lr)\b|"
    r"^(?!.*\b(?:why|how come|what (?:causes|makes|could cause))\b).*\?\s*$",
    re.IGNORECASE,
)
"""Possibilities, questions, and early stopping messages."""

_MEASURED = lazy_regex(r"(?:[^\d\n]{0,24}(?<![\w.])[-+]?\d[\w.+-]*){5}")
"""A row of numbers: readers judge those."""
_CONTINUES = lazy_regex(
    rf"\b(?:{_LOADS}|continu\w+|pre-?trained|checkpoint|snapshot|finetun\w+|fine-tun\w+)\b", re.IGNORECASE
)
_FROM_SCRATCH = lazy_regex(
    r"\b(?:like|as|different from|begins?|starts?|back)\b[^.;\n]{0,48}\bfrom scratch\b(?![^.\n]{0,20}\?)", re.IGNORECASE
)
"""What is no news of a training that was not to continue another one."""
_LOGGED = lazy_regex(
    r"\b(?:INFO|DEBUG)(?: -|:|\]|\()|^\W*=> |"
    r"^\W*(?:\w+ \d+: )?(?:[Dd]ecay|[Rr]educ|[Dd]ecreas|[Ll]ower|[Aa]djust)ing (?:the )?(?:learning rate|lr)\b"
)
"""A program's remark: `MIoU does not improve` is how it picks the best checkpoint."""

_CODE = lazy_regex(
    r"[=({\[]\s*$|^\s*(?:def|class|if|for|while|with|elif|else|try|except)\b.*:\s*$|"
    r"^\s*(?:return|import|assert|print)\b[ (]|^\s*from [\w.]+ import\b|==(?!\s*-?(?:nan|inf)\b)|^\s*[\w.]+\(.*\)\s*$|"
    r"^\s*[\w.\[\]]+ [-+*/]?= |^\s*#!"
)
_NEVER_NEGATIVE = lazy_regex(r"\bbce\b|\bbce_?loss|binary_?cross_?entropy|\bcross[ _]entropy", re.IGNORECASE)
"""Losses that valid labels keep above 0, whether or not somebody takes less for normal."""
_FROM_TO = lazy_regex(
    r"\bloss(?:es)?\b[^\d.;\n]{0,24}(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*(?:->|=>|\u2192|to|then|up to|\.\.+|,)\s*"
    r"(\d+(?:\.\d+)?(?:e\+?\d+)?)\b",
    re.IGNORECASE,
)
_BETWEEN = lazy_regex(
    r"\bloss(?:es)?\b[^\d.;\n]{0,30}\b(?:oscillat\w+|fluctuat\w+|swing\w*|jump\w*|bounc\w+|vari\w+)[^\d.;\n]{0,16}"
    r"\b(?:between|from)\s(\d+(?:\.\d+)?)\s(?:and|to)\s(\d+(?:\.\d+)?(?:e\+?\d+)?)",
    re.IGNORECASE,
)
_TOLD_LOSS = lazy_regex(
    r"\b(?:loss|perplexity|ppl)\b (?:\w+ ){0,2}?(?:is|was|of|reaches|becomes|around|about|up to|goes to) (?:\w+ )?"
    r"(\d+(?:\.\d+)?(?:e\+?\d+)?)\b",
    re.IGNORECASE,
)
ABSURD = 1e8
SWINGS = 20.0
"""Ratio of two levels that single batches do not explain."""
EXPLODES = 4.0
"""Ratio of later to earlier loss."""
LONGEST = 800
"""Longer texts are articles."""


_PERSON = lazy_regex(
    r"\b(?:I|I'm|[Mm]y|[Ww]e|[Oo]ur|you|your|[Ww]hy|[Hh]ow|[Hh]elp|[Pp]roblem|[Ii]ssue|[Bb]ug)\b|\?|[我吗为\uff1f]"
)


def by_a_person(text: str) -> bool:
    """Whether these are words of a person, not of a program."""
    return _PERSON.search(text) is not None


@dataclass(frozen=True, slots=True)
class ReportedSymptom:
    """A sentence that reports a problem."""

    kind: Kind
    where: str
    text: str


def reported_symptoms(lines: Iterable[tuple[str, str]]) -> list[ReportedSymptom]:
    """Problems reported in ``(where, text)`` lines, each kind once."""
    found: dict[Kind, ReportedSymptom] = {}
    written = list(lines)
    said = [(where, from_chinese(text)) for where, text in written]
    arrived = any(tells_of_arrival(text) for _, text in said)
    read = [each for each in said if len(each[1]) <= LONGEST and not (_CODE.search(each[1]) or _LOGGED.search(each[1]))]
    if (repetition := shown_repetition(read)) is not None:
        found["bad answers"] = ReportedSymptom("bad answers", *repetition)
    for where, text in read:
        if "low score" not in found and not _MEASURED.match(text) and tells_low_score(text):
            found["low score"] = ReportedSymptom("low score", where, text.strip())
        if "worse after loading" not in found and _CONTINUES.search(text) and _FROM_SCRATCH.search(text):
            found["worse after loading"] = ReportedSymptom("worse after loading", where, text.strip())
        if "not as expected" not in found and tells_what_was_hoped_for(text):
            found["not as expected"] = ReportedSymptom("not as expected", where, text.strip())
        for sentence in _SENTENCE.findall(text):
            if _DENIED.search(sentence):
                continue
            if "not finite" not in found and (says_not_finite(sentence) or speaks_of_nan(sentence)):
                found["not finite"] = ReportedSymptom("not finite", where, text.strip())
            named = [kind for kind, pattern in _sentences() if kind not in found and pattern.search(sentence)]
            for kind in (*named, *told_states(sentence)):
                found.setdefault(kind, ReportedSymptom(kind, where, text.strip()))
        if "explodes" not in found and (
            tells_absurd_loss(text) or told_factor(text) >= EXPLODES or told_swing(text) >= SWINGS
        ):
            found["explodes"] = ReportedSymptom("explodes", where, text.strip())
    usual = usual_kinds({text for _, text in (*written, *said)}, arrived=arrived)
    if "low score" in usual:
        found.pop("low score", None)
    if arrived or found.keys().isdisjoint({"bad answers", "same answers", "low score"}):
        for kind in usual:
            if kind != "negative loss" or not any(_NEVER_NEGATIVE.search(text) for _, text in said):
                found.pop(kind, None)
    return list(found.values())


def tells_absurd_loss(text: str) -> bool:
    """Whether a loss or perplexity is reported that no training has: `perplexity is 1e9`."""
    return any(float(number) >= ABSURD for number in _TOLD_LOSS.findall(text))


def told_swing(text: str) -> float:
    """The ratio of two levels that a loss is reported to go between; 0 if there are none."""
    pairs = [(float(low), float(high)) for low, high in _BETWEEN.findall(text)]
    return max((high / low for low, high in pairs if low > 0), default=0.0)


def told_factor(text: str) -> float:
    """The growth of a loss in two reported numbers: `loss 1.2 -> 16000`; 0 if there are none."""
    pairs = [(float(before), float(after)) for before, after in _FROM_TO.findall(text)]
    return max((after / before for before, after in pairs if before > 0), default=0.0)
