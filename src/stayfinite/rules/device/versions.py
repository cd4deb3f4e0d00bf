"""Library versions that a run names: known bad ones, and remarks about others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line

_LIBRARIES = (
    r"(?:py)?torch(?:vision|audio)?|torch_npu|transformers|deepspeed|accelerate|peft|trl|bitsandbytes|"
    r"flash[-_ ]?attn|flash[-_ ]?attention|xformers|apex|"
    r"cuda(?:toolkit)?|cudnn|nccl|rocm|triton|(?:pytorch[-_ ])?lightning|fairseq|mmcv(?:-full)?|mmdet|mmengine|"
    r"numpy|datasets|tokenizers|megatron|unsloth|"
    r"tf|tensorflow(?:[-_]gpu)?|keras|mxnet|paddle(?:paddle)?|jax|vllm|diffusers|espnet|detectron2|torch[-_]?xla|"
    r"liger[-_]kernel|ms[-_]swift|llama[-_ ]?factory|python|driver|macos"
)
_VERSION = lazy_regex(
    rf"(?<![\w.])({_LIBRARIES})(?:[-_ ]?version)?\s*(?:[:=@]+|\s|-|v)\s*v?(\d+(?:\.\d+){{1,3}}[\w.+]*)", re.IGNORECASE
)
_WORKS = (
    r"\b(?:fine|(?<!not )(?<!n't )works?|worked|working|ok|okay|no nan|finite|healthy|converges?|converged|"
    r"correct(?:ly)?|fixe[sd]|solved|disappears?|"
    r"no (?:bug|problem|issue|error)s?|without (?:problem|issue|error|nan)s?)\b"
)
_GOOD = rf"(?:{_WORKS}|\b(?:normal(?:ly)?|stable|well|good)\b)"
_NUMBERED = rf"\b(?:(?:{_LIBRARIES}|version|release)s?\b.{{0,25}}?v?\d+\.\d+|(?:cuda|cudnn)[- ]?v?\d+\b)"
_OTHER = r"\b(?:older|newer|previous|earlier|latest|last|another|other|different|old) (?:\w+ )?"
_RELEASE = r"(?:version|release|build|commit|nightly)s?\b"
_OTHER_VERSION = (
    rf"{_GOOD}.{{0,60}}\b(?:with|on|in|under|using|before|after|at|to)\b.{{0,40}}{_NUMBERED}|"
    rf"{_NUMBERED}.{{0,60}}{_WORKS}|{_OTHER}{_RELEASE}.{{0,60}}{_GOOD}|{_GOOD}.{{0,60}}{_OTHER}{_RELEASE}|"
    r"\b(?:after|since) (?:the )?(?:up|down)grad\w*|\b(?:after|since) (?:updat|switch|install)\w*.{0,30}\d+\.\d+|"
    r"\bv?\d+\.\d+\.\d+\b.{0,12}\b(?:works?|is (?:fine|ok)|trained|trains|(?:has|had) no (?:nan|problem|issue))\b|"
    r"\b(?:worked|trained|was fine|was ok)\b.{0,30}\b(?:commit|version|release|build|branch|checkout|yesterday|"
    r"last week|days? (?:ago|before)|weeks? (?:ago|before))\b|"
    r"\bsince (?:commit|version|release|the (?:latest|last|new|recent) (?:\w+ )?(?:commit|version|release|update|"
    r"build|merge|pull|change))\b|"
    r"\b(?:works?|worked|fine|ok|normal|trains?) (?:with|on|in|under|using) (?:version )?v?\d+\.\d+(?:\.\d+)?\b|"
    rf"\bwith {_NUMBERED}.{{0,40}}[;,] with {_NUMBERED}|{_NUMBERED}.{{0,40}}\b(?:it|that|this|everything|training) "
    r"(?:still )?(?:runs?|ran|trains?|trained)\b|"
    r"\bregression\b.{0,30}\d+\.\d+|\b(?:up|down)graded? (?:from|to)\b"
)


@dataclass(frozen=True, slots=True)
class Version:
    """A library and its version."""

    library: str
    text: str
    where: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """`2.4.1+cu118` -> (2, 4, 1)."""
        found = re.match(r"\d+(?:\.\d+)*", self.text)
        return tuple(int(part) for part in found.group().split(".")) if found else ()


def named_versions(facts: Facts) -> list[Version]:
    """Every library version in the settings or the log, one per library."""
    found: dict[str, Version] = {}
    for where, text in facts.lines:
        for match in _VERSION.finditer(text):
            library = (
                re.sub(r"[-_ ]", "", match.group(1).lower())
                .replace("pytorchlightning", "lightning")
                .replace("pytorch", "torch")
            )
            found.setdefault(library, Version(library, match.group(2), where))
    return list(found.values())


def other_version(facts: Facts) -> Line | None:
    """A remark that another version behaves differently."""
    return facts.mentioned(_OTHER_VERSION)


_FRAME = lazy_regex(r'File "([^"]+)", line \d+')
_ENGINE = lazy_regex(
    r"\bdeepspeed/runtime/|\btorch/distributed/(?:fsdp|_composable)/|\bfairscale/|\btorch/_(?:inductor|dynamo)/"
)


def raised_inside(facts: Facts) -> Line | None:
    """The innermost frame of a traceback, if it is in an engine to which a script hands no tensor."""
    frames = [(message.where, path) for message in facts.all_said(r'File "') for path in _FRAME.findall(message.text)]
    if not frames or _ENGINE.search(frames[-1][1]) is None:
        return None
    where, path = frames[-1]
    return Line(where, path)


KNOWN = (
    ("deepspeed", (0, 12, 4), (0, 14, 2), "its bucketed reduction of gradients over several ranks could give NaN"),
    ("deepspeed", (0, 14, 3), (0, 14, 4), "gradients and gradient norms could be exactly 0"),
    ("torch", (1, 12, 0), (1, 12, 1), "Adam's `capturable` check breaks every resumed optimizer"),
    ("transformers", (4, 46, 0), (4, 46, 3), "its loss was not divided by the accumulation steps for many models"),
)
"""Library, first bad version, first good version, effect. Each is on record in the library's own issues."""


GENERATIONS = (
    (r"\bRTX ?50[5-9]0\b|\bB[12]00\b|\bGB200\b|\bRTX PRO 6000\b", "Blackwell", (2, 8)),
    (r"\bRTX ?40[5-9]0\b|\b4090\b|\bL40S?\b|\bH[12]00\b|\bH20\b|\bH800\b|\bGH200\b", "Ada and Hopper", (2, 0)),
    (r"\bRTX ?30[5-9]0\b|\b3090\b|\bA100\b|\bA40\b|\bA10G?\b|\bA6000\b|\bA800\b", "Ampere", (1, 8)),
)
"""A GPU generation, and the first torch release that followed its introduction."""


def card_too_new(facts: Facts, versions: list[Version]) -> Line | None:
    """``(what, where)`` if the GPU generation is too new for the named torch."""
    torch = next((version for version in versions if version.library == "torch" and version.numbers), None)
    if torch is None:
        return None
    for pattern, generation, since in GENERATIONS:
        card = facts.mentioned(pattern)
        if card is not None and torch.numbers[:2] < since:
            what = (
                f"torch {torch.text} hardly supports GPUs of this generation ({generation}: {card.text.strip()[:60]})"
            )
            return Line(card.where, what)
    return None


TOOLKITS = (
    (r"\bRTX ?50[5-9]0\b|\bB[12]00\b|\bGB200\b|\bsm_?1[02]0\b|compute_capability ?= ?1[02]00", (12, 8)),
    (
        r"\bRTX ?40[5-9]0\b|\b4090\b|\bL40S?\b|\bL4\b|\bH[12]00\b|\bsm_?(?:89|90)\b|compute_capability ?= ?(?:89|90)0",
        (11, 8),
    ),
    (r"\b(?:RTX ?)?30[5-9]0(?: ?ti)?\b|\bA10G?\b|\bA40\b|\bA[456]000\b|\bsm_?86\b|compute_capability ?= ?860", (11, 1)),
    (r"\bA100\b|\bA800\b|\bA30\b|\bsm_?80\b|compute_capability ?= ?800", (11, 0)),
    (r"\bRTX ?20[678]0\b|\b2080 ?ti\b|\bT4\b|\bGTX ?16\d0|\bsm_?75\b|compute_capability ?= ?750", (10, 0)),
    (r"\bV100\b|\bsm_?70\b|compute_capability ?= ?700", (9, 0)),
    (r"\bGTX ?10[5-8]0\b|\bP100\b|\bP40\b|\btitan xp\b|\bsm_?6[01]\b|compute_capability ?= ?6[01]0", (8, 0)),
)
"""A GPU, and the first CUDA toolkit that compiles for it."""

_CUDA = lazy_regex(
    r"\bcuda[-_ ]?(?:toolkit|runtime|version|compilation tools)?\W{0,4}"
    r"(?:v(?:er)?(?:sion)?|release)?\W{0,3}(\d{1,2})(?:\.(\d)|(?=\)|,|;|$))|"
    r"\bcuda-version: ?(\d{1,2})0(\d)0\b|\+cu(\d{2})(\d)\b|cudatoolkit=(\d{1,2})\.(\d)",
    re.IGNORECASE,
)


def toolkit_too_old(facts: Facts) -> Line | None:
    """``(what, where)`` if the CUDA in use cannot compile for the GPU."""
    told = next(
        ((where, text, found) for where, text in facts.lines if (found := _CUDA.search(text)) is not None), None
    )
    if told is None:
        return None
    where, _, found = told
    major, minor = (*(int(group) for group in found.groups() if group is not None), 0)[:2]
    for pattern, since in TOOLKITS:
        card = facts.mentioned(pattern)
        if card is not None:
            if (major, minor) >= since:
                return None
            known = f"CUDA {major}.{minor} does not support this GPU; {since[0]}.{since[1]} is the first that does"
            return Line(where, f"{known}: {card.text.strip()[:80]}")
    return None


def known_bad(versions: list[Version]) -> Iterator[tuple[Version, str]]:
    """Versions that are known to break training, and how."""
    for version in versions:
        for library, first, fixed, what in KNOWN:
            padded = (*version.numbers, 0, 0, 0)[:3]
            if version.library == library and version.numbers and first <= padded < fixed:
                yield version, what
