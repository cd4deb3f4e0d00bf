"""The settings that decide whether a training is stable, in the order in which people should read of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stayfinite.rules.context import ATTENTION, CHECKPOINTING, CLIP, OPTIMIZER, WARMUP
from stayfinite.rules.optimization.planned_rate import EPOCHS, KIND, STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Matter:
    """One thing that trainings are told, whatever a framework calls it."""

    key: str
    """What it is called here."""
    names: tuple[str, ...]
    """How settings that tell it are called, by the last step of their name."""
    means: str
    """What a difference in it means for stability."""
    higher: str = ""
    """What the larger of two numbers means, where that is worth more words; `{ratio}` is larger over smaller."""


MATTERS = (
    Matter(
        key="learning rate",
        names=("learning_rate", "lr", "max_lr", "base_lr", "peak_lr", "init_lr", "lr0"),
        means="a rate that fits one set-up may overshoot in the other",
        higher="updates are {ratio} times as large: the higher rate is the first to diverge",
    ),
    Matter(
        key="warmup",
        names=(*WARMUP, "warmup_epochs", "warmup_num_steps", "lr_warmup_steps", "warmup_proportion"),
        means="with the shorter warmup the full rate comes sooner, before Adam's averages have settled",
    ),
    Matter(
        key="clipping",
        names=(*CLIP, "clip"),
        means="the lower bound holds back a single huge gradient; 0 or none lets it through",
    ),
    Matter(
        key="input length",
        names=(
            "max_source_length", "max_input_length", "max_input_len", "max_source_len", "max_src_len", "max_seq_length",
            "max_seq_len", "max_sequence_length", "cutoff_len", "sequence_len", "seq_length", "seq_len", "max_length",
            "max_len", "maxlen", "block_size", "model_max_length", "max_tokens",
        ),
        means="the shorter limit cuts inputs; the longer one costs memory and meets longer rows",
    ),
    Matter(
        key="target length",
        names=(
            "max_target_length", "max_target_len", "max_output_length", "max_output_len", "max_label_length",
            "val_max_target_length", "max_tgt_len", "max_completion_length",
        ),
        means="the shorter limit cuts what is to be learned; a row whose whole answer is cut has no label left",
    ),
    Matter(
        key="generation length",
        names=("generation_max_length", "max_new_tokens", "gen_max_length", "max_gen_length"),
        means="the shorter limit cuts answers in evaluation, which lowers scores and says nothing of training",
    ),
    Matter(
        key="optimizer",
        names=(*OPTIMIZER, "opt"),
        means="each optimizer has its own scale of rates: one cannot be kept when the other changes",
    ),
    Matter(key="schedule", names=KIND, means="the rate falls, or does not, in another way: late steps differ most"),
    Matter(
        key="weight decay",
        names=("weight_decay", "wd"),
        means="more decay keeps weights, and with them activations, smaller",
    ),
    Matter(
        key="Adam's epsilon",
        names=("adam_epsilon", "eps", "adam_eps", "optimizer_eps"),
        means="a tiny epsilon lets small second moments make huge updates; in fp16 1e-8 is 0",
    ),
    Matter(
        key="Adam's second beta",
        names=("adam_beta2", "beta2"),
        means="the nearer to 1, the longer a spike is forgotten, and the longer warmup has to be",
    ),
    Matter(
        key="betas",
        names=("betas", "adam_betas"),
        means="the second one decides how fast Adam answers to larger gradients",
    ),
    Matter(key="epochs", names=EPOCHS, means="schedules stretch with the length: the rate differs at the same step"),
    Matter(key="steps", names=STEPS, means="schedules stretch with the length: the rate differs at the same step"),
    Matter(
        key="model",
        names=(
            "model_name_or_path", "pretrained_model_name_or_path", "base_model", "model_name", "model_id",
            "model_checkpoint", "checkpoint", "pretrained_model", "arch",
        ),
        means="another model has another range of activations and another rate that it bears",
    ),
    Matter(
        key="adapters' rank",
        names=("lora_r", "lora_rank", "r"),
        means="updates of adapters scale with alpha over rank: a change of one is a change of the rate",
    ),
    Matter(
        key="adapters' alpha",
        names=("lora_alpha",),
        means="updates of adapters scale with alpha over rank: a change of one is a change of the rate",
    ),
    Matter(
        key="8-bit weights",
        names=("load_in_8bit", "use_8bit"),
        means="weights in few bits cannot be trained themselves, and add noise to what is trained beside them",
    ),
    Matter(
        key="4-bit weights",
        names=("load_in_4bit", "use_4bit", "quantization_bit"),
        means="weights in few bits cannot be trained themselves, and add noise to what is trained beside them",
    ),
    Matter(
        key="gradient checkpointing",
        names=CHECKPOINTING,
        means="saves memory and changes no number, unless it is re-entrant over frozen inputs",
    ),
    Matter(
        key="attention",
        names=ATTENTION,
        means="kernels differ in rounding, and some return NaN for rows that are wholly masked",
    ),
    Matter(
        key="loss scale",
        names=("loss_scale", "initial_scale_power", "init_scale", "fp16_init_scale"),
        means="decides when fp16's gradients overflow or vanish",
    ),
    Matter(
        key="dropout",
        names=("dropout", "dropout_rate", "hidden_dropout_prob"),
        means="more dropout, noisier gradients",
    ),
    Matter(
        key="label smoothing",
        names=("label_smoothing_factor", "label_smoothing"),
        means="smoothing bounds the logits, and lifts the lowest loss that can be reached",
    ),
    Matter(
        key="shuffling",
        names=("shuffle", "shuffle_dataset"),
        means="unshuffled data comes in stretches of its own kind",
    ),
    Matter(
        key="seed",
        names=("seed", "random_seed", "manual_seed", "set_seed", "seed_everything", "data_seed"),
        means="another order of the data and other first weights: single spikes move, trends stay",
    ),
)  # fmt: skip

BATCH = (
    "per_device_train_batch_size", "per_gpu_train_batch_size", "train_batch_size", "micro_batch_size", "batch_size",
    "train_micro_batch_size_per_gpu", "global_batch_size", "samples_per_gpu",
)  # fmt: skip
ACCUMULATION = (
    "gradient_accumulation_steps",
    "accumulate_grad_batches",
    "update_freq",
    "grad_accum_steps",
    "accum_steps",
)
PRECISION = re.compile(
    r"fp16|bf16|use_fp16|use_amp|amp|mixed_precision|precision|bfloat16|half|fp16_opt_level|opt_level|amp_dtype"
)
PRECISION_MEANS = {
    frozenset({"fp16", "fp32"}): "fp16 overflows above 65,504, fp32 does not: finite in one, NaN in the other",
    frozenset({"fp16", "bf16"}): "fp16 overflows above 65,504; bf16 has fp32's range and rounds more",
    frozenset(
        {"bf16", "fp32"}
    ): "the same range; bf16 rounds to 3 digits, so that tiny updates of bf16 weights are lost",
}
