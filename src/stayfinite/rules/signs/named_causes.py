"""Causes that somebody names in words: `model.eval() was not called`, `the labels are shuffled`.

A table for what no number shows. What a library's message or code says is for the rules themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Line

_SENTENCE = lazy_regex(r"(?:[^.!?\n]|[.](?=\S))+[.!?]?")
_OPEN = lazy_regex(
    r"^\W*(?:if|when(?:ever)?|unless|to (?:avoid|prevent)|make sure|do|does|can|could|should|shall|is it|are there|"
    r"is there|how (?:do|can|to|should|would)|where|which|whether)\b|"
    r"\b(?:no longer|already fixed|not the (?:problem|cause|reason)|whether|"
    r"support for|on purpose|by design|as intended)\b",
    re.IGNORECASE,
)
"""Advice, requests and open questions name no cause."""

_TRAIN, _TESTED = r"\btrain(?:ing)?\b", r"\b(?:val|valid|validation|test|testing|evaluation|inference)\b"
_FORGOTTEN = r"(?:not|never|n't|without|forg[oe]t\w*|missing|omit\w*|commented out|left out|removed|deleted)"

NAMED: Mapping[str, str] = {
    "wrong-mode": (
        r"\beval\(\)\W{0,2} ?(?:(?:was|is|were) )?(?:not|never) (?:called|used|set)|"
        rf"\b{_FORGOTTEN} (?:to )?(?:(?:invok|call|us|set|runn)\w* )?(?:any )?\W?(?:\w+\.)?(?:eval|train)\(\)|"
        r"\b(?:should|needs? to|must|forg[oe]t\w*)\b.{0,40}\b(?:in)?to (?:train\w*|eval\w*) mode\b|"
        r"\b(?:incorrect|wrong) use of the (?:train\w*|eval\w*)\b.{0,24}\bmode\b|"
        r"\b(?:still|remains|stays|left) in (?:train\w*|eval\w*) mode\b|"
        r"\bdropout (?:is |seems |was )?(?:still )?(?:to be )?active\b|"
        r"\bbatch[ _-]?size\b.{0,16}\b(?:1|one)\b(?![\d.]).{0,40}\bbatch ?norm|"
        r"\bbatch ?norm\w*\b.{0,60}\bbatch[ _-]?size\b.{0,12}\b(?:1|one)\b"
    ),
    "resume-state-missing": (
        r"\boptimi[sz]ers?(?: states?)? (?:were|was|is|are|got|get) (?:\w+ )?(?:stripped|lost|discarded|"
        r"not (?:saved|restored|loaded))|"
        r"\b(?:lr|learning rate|scheduler|optimi[sz]er)\b[^.;\n]{0,20}\b(?:(?:re)?starts?|begins?) (?:over|again|anew|"
        r"from (?:the (?:beginning|start)|scratch|step 0|zero))"
    ),
    "ddp-unused-parameters": r"\b(?:did not (?:contribute to|take part in|receive grad\w* for) the loss)\b",
    "detached-loss": r"\bloss\b[^.;\n]{0,40}\brequires_grad\b\W{1,4}(?:is |== )?\W?False",
    "unscaled-input": (
        r"\braw (?:features?|inputs?|values?|pixels?|intensit\w+|observations?)\b|"
        r"\bpixels? (?:values? )?(?:are |is |in )?0 ?(?:to|-|\u2013|\.\.) ?255\b"
    ),
    "position-out-of-range": r"\bseq(?:uence)?[_ ]?len\w*\b.{0,60}\bposition_?\w*\b",
    "lr-too-high": (
        r"\b(?:higher|larger|bigger)\b.{0,12}\b(?:lr|learning rate)\b.{0,60}\b(?:error|fail\w*|nan|diverg\w*|crash\w*|"
        r"explod\w*|no sound)\b"
    ),
    "loader-too-slow": (
        r"\b(?:low|zero|0 ?%|poor|no|little)\b.{0,12}\bgpu\b.{0,8}\butili[sz]ation|"
        r"\bgpu\b.{0,8}\butili[sz]ation\b.{0,24}\b(?:low|zero|0 ?%)|"
        r"\bdata (?:loading|process\w*|loader)\b.{0,24}\b(?:slow|bottleneck|too long)|"
        r"\btime is too long for data\b|\bcompute 0 ?%"
    ),
    "no-zero-grad": rf"\b{_FORGOTTEN} (?:to )?(?:call\w* )?\W?(?:\w+\.)?zero_grad\b",
    "params-not-in-optimizer": (
        r"\bafter (?:creating|making|building|defining|constructing|initiali[sz]ing) (?:the |my |an )?optimi[sz]er\b|"
        r"\boptimi[sz]er (?:is|was|gets) (?:created|built|defined|made) before\b|"
        r"\bnot (?:passed|given|added|included) (?:in)?to the optimi[sz]er\b"
    ),
    "accumulation-unscaled": (
        r"\bloss\b.{0,30}\b(?:\d+|two|four|eight)(?:x| times) (?:higher|larger|bigger)\b.{0,60}\baccumulat|"
        r"\baccumulat.{0,60}\bloss\b.{0,30}\b(?:\d+|two|four|eight)(?:x| times) (?:higher|larger|bigger)"
    ),
    "label-imbalance": (
        r"\b(?:dice|iou|f1|recall|ap|acc\w*)\b.{0,40}\b0(?:\.0+)?\b.{0,16}"
        r"\b(?:for|of|on) (?:class|label|the (?:minority|rare|small))"
    ),
    "where-nan-branch": (
        r"\w\.where\b.*\bbranch\w*\b.*\bnan|\bnan\b.*\w\.where\b.*\bbranch|\bbranch\w*\b.*\bnan\b.*\w\.where\b"
    ),
    "architecture-mismatch": r"\bsize mismatch (?:error|when|while|in loading)",
    "metric-hides-failure": r"\b(?:masks|masking|hides|hiding|conceals?|swallows?) (?:(?:the|all|any|all-) ?)*nans?\b",
    "softmax-before-cross-entropy": (
        r"\b(?:uses?|used|using|appl(?:ies|ied|ying)|puts|added|has) (?:an? |the )?(?:\w+ )?softmax\b.{0,60}"
        r"\b(?:(?:before|then|into)\b.{0,40}\bcross[-_ ]?entropy|and\b.{0,40}\bCrossEntropyLoss)"
    ),
    "labels-shuffled": (
        r"\b(?:labels?|targets?) (?:are|were|is|was|get|got) (?:\w+ )?(?:shuffled|misaligned|mismatched|"
        r"out of order|not aligned|not in the same order|in (?:the |a )?wrong order)|\bpre-?shuffled\b|"
        r"\bshuffl\w+ (?:only )?(?:the )?(?:inputs?|images?|features?|x|data) (?:but not|and not|separately)|"
        r"\blabels? (?:do not|does not|don't|doesn't) (?:match|correspond)"
    ),
    "labels-not-augmented": (
        r"\b(?:mask|label|box|boxe|keypoint|target)s? (?:is|are|was|were) not (?:\w+ )?"
        r"(?:flipped|cropped|rotated|augmented|transformed)|"
        r"\bonly (?:the )?images? (?:is|are|was|were) (?:flipped|cropped|rotated|augmented|transformed)|"
        r"\bdifferent(?:ly)? (?:random )?(?:crop|flip|augment|transform)\w* (?:for|to|of) (?:the )?images? and\b"
    ),
    "train-val-overlap": (
        r"\bsame [\d,]* ?\w+ (?:are |is |both )*in (?:the )?\W?train\S* and (?:in )?(?:the )?\W?(?:val|test)|"
        rf"{_TESTED}.{{0,50}}\b(?:leak\w*|overlap\w*|contaminat\w+|also (?:in|appears? in))\b.{{0,40}}{_TRAIN}|"
        rf"{_TRAIN}.{{0,50}}\b(?:leak\w*|overlap\w*|contaminat\w+)\b.{{0,40}}{_TESTED}|"
        r"\bdata leak(?:age)? (?:in|between)\b"
    ),
    "eos-never-learned": (
        r"\b(?:not|never|n't) learn\w* (?:when |how )?to (?:stop|end|(?:generate|emit|predict|produce|output) "
        r"(?:an? |the )?\W?eos)\b|\b(?:not|never|n't|without) (?:append|postpend|add)\w*\b.{0,40}\beos\b|"
        r"\beos\b.{0,40}\b(?:masked|ignored|never (?:seen|learned|trained)|not (?:in|part of|included in) the labels?)|"
        r"\bpad(?:_token|ding)?\b.{0,16}\b(?:is|as|to|equals?|same as) (?:the )?eos\b.{0,60}\b(?:mask|ignor)\w*"
    ),
    "truncation": (
        r"\b(?:exceed|longer than)\b[^.;]{0,40}\b(?:is|are|get|gets|were) (?:\w+ )?(?:truncated|cut)\b|"
        r"\b(?:answers?|targets?|labels?|responses?|completions?) (?:is|are|get|gets|were|was) (?:\w+ )?"
        r"(?:truncated|cut off)"
    ),
    "workers-alike": (
        r"\b(?:every|each|all) workers?\b.{0,40}\b(?:same|identical) (?:random )?(?:numbers?|seed|augment\w*|batch)|"
        r"\b(?:same|identical) (?:random )?(?:seed|augment\w*|numbers?) (?:in|for) (?:every|each|all) workers?"
    ),
    "causal-leak": (
        r"\b(?:sees?|look\w* (?:at|into)|attend\w* to|peek\w* (?:at|into)) (?:the )?"
        r"(?:future|target (?:sequence|token|sentence|word)s?)\b|"
        r"\bfuture (?:tokens?|frames?|information) leak|\b(?:without|no|missing) (?:a |the )?causal mask|"
        r"\bcausal mask\b.{0,20}\b(?:missing|wrong|not (?:used|applied))"
    ),
    "samples-leak": (
        r"\b(?:attend|leak)\w* (?:across|between) (?:documents|samples|sequences|examples)|\bcross[- ]contaminat\w+"
    ),
    "attention-fully-masked-row": (
        r"\b(?:all|every|each)\b.{0,24}\b(?:positions?|keys?|tokens?)\b.{0,24}\bmasked\b|"
        r"\b(?:completely|fully|entirely) (?:padded|masked)\b"
    ),
    "bad-init": (
        r"\b(?:weights?|param\w*)\b.{0,24}\binitiali[sz]ed (?:with|to|as|at) (?:all )?"
        r"(?:zeros?|0|ones?|a constant|the same)\b"
    ),
    "dead-units": (
        r"\bdying relu|\bdead (?:relus?|units?|neurons?)\b|"
        r"\b(?:neurons|units|activations) (?:are|were|become) (?:all )?(?:dead|zero)\b|"
        r"\brelu\b.{0,20}\b(?:on|in|at|as|after) (?:the |my )?(?:last|final|output) layer|"
        r"\bDense\(\s*1\s*,\s*activation\s*=\s*['\"]relu"
    ),
    "input-ignored": (
        r"(?<!nohup: )\bignor(?:es?|ing) (?:the |its )?(?:inputs?|image|prompt|condition\w*|source)\b|"
        r"\bnot depend on the (?:input|image|prompt)|\bindependent of the input"
    ),
    "weights-untied": r"\b(?:weights?|embeddings?|lm_head) (?:are|is|were|was) not (?:\w+ )?tied\b",
    "cleared-before-step": (
        r"\bzero_grad\(\)\W{0,2} (?:is |was )?(?:called |placed )?(?:between|after)\b.{0,20}\bbackward"
    ),
    "step-missing": (
        rf"\b{_FORGOTTEN} (?:to )?(?:call\w* |invok\w* )?\W?(?:optimizer|optim|opt)\w*\.step\(\)|"
        r"\b(?:optimizer|optim|opt)\w*\.step\(\)\W{0,2} (?:is|was) (?:never|not) (?:called|reached|executed)|"
        r"\b(?:agent|policy|(?<!target )network) (?:is|was) never (?:trained|updated)\b"
    ),
    "target-out-of-step": r"\btarget (?:network|net|model) (?:is|was) (?:never|not) (?:updated|synced|copied)",
    "reference-moves": (
        r"\bref(?:erence)?[_ ](?:model|policy) (?:is|was|gets?) (?:also |being )?(?:updated|trained|modified)"
    ),
    "reward-model-constant": r"\breward (?:model )?(?:always )?(?:gives?|returns?|outputs?) (?:always )?the same",
    "kl-runaway": r"\bkl (?:divergence |loss |penalty )?(?:\w+ )?(?:explod\w+|blows? up|blew up|skyrocket\w*)",
    "entropy-collapse": r"\bentropy (?:\w+ )?(?:collaps\w+|drops? to (?:0|zero)|goes to (?:0|zero)|vanish\w+)",
    "value-explains-nothing": (
        r"\bexplained[_ ]variance (?:is |stays |remains )?(?:always )?(?:negative|zero|(?:near |around |close to )?0\b)"
    ),
    "ratio-explosion": r"\bratio (?:\w+ )?(?:explod\w+|blows? up|overflow\w*|(?:is|becomes) inf)",
    "length-hacking": r"\b(?:responses?|completions?|answers?) (?:\w+ ){0,3}longer and longer",
    "dpo-both-fall": r"\bchosen (?:and rejected )?(?:rewards?|log_?probs?|logps) (?:\w+ ){0,4}(?:decreas|drop|fall)\w*",
    "scaler-missing": (
        rf"\b{_FORGOTTEN} (?:a |the |to use |using )?(?:gradscaler|grad scaler|gradient scal\w+|loss scal\w+|"
        r"amp\.scale_loss)"
    ),
    "splits-scaled-differently": (
        rf"{_TESTED}.{{0,40}}\b(?:not|n't|never|differently) (?:\w+ )?(?:normali[sz]ed|scaled|standardi[sz]ed)|"
        rf"\bdifferent (?:normali[sz]ation|preprocessing|scaling)\b.{{0,40}}{_TESTED}"
    ),
    "last-batch-of-one": r"\blast batch (?:has|of|contains|with|is) (?:only )?(?:size )?(?:a single|one|1)\b",
    "unregistered-module": (
        r"\bparameters? (?:[\w`.-]+ ){0,8}?(?:are|is) not (?:included|registered)\b|"
        r"\b(?:modules|layers|blocks|heads)\b.{0,30}\b(?:python|plain|regular|ordinary) (?:list|dict|tuple)|"
        r"\b(?:python|plain|regular|ordinary) (?:list|dict|tuple) of (?:modules|layers)|"
        r"\b(?:missing|absent|not) (?:in|from) (?:\w+\.)?parameters\(\)"
    ),
    "naive-exp": r"\bexp\b.{0,30}\boverflow|\boverflow\w*\b.{0,30}\bexp\b|\bkl\b.{0,90}\boverflow\w*",
    "bad-data-row": (
        r"\bmissing values? in (?:the |my |our )?(?:data|time series|features?|table|csv|inputs?)\b|"
        r"\b(?:due to|because of|caused by) (?:the |some )?(?:missing|nan|corrupt\w*) (?:values?|rows?|images?)"
    ),
    "lr-schedule-bug": (
        r"\bstep(?:ped|s|ping)?\b[^.;]{0,24}\b(?:batch|iteration|step)\b[^.;]{0,40}\b(?:per|each|every|an) epoch\b|"
        r"\bcall\w* \W?(?:lr_)?sched\w*\.step\(\)\W{0,2}(?: \w+)? (?:before|at the (?:top|start|beginning)|first)\b|"
        r"\bwarm-?up\b.{0,24}\b(?:over|ends?|done|finished)\b.{0,24}\b(?:earlier|too (?:early|soon|fast)|sooner)\b|"
        r"\b(?:misused?|wrong(?:ly)?) .{0,16}\bscheduler\b|"
        r"\bchang\w+ .{0,40}\b(?:max\w*|total|number of)\b.{0,24}\bepochs?\b.{0,60}\b(?:continu|resum|restart|again)\w*"
    ),
}  # fmt: skip
"""By slug: how people say it."""


def who_names(pattern: str, lines: Iterable[Line]) -> Line | None:
    """The first line with a sentence that states this, and does not ask or advise."""
    search = re.compile(pattern, re.IGNORECASE).search
    for line in lines:
        if search(line.text) and any(search(each) and not _OPEN.search(each) for each in _SENTENCE.findall(line.text)):
            return line
    return None
