"""Framework names for loss, gradient norm, learning rate, loss scale, step, epoch and throughput."""

from __future__ import annotations

from functools import lru_cache

from stayfinite.core.lazy_regex import lazy_regex

_MEANS_LOSS = lazy_regex(
    r"(?:^|[_/.])(?:objective|obj|xe|xent|ce|bce|mse|crit|criterion|cost|nll|l|j|tloss|l_total|loss(?:es)?[_./]total|"
    r"verlust|perte|perdida|pérdida|perda|perdita|потери|损失|損失|손실)$"
)
"""Names of what is minimized."""
LOSSES = (
    "loss", "train_loss", "training_loss", "total_loss", "loss_total", "lm_loss", "average_loss", "train_loss_step",
    "step_loss", "loss_step", "reduced_train_loss", "batch_loss", "cur_loss", "current_loss", "avr_loss", "avg_loss",
    "mean_loss", "mean_train_loss", "running_loss", "loss_avg", "loss_train", "train_total_loss", "global_avg_loss",
    "xent", "tot_loss", "loss_value", "trn_loss", "tr_loss", "train_epoch_loss", "epoch_loss", "train_loss_epoch",
    "loss_epoch", "moving_ave_loss", "minibatch_loss", "loss_train_total", "train_loss_train_total", "losses", "nll",
    "train_nll", "train_cost", "training_cost", "avg_cost", "cost", "cross_entropy", "crossentropy",
    "train_cross_entropy", "ce",
)  # fmt: skip
"""Names of the training loss, in order of preference when a line has several."""

GRAD_NORMS = {
    "grad_norm", "gnorm", "gradnorm", "gradient_norm", "gradients_norm", "grad_norms", "total_grad_norm", "total_norm",
    "global_grad_norm", "grad_norm_total", "grad_norm_avg", "g_norm", "grad_2_norm", "grad_2.0_norm_total",
    "grad_2_norm_total", "grad_l2_norm", "norm", "grad", "grads_norm", "gradient_norm_total", "grad_norm_step",
    "grad_norm_before_clip", "grad_total_norm", "gn", "|g|", "grad_l2",
}  # fmt: skip
RATES = {
    "lr", "learning_rate", "learningrate", "base_lr", "lr_abs", "current_lr", "cur_lr", "last_lr", "lr_0", "lr_group_0",
    "lr_pg0", "train_lr", "unet_lr", "lr_unet", "current_lr_0", "learning_rate_0", "step_lr",
}  # fmt: skip
SCALES = {"loss_scale", "lossscale", "loss_scaler", "grad_scale", "amp_scale", "scaler_scale", "fp16_scale", "lscale"}
STEPS = {
    "step", "steps", "global_step", "global_steps", "iter", "iters", "iteration", "iterations", "num_updates", "it",
    "train_step", "trainer_global_step", "_step", "cur_step", "current_step", "updates", "num_update", "training_step",
    "optimizer_step", "total_iter", "global_iter", "itr", "n_iter", "current_iteration", "update_step", "trainstep",
    "optim_step", "current_global_step", "current_steps", "total_train_updates", "training_iteration", "up",
}  # fmt: skip
EPOCHS = {
    "epoch", "train_epoch", "ep", "epochs", "current_epoch", "cur_epoch", "epoch_num", "train_epochs",
    "training_epoch",
}  # fmt: skip
RATES_OF_WORK = {
    "tps", "wps", "tokens_per_second", "tokens_per_sec", "tok_s", "tokens_s", "words_s", "samples_per_second", "tgs",
    "samples_per_sec", "tokens_per_second_per_gpu", "throughput", "it_s", "samples_s", "tokens_sec", "tok_sec",
    "samples_sec", "tokens_per_gpu_per_second", "imgs_s", "img_s", "images_per_second", "fps", "steps_per_second",
    "throughput_tps", "sps",
}  # fmt: skip
NO_METRICS = {
    "eta", "time", "date", "v_num", "wall", "train_wall", "pid", "port", "rank", "line", "version", "timestamp",
    "eta_seconds", "wall_time", "datetime", "remaining", "elapsed", "elapsed_time", "at", "cuda",
}  # fmt: skip
"""Numbers that do not reflect training health."""

_TRAIN_PATHS = {
    "train", "training", "losses", "trainer", "main", "data", "optim", "optimizer", "metrics", "loss_metrics",
    "actor", "global", "scaler", "stayfinite",
}  # fmt: skip
_EVALUATION = lazy_regex(r"(?:^|[_/])(?:e?val|evaluation|valid|validation|valid_on|test|dev|vld)(?:$|[_/])")
_BREAKS = lazy_regex(r"[\s\-]+")
_SUREST = {"lr", "learning_rate", "grad_norm", "global_step", "num_updates", "epoch", "loss_scale"}
_PART = lazy_regex(r"(?:^|[_/.])loss(?:es$|(?:es)?[_/])|loss$|(?:^|[_/.])(?:kld|nll)$")
_NO_PART = lazy_regex(
    r"(?:^|[_/.])(?:num|best|max|min|maximum|minimum|target|initial|final|threshold|expected|previous|last|"
    r"smoothing)[_/]"
    r"|loss_(?:scale|weight|fn|type|func|coef|lambda|alpha|name|mask|factor|ratio|threshold|delta|cutoff|value$|ppl$)"
)
_SPLIT = lazy_regex(r"^(?:train|training|trn)_")
_RANKS = {name: place for place, name in enumerate(LOSSES)}
_COLUMNS = {
    name: column
    for column, names in {
        "throughput": RATES_OF_WORK, "epoch": EPOCHS, "step": STEPS, "loss_scale": SCALES, "lr": RATES,
        "grad_norm": GRAD_NORMS, "loss": LOSSES,
    }.items()
    for name in names
}  # fmt: skip


def plain(name: str) -> str:
    """`Training Loss`, `training loss is` -> `training_loss`."""
    return _BREAKS.sub("_", name.strip(" \t'\"-#*>.~")).lower().removesuffix("_is")


def is_evaluation(name: str) -> bool:
    """Whether a normalized name belongs to an evaluation: `eval_loss`, `val/acc`, `validation_loss`."""
    return _EVALUATION.search(name) is not None


@lru_cache(maxsize=4096)
def column_of(name: str) -> str:
    """Return the ``Point`` column of a normalized name, or ""."""
    if is_evaluation(name):
        return ""
    path, _, last = name.rpartition("/")
    if path and path not in _TRAIN_PATHS and not (last == "s" and path in {"tok", "it", "words", "tokens"}):
        first = path.partition("/")[0]
        if first not in _TRAIN_PATHS or last not in GRAD_NORMS | RATES:
            last = ""
    for whole in (last, name.replace("/", "_")):
        if whole.startswith(("lr_adam", "lr_sgd", "lr_group")):
            return "lr"
        for each in (whole, _SPLIT.sub("", whole)):
            if (column := _COLUMNS.get(each)) is not None:
                return column
    return ""


def name_rank(name: str) -> int:
    """Rank how surely a normalized name means its column; smaller is surer."""
    last = name.rpartition("/")[2]
    if last in _SUREST:
        return 0
    return _RANKS.get(last, _RANKS.get(name.replace("/", "_"), 1))


def is_loss_part(name: str) -> bool:
    """Whether a normalized name is a loss or a loss term: `loss_cls`, `d_loss`; not `best_loss`."""
    return _PART.search(name) is not None and _NO_PART.search(name) is None and not is_evaluation(name)


def means_loss(name: str) -> bool:
    """Whether a normalized name is that of something minimized: `objective`, `xent`, `train_loss`."""
    return _MEANS_LOSS.search(name) is not None or is_loss_part(name)
