"""Classify a tensor by its name and file, and say which values are normal for it."""

from __future__ import annotations

import re
from typing import Literal

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.checkpoints.facts import Place

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
    r"codebook"
    r"|alibi|count|n_updates|num_updates|statistics|cluster_size|embed_avg).*"
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
    elements = 1
    for n in place.shape:
        elements *= n
    return len([n for n in place.shape if n > 1]) >= 2 and elements >= 256


def starts_at_zero(name: str) -> bool:
    """Whether it is initialized to zero: LoRA B, zero convolutions, gates."""
    return _ZERO_AT_FIRST.fullmatch(name) is not None


def is_lora_b(name: str) -> bool:
    """Whether it is the zero-initialized half of a LoRA, which must change for anything to be learned."""
    return "lora_B" in name or "lora_embedding_A" in name
