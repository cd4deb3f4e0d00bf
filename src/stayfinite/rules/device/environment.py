"""Installed packages do not fit each other or the GPU.

## What it means
A wheel was built for another CUDA, another torch, another numpy or another generation of cards. Either an import or the
first kernel fails with a message that names a symbol or an architecture, or, worse, the kernel runs and returns wrong
numbers: NaN from the first steps on, on this machine only.

## Why it happens
- torch's wheel has no kernels for the card (a new card with an old CUDA, an old card with a new wheel).
- An extension (flash-attn, apex, bitsandbytes, xformers, mmcv, detectron2, DeepSpeed's ops) was compiled against
  another torch and kept in the cache.
- The driver is older than the runtime; two CUDA or cuDNN copies lie on `LD_LIBRARY_PATH`.
- One library was upgraded alone: `unexpected keyword argument`, `cannot import name`, `has no attribute`.
- Cards of the GTX 16xx series return NaN from half-precision convolutions with some cuDNN versions: train those in
  fp32.

## How to recognize it
- `no kernel image is available for execution on the device`, `is not compatible with the current PyTorch installation`,
  `undefined symbol`, `libcudart.so.11.0: cannot open shared object file`, `CUDA driver version is insufficient`,
  `Torch not compiled with CUDA enabled`, `CUDNN_STATUS_VERSION_MISMATCH`.
- The same code with the same seed is healthy in another environment (a container, the versions that the project names),
  or on the CPU.
- The card is younger than the CUDA in use: an A100 needs CUDA 11.0, an RTX 30 11.1, an RTX 40, L4 or H100 11.8, an
  RTX 50 or B200 12.8. An older CUDA may start all the same, take minutes to compile, and return NaN.
- `python -m torch.utils.collect_env` shows the pair; `ldd` on the extension's `.so` shows what it was linked with.
- An accuracy of exactly 0 at a small loss: Python 2 and torch 0.4 divide integers without a rest.

## How to fix it
1. Make a fresh environment; install torch first, by the command that pytorch.org gives for your CUDA.
2. Then the extensions, built against *that* torch: `pip install --no-build-isolation --no-cache-dir flash-attn`; delete
   `~/.cache/torch_extensions`.
3. Use the versions that the project pins (its `requirements.txt`, its Dockerfile) before you search elsewhere.
4. New card, old code: a wheel of a CUDA that knows it (Ampere needs CUDA 11.1, Hopper 11.8, Blackwell 12.8).
5. apex: `pip install -v --no-build-isolation --config-settings "--build-option=--cpp_ext" --config-settings
   "--build-option=--cuda_ext" ./`, or replace it by `torch.amp`.
6. GTX 16xx: `fp16=False` (transformers), `precision="32-true"` (Lightning), `amp=False` (Ultralytics).

## When it is a false alarm
Warnings about slower fallbacks ("Triton not available", "fused kernel unavailable") slow training down and do not break
it. If the same versions work for others with the same card, look at data and settings first.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.device.versions import card_too_new, named_versions, other_version, toolkit_too_old
from stayfinite.rules.facts import Facts
from stayfinite.rules.precision.half_range import likely_half
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule
from stayfinite.rules.signs.aftermath import went_on
from stayfinite.rules.signs.witness import not_finite

_REFUSAL = (
    r"no kernel image is available|not compatible with the current pytorch installation|undefined symbol|"
    r"lib[\w.+-]+\.so[.\d]*: cannot open shared object|cuda driver version is insufficient|"
    r"nvidia driver on your system is too old|torch not compiled with cuda enabled|no nvidia driver on your system|"
    r"cudnn_status_(?:version_mismatch|not_initialized|arch_mismatch)|cuda_home environment variable is not set|"
    r"mismatches the version that was used to compile|compiled without gpu support|cuda setup failed|"
    r"compiled using numpy 1\.x cannot be run|numpy\.ndarray size changed|version `?glibc|glibcxx_[\d.]+' not found|"
    r"\bhave \w+ built[- ]in\b|read-only file system|too many open files|operator \w+::\w+ does not exist|"
    r"invalid device ordinal|"
    r"error building extension|ninja is required to load|"
    r"ptx was compiled with an unsupported toolchain|device kernel image is invalid|dll load failed|no module named|"
    r"unsupported gpu architecture|ptxas fatal|sm_\d+ is not compatible|\bfatal:? kernel\b|"
    r"kernel .{0,60}\bis for sm_?\d|was built for sm_?\d|\bnot built for (?:sm|compute)_?\d|"
    r"no (?:suitable|compatible) kernel|expected is_sm_?\d+.{0,30} to be true|"
    r"unsupported (?:compute capability(?! for)|cuda (?:version|arch\w*))|"
    r"found gpu\d* .{0,60}which is of cuda capability|"
    r"minimum cuda capability|cuda capability sm_\d"
)
_CHANGED_INTERFACE = (
    r"but transformers does not recognize this architecture|weights only load failed|"
    r"cannot import name|got an unexpected keyword argument|module '[\w.]+' has no attribute|importerror|"
    r"has been removed (?:in|from)|requires\s.{0,40}\sto be installed|"
    r"attempting to deserialize object on a cuda device but torch\.cuda\.is_available\(\) is false"
)
_LIBRARY_STATUS = (
    r"results mismatch between different convolution algorithms|"
    r"nccl error|nccl(?:unhandledcuda|system|invalidusage|internal)error|"
    r"cudnn error|cudnn_status_(?:execution_failed|not_supported|mapping_error|internal_error)|"
    r"cublas_status_(?:not_supported|execution_failed|arch_mismatch|invalid_value|not_initialized)"
)
_OTHER_PLACE = (
    r"\b(?:docker|container|conda|colab|kaggle|environment|env|requirements)\b.{0,60}(?<![/\\])\b(?:fine|works?|ok|normal|"
    r"no nan|stable)\b|"
    r"\b(?:without|disabl\w+|turning off|cudnn\W{0,2}(?:=|off|disabled)) ?(?:cudnn|apex|xformers|triton|mkl|nccl|"
    r"cudnn\.benchmark|tf32|0|false)\b.{0,30}\b(?:fine|works?|ok|normal|no nan|stable|finite|trains?)\b"
)
_WARNED = lazy_regex(r"warning:", re.IGNORECASE)
_DOES_WITHOUT = lazy_regex(r"\bskipp(?:ed|ing)\b|\bmissing a dependency\b|\bfall(?:s|ing)? back\b", re.IGNORECASE)
"""The program goes on without what it misses."""
COIN = 0.69
"""ln 2: whoever guesses between two has this loss."""
_SICKLY_CARD = (
    r"\bGTX ?16(?:\d0|xx)|\bGTX ?16[- ]series|"
    r"\b16[56]0 ?(?:ti|super)?\b(?=.{0,20}\b(?:gpu|ti|super|gb|card)\b)|\bT(?:400|500|600|1200)\b"
)


def judge(facts: Facts) -> Clues:
    """Clues: messages of loaders and kernels, or a remark that another environment works."""
    for pattern, weight in ((_REFUSAL, PROOF), (_CHANGED_INTERFACE, STRONG + HINT), (_LIBRARY_STATUS, STRONG)):
        message = facts.said(pattern)
        if message:
            yield Clue(message.text, weight, message.where)
            aside = _DOES_WITHOUT.search(message.text) and facts.symptoms.crash is None
            if aside or (pattern is not _REFUSAL and _WARNED.search(message.text)):
                yield Clue("a warning, no error", AGAINST * 3)
            elif went_on(facts, message) or (facts.symptoms.healthy and facts.symptoms.points >= 2):
                yield Clue("training continued after it", AGAINST * 3)
            break
    bad = not_finite(facts)
    trouble = bad is not None or bool(facts.symptoms.trouble)
    if not trouble:
        return
    divided = _divided_as_integers(facts)
    if divided is not None:
        yield divided
    place = facts.mentioned(_OTHER_PLACE)
    if place:
        text = f"healthy elsewhere: {place.text.strip()}"
        explained = facts.context.family is not None and likely_half(facts) is not None
        yield Clue(text, HINT if explained else STRONG, place.where)
    elif (other := other_version(facts)) is not None:
        yield Clue(f"another version behaves differently: {other.text.strip()}", FAIR + HINT, other.where)
    card = facts.mentioned(_SICKLY_CARD)
    if card and bad:
        text = f"half-precision kernels of this GPU return NaN with some cuDNN versions: {card.text.strip()}"
        yield Clue(text, STRONG + HINT, card.where)
    versions = named_versions(facts)
    young = card_too_new(facts, versions)
    toolkit = toolkit_too_old(facts)
    if toolkit:
        yield Clue(toolkit.text, STRONG + HINT, toolkit.where)
    elif young and bad:
        yield Clue(young.text, FAIR, young.where, risk=True)
    if versions and bad:
        named = ", ".join(f"{one.library} {one.text}" for one in versions[:6])
        yield Clue(f"versions in use: {named}", HINT / 2, versions[0].where)


def _divided_as_integers(facts: Facts) -> Clue | None:
    """An accuracy of exactly 0 at a loss that only right answers have: Python 2 and torch 0.4 divide integers so."""
    seen = facts.symptoms
    zero = seen.zero_score or seen.still_score
    values = [value for value, _ in facts.metric(zero)] if "acc" in zero else []
    if not values or any(values) or seen.bad_evals or seen.last_loss is None or not 0 < seen.last_loss < COIN:
        return None
    text = f"{zero} is exactly 0 at a loss of {seen.last_loss:.3g}: integer division rounds the accuracy to 0"
    return Clue(text, STRONG, seen.at("start"))


RULE = Rule(
    code="SF506",
    fix=(
        "make a fresh environment with the project's pinned versions; install torch for your CUDA first, then "
        "rebuild extensions against it"
    ),
    beats=("nan-loss", "loss-collapse", "loss-diverging"),
    warns={
        r"currently supports? \w+ versions? from .{0,40}you have version": STRONG + FAIR,
        r"gpu may be present on this machine, but .{0,60}not installed": STRONG + FAIR,
    },
    says={
        r"aten::\w+\(\) is missing value for argument|aten::\w+\(\) expected at most \d+ arguments?": PROOF,
    },
)
