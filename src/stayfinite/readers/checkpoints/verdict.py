"""Findings about one checkpoint: poisoned, damaged, or with suspicious finite values. Pure."""

from __future__ import annotations

import math
import re
from typing import Literal

from stayfinite.core.finding import Severity
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.checkpoints.facts import FLOATS, FileFacts, Place, TensorValues, Trouble
from stayfinite.readers.checkpoints.result import Scanned, counted, listed

Role = Literal["model", "optimizer", "bookkeeping"]

_BOOKKEEPING_FILE = lazy_regex(
    r"(scheduler|scaler|rng_state|random_states|training_args|custom_checkpoint|rest)\b.*|rng_state.*"
)
_OPTIMIZER_FILE = lazy_regex(r"optimizer[-_.].*|optim\..*|.*_optim_states\.pt|distrib_optim\.pt")
_OPTIMIZER_TOP = lazy_regex(r"(.*_)?optim(izers?|izer_states?|izer_state_dict|s|_state)?(_history)?", re.IGNORECASE)
_MOMENT = lazy_regex(
    r".*\.(exp_avg(_sq(_row|_col)?|_diff)?|max_exp_avg_sq|momentum_buffer|square_avg|acc_delta|exp_inf|state[12]|sum|"
    r"ax)"
)
_BOOKKEEPING_TOP = frozenset({
    "lr_schedulers", "lr_scheduler", "scheduler", "schedulers", "callbacks", "loops", "rng_state", "rng_states",
    "random_rng_state", "np_rng_state", "torch_rng_state", "cuda_rng_state", "scaler", "grad_scaler", "amp_scaler",
    "loss_scaler", "args", "hyper_parameters", "metrics", "history", "best_metric", "loss", "epoch", "step",
})  # fmt: skip
_MAY_BE_INFINITE = lazy_regex(
    r".*(mask|alibi|min_val|max_val|best_score|best_model_score|current_score|kth_value|best_k_models)[^.]*(\..*)?"
)
_MAY_BE_LARGE = lazy_regex(
    r".*(mask|running_(mean|var)|num_batches_tracked|inv_freq|position|\.step$|scale|absmax|SCB|zero_point|quant|"
    r"codebook|alibi|count|n_updates|num_updates|statistics|cluster_size|embed_avg).*"
)
_ZERO_AT_FIRST = lazy_regex(
    r".*(lora_B|lora_magnitude|lora_embedding_A|zero|gate|adaLN|adapter|prompt|prefix|ia3|bias|hada_w2).*"
)


def role_of(file: str, name: str) -> Role:
    """What a tensor is used for."""
    if _BOOKKEEPING_FILE.fullmatch(file):
        return "bookkeeping"
    if _OPTIMIZER_FILE.fullmatch(file):
        return "optimizer"
    top = name.split(".", 1)[0]
    if top in _BOOKKEEPING_TOP:
        return "bookkeeping"
    if _OPTIMIZER_TOP.fullmatch(top) or _MOMENT.fullmatch(name):
        return "optimizer"
    return "model"


def may_be_infinite(name: str) -> bool:
    """Whether infinity, but not NaN, is normal: masks, and best values not reached yet."""
    return _MAY_BE_INFINITE.fullmatch(name) is not None


def may_be_large(name: str) -> bool:
    """Whether it holds counts, scales or statistics, which have no upper bound."""
    return _MAY_BE_LARGE.fullmatch(name) is not None


def is_matrix(place: Place) -> bool:
    """Whether it is large and has two or more dimensions. Biases and norms start as zeros and ones; matrices do not."""
    return len([n for n in place.shape if n > 1]) >= 2 and math.prod(place.shape) >= 256


def starts_at_zero(name: str) -> bool:
    """Whether it is initialized to zero: LoRA B, zero convolutions, gates."""
    return _ZERO_AT_FIRST.fullmatch(name) is not None


def is_lora_b(name: str) -> bool:
    """Whether it is the zero-initialized half of a LoRA, which must change for anything to be learned."""
    return "lora_B" in name or "lora_embedding_A" in name


HALF_ENDS = 65504.0  # the largest fp16 value

MOMENTS_END = 1e30  # its square root exceeds any plausible gradient

REPLACE_IT = "copy or download it again, or use the previous checkpoint; do not resume from this one"


def _magnitudes(scanned: Scanned) -> None:
    weights, moments = [], []
    for file, place, values in scanned.tensors():
        role = role_of(file.path.name, place.name)
        line = f"{place.name} ({place.dtype}): magnitudes up to {values.largest:.4g}, in {file.path.name}"
        if place.dtype not in FLOATS or values.bad or role == "bookkeeping" or may_be_large(place.name):
            continue
        if role == "model" and values.largest > HALF_ENDS and math.prod(place.shape) > 1:
            weights.append((values.largest, line))
        elif role == "optimizer" and values.largest > MOMENTS_END:
            moments.append((values.largest, line))
    for kind, lines, bound in (("weights", weights, HALF_ENDS), ("optimizer's moments", moments, MOMENTS_END)):
        if not lines:
            continue
        lines.sort(reverse=True)
        overflow = "overflow in fp16 (limit 65,504)" if kind == "weights" else "are close to overflow"
        scanned.record(
            "SF702",
            "warning",
            0.8 if lines[0][0] > 1e3 * bound else 0.6,
            title=f"{scanned.name} has extreme {kind}: values in {counted(len(lines), 'tensor')} {overflow}",
            evidence=listed([line for _, line in lines]),
            fix="compare with an earlier checkpoint: growth means divergence; do not cast it to fp16",
        )


_SECOND_MOMENT = lazy_regex(r"(?:.*\.)?(?:(?:max_)?exp_avg_sqs?(?:_row|_col)?|square_avgs?)(?:\.\d+)*")


def _second_moments(scanned: Scanned) -> None:
    """Averages of squares below 0: their square root is NaN, and so are the weights after the next step."""
    lines = [
        f"{place.name} ({place.dtype}): down to {values.smallest:.4g}, in {file.path.name}"
        for file, place, values in scanned.tensors()
        if values.smallest < 0
        and place.dtype in FLOATS
        and not place.dtype.startswith("C")
        and _SECOND_MOMENT.fullmatch(place.name)
    ]
    if lines:
        scanned.record(
            "SF702",
            "error",
            0.95,
            title=f"{scanned.name} holds negative second moments: values in {counted(len(lines), 'tensor')}",
            evidence=listed(lines),
            fix="do not resume from it: the next optimizer step takes their square root, which is NaN",
        )


def _emptiness(scanned: Scanned) -> None:
    matrices = [
        (file, place, values)
        for file, place, values in scanned.tensors()
        if place.dtype in FLOATS and is_matrix(place) and role_of(file.path.name, place.name) == "model"
    ]
    matrices = [each for each in matrices if not starts_at_zero(each[1].name) and not may_be_infinite(each[1].name)]
    odd = [(file, place, values) for file, place, values in matrices if values.constant is not None]
    if not odd:
        return
    zero = [each for each in odd if each[2].constant == 0]
    lines = [
        f"{place.name} {list(place.shape)} is {values.constant:g} everywhere, in {file.path.name}"
        for file, place, values in odd
    ]
    unwritten = len(zero) >= 3 and 2 * len(zero) >= len(matrices)
    scanned.record(
        "SF703" if unwritten else "SF702",
        "error" if unwritten else "info",
        0.85 if unwritten else 0.1,
        title=f"{scanned.name}: {len(zero)} of {len(matrices)} weight matrices are all zero, as if never written"
        if unwritten
        else f"{scanned.name} has {len(odd)} constant weight matrices",
        evidence=listed(lines),
        fix=REPLACE_IT
        if unwritten
        else "normal for a layer initialized this way; otherwise check that it gets a gradient",
    )


_TROUBLES: dict[str, tuple[str, Severity, float, str]] = {
    "truncated": ("is truncated", "error", 0.99, REPLACE_IT),
    "damaged": ("is damaged", "error", 0.95, REPLACE_IT),
    "hash": ("was modified: its hash differs", "error", 0.99, REPLACE_IT),
    "incomplete": ("is not complete", "error", 0.95, REPLACE_IT),
    "unreadable": ("could not be read", "warning", 0.6, "make it readable, or copy it again"),
    "unread": (
        "was not fully checked", "warning", 0.5,
        "no problem known; save it with torch.save or as safetensors to check it",
    ),
    "dangerous": (
        "would run code when loaded", "warning", 0.9,
        "do not load it with weights_only=False; ask its author for safetensors",
    ),
    "note": ("has no known problem", "info", 0.3, "nothing to do"),
    "foreign": ("is not a training checkpoint", "info", 0.9, "name a checkpoint, or a directory of them"),
}  # fmt: skip


def judge(scanned: Scanned) -> None:
    """Record all findings about one checkpoint."""
    scanned.findings.clear()
    for look in (_damage, _poison, _numbers, _second_moments, _magnitudes, _emptiness):
        look(scanned)


def _damage(scanned: Scanned) -> None:
    groups: dict[str, list[tuple[str, Trouble]]] = {}
    for file in scanned.facts.files:
        for trouble in file.troubles:
            groups.setdefault(trouble.kind, []).append((f"{file.path.name}: ", trouble))
    for trouble in scanned.facts.troubles:
        groups.setdefault(trouble.kind, []).append(("", trouble))
    for kind, troubles in groups.items():
        words, severity, confidence, fix = _TROUBLES[kind]
        scanned.record(
            "SF703",
            severity,
            confidence,
            title=f"{scanned.name} {words}",
            evidence=listed([prefix + trouble.text for prefix, trouble in troubles]),
            fix=fix,
        )
    needed = {
        name: file for file in scanned.facts.files for name in file.strangers if role_of(file.path.name, "") == "model"
    }
    if needed:
        lines = [f"{file.path.name} needs {name}" for name, file in needed.items()]
        scanned.record(
            "SF703",
            "info",
            0.1,
            title=f"{scanned.name} holds objects other than tensors; only tensors were checked",
            evidence=listed(lines),
            fix="torch.load(weights_only=True) may refuse it; save state_dict() alone, or as safetensors",
        )


def _poison(scanned: Scanned) -> None:
    poison, harmless, total = [], [], 0
    for file, place, values in scanned.tensors():
        if not values.bad:
            continue
        role = role_of(file.path.name, place.name)
        allowed = not values.nan and (place.name in scanned.facts.exempt or may_be_infinite(place.name))
        line = _count(file, place, values)
        if allowed or role == "bookkeeping":
            harmless.append(line)
        else:
            poison.append(line)
            total += values.bad
    if poison:
        where_in = counted(len(poison), "tensor")
        scanned.record(
            "SF702",
            "error",
            0.99,
            title=f"{scanned.name} holds NaN or inf: {counted(total, 'value')} in {where_in}",
            evidence=listed(poison),
            fix="do not resume from it: training would continue with NaN or inf",
        )
    if harmless:
        scanned.record(
            "SF702",
            "info",
            0.05,
            title=f"{scanned.name} holds inf where that is normal (masks, best values, bookkeeping)",
            evidence=listed(harmless),
            fix="nothing to do",
        )


def _count(file: FileFacts, place: Place, values: TensorValues) -> str:
    elements = math.prod(place.shape)
    kinds = [f"{count:,} {word}" for count, word in ((values.nan, "NaN"), (values.infinite, "infinite")) if count]
    first = f", first at {list(values.first)}" if values.first else ""
    name = place.name or "the tensor"
    return f"{name} ({place.dtype}): {' and '.join(kinds)} of {elements:,}{first}, in {file.path.name}"


def _numbers(scanned: Scanned) -> None:
    """Non-finite plain numbers that training would resume with: learning rate, loss scale, logged loss."""
    for file in scanned.facts.files:
        for path, value in file.numbers.items():
            last = next((part for part in reversed(path.split(".")) if not part.isdigit()), "")
            steering = math.isnan(value) and ("lr" in last.split("_") or last in ("base_lrs", "lrs"))
            steering = steering or (last in ("scale", "loss_scale", "cur_scale"))
            if not steering and not (last in ("loss", "train_loss") and math.isnan(value)):
                continue
            scanned.record(
                "SF702",
                "error" if steering else "warning",
                0.9 if steering else 0.7,
                title=f"{scanned.name} records {path} as {value}",
                evidence=(f"{path} = {value}, in {file.path.name}",),
                fix="do not resume from it" if steering else "check the steps before it was written",
            )
