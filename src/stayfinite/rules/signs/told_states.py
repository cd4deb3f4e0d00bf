"""What a sentence says of a quantity: `the loss ... suddenly becomes 0`, `accuracy is fixed at 0.5`.

Subjects (loss, KL, gradient, weights, rate, score, model) and states (zero, still, growing, falling, negative) are
found apart. A state belongs to the subject before it, or else to the one right after it: `no change in the loss`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from stayfinite.core.lazy_regex import lazy_regex

StateKind = Literal[
    "zero loss", "zero gradient", "rate 0", "weights still", "rate still", "still", "explodes", "score falls",
    "negative loss", "negative kl", "rate off", "memory grows", "overflows",
    "loss rises",
]  # fmt: skip

_SUBJECT = lazy_regex(
    r"\b(?:(?P<rate>lr|learning[-_ ]rates?)|(?P<scale>(?:loss|grad\w*|amp)?[-_ ]?scal(?:e|er|ing))|"
    r"(?P<other>\w{2,}[_ ]?scal(?:e|er|ing)|iter(?:ation)?s?|epochs?|steps?|outputs?)|"
    r"(?P<kl>(?:mean_|approx_)?kl(?: divergence)?)|"
    r"(?P<memory>(?:gpu |cuda |ram |host )?(?:memory(?: usage)?|vram|ram))|"
    r"(?P<inside>q[-_ ]?values?|logits?|activations?|(?:weight|parameter|feature)s? norms?)|"
    r"(?P<gradient>grad(?:ient)?s?(?:[_ ]norms?)?)|"
    r"(?P<loss>(?:\w{1,16}_)?loss(?:es)?|[wc]er|eer|fid|mae|r?mse|cost|objective|"
    r"(?<!an )(?<!this )error|perplexity|ppl|nll|elbo)|"
    r"(?P<score>(?:\w{1,16}_)?acc(?:uracy|uracies)?|bleu|rouge|f1|m?ap(?:50)?|auc|m?iou|dice|recall|precision|scores?|"
    r"rewards?|(?:mean|average|episod\w+)[ _]returns?|metrics?|psnr|ssim|performance|quality|success rate|"
    r"explained_variance)|(?P<weights>weights?|param(?:eter)?s?(?! ?[`'\"]))|"
    r"(?P<model>model|student|classifier|detector|encoder|decoder|network|net|"
    r"agent|policy|generator|discriminator|trainings?(?! (?:steps|data|set))|\w*gan|it|"
    r"results?))\b(?!\.\w)",
    re.IGNORECASE,
)
_NOT = (
    r"(?:(?:does|do|did|is|are|was|were|can|could|has|have|will|would|wo|ca|ai)(?: not|n[o']t)|not|never|"
    r"does'?t|doesnt|"
    r"dont|didnt|wont|cannot|hardly|barely|scarcely|no longer|nowhere|fail(?:s|ed|ing)? to|refus(?:es?|ing) to|"
    r"(?:not|n't) seem to|without)"
)
_STATES = {
    "zero": (
        r"(?:\b(?:always|down|constantly|exactly|all|only|just|still|stays?|remains?|keeps?|stuck|is|are|becomes?|became|"
        r"becoming|was|were|goes|went|drops?|dropped|fell|falls|turns?|gets?|"
        r"decreas\w+|decays?|finally|equals?|reads?|shows?|sits?|(?:comes?|came) (?:out|back)|ends?|collapses?|"
        r"hits|reaches)\b|[:=])\W{1,2}"
        r"(?:(?:exactly|always|all|constantly|still|at|to|down|around|suddenly|become|\w+ed as|as|just|only|a|"
        r"flat|pure|next|"
        r"near|close|basically|practically|literally|simply)\s){0,3}"
        r"(?:zeros?|0(?:\.0+)?)\b(?!\.?\d|[ /]*%|e-?\d)(?! ?[-x/*])|[:=] ?none\b|\b(?:is|are) (?:all |always )?none\b|"
        r"\bvanish\w*|\bno (?=gradients?\b(?! (?:acc|check|clip|norm|penal|scal)))|"
        r"\b(?:is|are) (?:all |always )?-1\.0+\b"
    ),
    "still": (
        rf"\b{_NOT}\s(?:\w+\s){{0,3}}?(?:decreas|(?:go(?:es|ing)?|went) (?:down|lower|below|under|up|past|above|"
        rf"beyond|over|anywhere)|"
        r"g[eo]t\w* (?:lower|better|higher|updated|under|below|past|above|over|beyond|off|away|anywhere|out of|far)|"
        r"(?:get|getting|got) down|dip|com(?:e|es|ing) (?:down|off)|chang|mov|diminish|drop|reduc|fall|fell|"
        r"sink|shrink|lower|improv|leav|leaves|"
        r"escap|learn(?!ing[_ ]rate|ed about)|budge|converg|train\b|training\b(?! (?:set|data|loss|step))|"
        r"increas|ris(?:e|es|ing)\b|climb|exceed|surpass|"
        r"updat|decay|warm|follow|pick\w* up|take\w* off|mak(?:e|es|ing) (?:any )?progress|"
        r"be(?:ing)? (?:updated|trained|changed))\w*|"
        r"\bneither (?:of them )?(?:drops?|falls?|decreas\w+|improv\w+|moves?|changes?|goes down)\b|"
        r"\blearn(?:s|ed|ing)? nothing\b|\b(?:decreas|drop|fall|learn|converg)\w* (?:very|too|extremely|really|"
        r"so) slow\w*|"
        r"\b(?:stuck|(?<!not )flat|unchanged|(?<![\"'])constant|(?<!not )frozen|plateau\w*|stagnat\w*|flat-?lin\w*|"
        r"(?:at|near|below|under|worse than|lower than|no better than|like) (?:random )?(?:chance|guess\w*|random)|"
        r"(?<=[(])(?:i\.e\.,? )?(?:(?:pure |just )?random|chance)\b|"
        r"(?:is|are|at|like) random|guess(?:es|ing)? (?:at random|randomly)|random guess\w*|"
        r"fixed (?:at|as|to)|stands? still|(?:straight|horizontal|flat) line)\b|"
        r"\b(?:stay|remain|keep|hover|linger|sit|sat|rest|stick|hang|float|circl|stall|park)(?:s|es|ed|ing|ting)?\s"
        r"(?:\w+\s)?(?:(?:at|around|about|near|"
        r"to be|as (?:it|before|is)|between|above|over|exactly|the same|same|identical|constant|fixed|low|poor|"
        r"bad|random|"
        r"unchanged)\b"
        r"(?! (?:finite|stable|fine|low|nan))|"
        r"~?\d)|"
        r"\bexactly ~?\d[\d.]* (?:for|over|at|in|after) (?:all |every |each |the first )?(?:\d+|step|epoch|iter|batch)|"
        r"\b(?:exactly|always|completely) the same\b|\b(?:stays?|remains?|stops) there\b|"
        r"\b(?:always|constantly) (?:(?:at|around|about|exactly|equal to|the) )?(?:~?\d|same)|"
        r"\bsame (?:(?:value|number|loss|result) )?(?:for|in|at|after|every|each|all|throughout)\b"
        r"(?! (?:\w+ )?(?:rank|gpu|device|run|seed|model|method|worker)s?\b)|"
        r"\b(?:no|without|zero|hardly any|barely any) (?:any |real |visible |further |sign of )?"
        r"(?:change|improvement|progress|convergence|learning|decrease|drop|decay|movement|reduction)\b(?! to the)|"
        r"\bidentical\b(?= (?:\w+ ){1,3}(?:(?:in|at|for|on|after|over) )?(?:every|each|all)\b)|"
        r"\b(?:every|each) (?:epoch|step|iteration) (?:gives|has|shows|prints|yields) (?:an|the) (?:identical|same)\b|"
        r"\bstill (?:exactly |just |about )?(?:the same|there\b|is\b(?=\W*$))|\b(?:the )?(?:same|value|"
        r"one) (?:it|they) (?:began|started) with\b|"
        r"(?<=\d) ?%? (?:constantly|all along|throughout|forever|all the time|"
        r"from (?:the )?(?:start|first|beginning) (?:to|on)|"
        r"since (?:the )?(?:begin\w*|start\w*|first|epoch|step|iter\w*))\b|"
        r"\buntil the (?:very )?end\b|\bstill (?:at |around |about )?~?\d[\d.]*\b[^.;\n]{0,20}\bafter\b"
    ),
    "everywhere": r"\b(?:for|in|at) (?:all|every|each) (?:\w+ )?(?:epoch|step|iter|class)",
    "grows": (
        r"\bexplod\w*|\bdiverg(?:e|es|ed|ing|ence)\b|\b(?:blow|blew)(?:s|ing|n)? up|\bsky-?rocket\w*|"
        r"\b(?:shoots?|shot) (?:up|to)\b|"
        r"\bgo(?:es|ing)? (?:crazy|wild|haywire|to the moon)\b|"
        r"\bwithout (?:any )?bound|\bunbounded|\bto infinity\b|"
        r"\b(?:very|extremely|absurdly|insanely|extraordinar\w+|ridiculously|really|incredibly|too) "
        r"(?:large|high|big)\b|\bhuge\b|\benormous\b|\bout of control\b|"
        r"\b(?:in|to|of|over|reach\w*) (?:the |several |many )?(?:thousand|million|billion|trillion)s?\b"
    ),
    "rises": (
        r"\bincreas(?:es|ing)|\bris(?:es|ing)|\bgrow(?:s|ing)|\bclimb(?:s|ing)|"
        r"\b(?:go(?:es|ing)|went) up(?! and down)|"
        r"\bjump(?:s|ed)? (?:to|up)|"
        r"\bspik(?:es|ed|ing)\b|"
        r"\b(?:change|jump|vary|fluctuate|swing|oscillate|bounce|go)(?:s|es)? (?:up and down )?"
        r"(?:greatly|drastically|wildly)"
    ),
    "falls": (
        r"\b(?:drop(?:s|ped|ping)?|(?:goes|going|went) down|falls?|fell|plummet\w*|collaps\w+|degrad\w+|"
        r"(?:gets?|got|becomes?|is|are) (?:\w+ )?worse)\b"
    ),
    "off": (
        r"\b(?:abnormal|incorrect|wrong|strange|weird|odd|unexpected)(?:ly)?\b|\bdiscontinuit\w+|"
        r"\bsudden(?:ly)? drop|\b(?:rather than|instead of) the\b|"
        r"\b(?:is|are|was|gets?|got) reset\b|\b(?:back|put|set|jumps?|goes|went) (?:back )?to (?:the|"
        r"its) (?:initial|first|start\w*)\b|"
        r"\b(?:(?:decreas|decres|decay|drop|fall)\w*|go(?:es|ing)? down) too (?:fast|quick|early|soon)\w*|"
        r"\bresets?\b|\bjump(?:s|ed)?\b|\b(?:not|n't) (?:correct|right|as expected)\b|\b(?:is|was) supposed to be\b"
    ),
    "negative": (
        r"\b(?:between positive and|from positive to) negative\b|\bnegative (?=loss)|(?<=loss )negative\b|"
        r"\bas negative\b|"
        r"\b(?:is|becomes?|became|goes|turns?|turned|gets?|comes? out|came out) (?:\w+ )?negative\b"
    ),
}
"""NaN has a reader of its own."""
_STATE = lazy_regex("|".join(f"(?P<{name}>{words})" for name, words in _STATES.items()), re.IGNORECASE)
_KINDS: dict[tuple[str, str], StateKind] = {
    ("loss", "zero"): "zero loss",
    ("gradient", "zero"): "zero gradient",
    ("rate", "zero"): "rate 0",
    ("scale", "zero"): "overflows",
    ("score", "zero"): "still",
    ("weights", "still"): "weights still",
    ("weights", "zero"): "weights still",
    ("rate", "still"): "rate still",
    ("loss", "still"): "still",
    ("score", "still"): "still",
    ("model", "still"): "still",
    ("score", "everywhere"): "still",
    ("loss", "everywhere"): "still",
    ("", "still"): "still",
    ("", "zero"): "still",
    ("loss", "grows"): "explodes",
    ("gradient", "grows"): "explodes",
    ("model", "grows"): "explodes",
    ("loss", "rises"): "loss rises",
    ("gradient", "rises"): "explodes",
    ("score", "falls"): "score falls",
    ("loss", "negative"): "negative loss",
    ("score", "negative"): "negative loss",
    ("kl", "negative"): "negative kl",
    ("kl", "grows"): "explodes",
    ("inside", "grows"): "explodes",
    ("memory", "rises"): "memory grows",
    ("rate", "off"): "rate off",
    ("rate", "rises"): "rate off",
    ("rate", "falls"): "rate off",
}
"""What each pair is called. Others, such as a loss that falls, are good or say nothing."""
_AS_SET = lazy_regex(r"constant|flat|frozen|fixed|(?:no|without) (?!decay|decrease|change)|until", re.IGNORECASE)
"""Said of a learning rate, this describes a setting."""
_NOT_SO = lazy_regex(r"\b(?:no|without|not|never|n't)\s(?:\w+\s)?$", re.IGNORECASE)
"""Before a state that is denied: `no spikes`, `does not explode`."""
_OF_A_MODEL = lazy_regex(
    r"learn|improv|converg|\btrain|progress|stuck|plateau|stagnat|flat|decreas|drop|go(?:es|ing)? (?:down|"
    r"lower)|budge|guess|stays? at|"
    r"g[eo]t\w* (?:under|below|past|above|over|beyond)",
    re.IGNORECASE,
)
"""What stands still of a model or `it`; `it does not change the API` is no complaint."""
_OF_MODELS_ONLY = lazy_regex(
    r"converge\b|learns? (?:anything|nothing)\b|learned nothing|get (?:past|above|beyond|below)\b|guess"
)
"""Nothing else is said to do it, so what did needs no name that is known here."""
_ON_PURPOSE = lazy_regex(
    r"\bema\b|\baveraged? (?:model|weights)|\bfreez|\bfroze|\bteacher|\btarget net|\bon purpose|\bby design",
    re.IGNORECASE,
)
_OPENING = lazy_regex(
    r"\W*(?:\w+:\s)?(?:(?:it|this|that|which|and|but|both|value|always|just|only)\s+){0,2}"
    r"(?!do not|don't|frozen|fixed)",
    re.IGNORECASE,
)
"""Before a remark about the line above."""
_LASTING = lazy_regex(r"\b(?:keep\w*|continu\w+|constant\w*|every|each|until|steadily|slowly|over time|leak\w*)\b")
_HIGH_AT_FIRST = lazy_regex(
    r"^(?=.*\b(?:drops?|falls?|fell|decreas\w+|(?:goes|went) down)(?: down)? to ~?\d)"
    r".*\b(?:initial|first|starting)\b(?: \w+)? ?loss\b",
    re.IGNORECASE,
)
"""A large loss that then falls."""
_A_LITTLE = lazy_regex(r"\b(?:slight(?:ly)?|a (?:little|bit)|somewhat|marginally|recovers?)\b", re.IGNORECASE)
_OF_EVALUATION = lazy_regex(
    r"\b(?:val|valid|validation|eval|evaluation|test|dev)[ _](?:\w+ )?loss\W*(?:\w+ )?$", re.IGNORECASE
)
_HOW_FAR = lazy_regex(r"\s?(?:up )?(?:to )?~?\d")
_ALL_ALONG = lazy_regex(r"exactly|always|constantly|still")
_HELD = lazy_regex(r"\d\W{0,3}$")
"""A number right before `in every epoch`."""
_ROUNDED = lazy_regex(r"0\.0{3,}$")
"""A rate of 1e-6 is printed so."""
_AT_ONCE = lazy_regex(r"\s(?:suddenly|sharply|abruptly)\b", re.IGNORECASE)
_AT_THE_END = lazy_regex(r"\s(?:at|by|towards?|near) the (?:very )?end\b", re.IGNORECASE)
_IN_THE_END = lazy_regex(r"\b(?:in the end|finally|eventually|by the end)\b[^.;\n]{0,16}$", re.IGNORECASE)
"""Where a loss that fell has arrived."""
_COMMAND = lazy_regex(
    r"(?:^|\s)--\w.*\s--\w|^\W*(?:python\d?|accelerate|torchrun|deepspeed|bash|sh|srun)\b.*\s--\w|^\s*--\w"
)
_TWO_PLAYERS = lazy_regex(r"generator\b.*\bdiscriminator|discriminator\b.*\bgenerator", re.IGNORECASE)
"""Neither of their losses is meant to fall."""
_ARRIVED = lazy_regex(
    r"\b\d{2,4}k (?:steps|iter)\w*\b.*\bloss\b[^.;\n\d]{0,30}\b0\.0\d|"
    r"(?<!train )(?<!training )\bacc(?:uracy)?(?: is| of| was)?\W{1,3}(?:0\.[89]\d|[89]\d(?:\.\d+)? ?%)|"
    r"\bit works, I only\b|\b(?:what comes out|results?|samples?|images?|outputs?|edits) (?:\w+ )?(?:looks?|are|"
    r"is) (?:\w+ )?"
    r"(?:great|good|nice|fine)\b(?<!not great)(?<!not good)|\bnot of bad quality\b|"
    r"\b(?:results?|samples?|quality|rewards?)\b[^.;\n]{0,30}"
    r"\b(?:improv(?:e|es|ed|ing)|gets? better|getting better|looks? good)\b(?<!not improve)(?<!not improving)",
    re.IGNORECASE,
)
"""A small loss after tens of thousands of steps, or results that are good: it has learned, whatever the loss does."""
BEFORE, AFTER, NEAR = 110, 30, 24
"""Characters between a state and its subject."""


def told_states(sentence: str) -> Iterator[StateKind]:
    """The kinds of trouble that a sentence reports."""
    if _COMMAND.search(sentence):
        return
    subjects = [(each.start(), each.end(), str(each.lastgroup)) for each in _SUBJECT.finditer(sentence)]
    for state in _STATE.finditer(sentence):
        name, said = str(state.lastgroup), state[0].lower()
        subject, distance = _subject(subjects, state.start(), state.end(), counted=name == "zero")
        opens = _OPENING.match(sentence, 0)
        if not subject and not (opens and opens.end() == state.start()) and not _OF_MODELS_ONLY.search(said):
            continue
        if not subject and opens and ":" in opens[0] and _AS_SET.match(said):
            continue  # `lr_scheduler_type: constant` is a setting
        if (
            said[0] in ":="
            and not _ALL_ALONG.search(said)
            and (subject in ("", "score", "weights") or (distance > 1 and not said.endswith("none")))
        ):
            continue  # another name's value, or a score's first one
        if _says_nothing(sentence, subject, state, distance):
            continue
        kind = _KINDS.get((subject, name))
        if kind is not None:
            yield kind


def _says_nothing(sentence: str, subject: str, state: re.Match[str], distance: int) -> bool:
    """Whether a state is denied, meant to be, or of something else."""
    name, said = state.lastgroup, state[0].lower()
    if name == "still":
        model = subject == "model" and not _OF_A_MODEL.search(said)
        meant = subject in ("weights", "model", "loss") and _ON_PURPOSE.search(sentence) is not None
        meant_rate = subject == "rate" and _AS_SET.match(said) is not None
        return (
            model
            or meant
            or _IN_THE_END.search(sentence, 0, state.start()) is not None
            or _TWO_PLAYERS.search(sentence) is not None
            or meant_rate
        )
    if subject == "rate" and name == "rises":
        return not said.startswith("jump")  # a warm-up increases it
    if subject == "rate" and name == "falls":
        return _AT_ONCE.match(sentence, state.end()) is None
    if subject == "memory":
        return _LASTING.search(sentence) is None
    if name == "rises" and (_A_LITTLE.search(sentence) or _is_overfitting(sentence, state)):
        return True
    if name == "grows" and _HIGH_AT_FIRST.search(sentence):
        return True
    if name == "zero" and subject == "rate" and _AT_THE_END.match(sentence, state.end()):
        return True
    if name == "off":
        return distance == 0 and "reset" in said  # before its subject it is a request: `reset the learning rate`
    if name == "zero":
        rounded = (
            subject == "rate"
            and _ROUNDED.search(said) is not None
            and not (_LASTING.search(sentence) or _ALL_ALONG.search(sentence))
        )
        return rounded or (subject != "gradient" and (said.endswith("none") or said.startswith("no ")))
    if name == "everywhere" and subject == "loss" and not _HELD.search(sentence, 0, state.start()):
        return True
    return (name == "everywhere" and distance > NEAR) or _NOT_SO.search(sentence[: state.start()]) is not None


def _is_overfitting(sentence: str, state: re.Match[str]) -> bool:
    """Whether an evaluation's loss rises, and no number says how far."""
    told = _HOW_FAR.match(sentence, state.end()) is not None
    return not told and _OF_EVALUATION.search(sentence[: state.start()]) is not None


def tells_of_arrival(text: str) -> bool:
    """Whether a line says that something was learned, so that a standstill is none."""
    return _ARRIVED.search(text) is not None


def _subject(subjects: list[tuple[int, int, str]], start: int, end: int, *, counted: bool) -> tuple[str, int]:
    """The nearest one before and its distance; `it` and `the model` give way to a quantity.

    Arguments:
        counted: the state is a number, which steps and epochs have as well.
    """
    asked = subjects if counted else [each for each in subjects if each[2] != "other"]
    before = [(name, start - to) for _, to, name in asked if to <= start and start - to <= BEFORE]
    if quantities := [each for each in before if each[0] != "model"]:
        return quantities[-1]
    if after := [(name, 0) for at, _, name in asked if end <= at <= end + AFTER and name not in ("model", "other")]:
        return after[0]
    return before[-1] if before else ("", 0)
