"""The settings that decide stability, in display order."""

from __future__ import annotations

from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.context import ATTENTION, CHECKPOINTING, CLIP, OPTIMIZER, WARMUP
from stayfinite.rules.optimization.planned_rate import EPOCHS, KIND, STEPS


@dataclass(frozen=True, slots=True)
class Matter:
    """One topic, whatever frameworks call it."""

    key: str
    """Our name for it."""
    names: tuple[str, ...]
    """Setting names, by their last part."""
    means: str
    """What a difference means for stability."""
    higher: str = ""
    """What the larger value means, if more needs saying; `{ratio}` is larger over smaller."""


MATTERS = (
    Matter("learning rate", ("learning_rate", "lr", "max_lr", "base_lr", "peak_lr", "init_lr", "lr0"),
           "a rate that fits one setup may be too high for the other",
           "updates are {ratio} times as large: the higher rate diverges first"),
    Matter("warmup", (*WARMUP, "warmup_epochs", "warmup_num_steps", "lr_warmup_steps", "warmup_proportion"),
           "shorter warmup reaches the full rate before Adam's averages settle"),
    Matter("clipping", (*CLIP, "clip"), "a limit above 0 contains a single huge gradient; 0 or none does not"),
    Matter("input length", (
        "max_source_length", "max_input_length", "max_input_len", "max_source_len", "max_src_len", "max_seq_length",
        "max_seq_len", "max_sequence_length", "cutoff_len", "sequence_len", "seq_length", "seq_len", "max_length",
        "max_len", "maxlen", "block_size", "model_max_length", "max_tokens",
    ), "the shorter limit truncates inputs; the longer one costs memory"),
    Matter("target length", (
        "max_target_length", "max_target_len", "max_output_length", "max_output_len", "max_label_length",
        "val_max_target_length", "max_tgt_len", "max_completion_length",
    ), "the shorter limit truncates labels; a fully truncated answer has no label"),
    Matter("generation length", ("generation_max_length", "max_new_tokens", "gen_max_length", "max_gen_length"),
           "the shorter limit truncates answers in evaluation: lower scores, same training"),
    Matter("optimizer", (*OPTIMIZER, "opt"), "each optimizer needs its own learning rate"),
    Matter("schedule", KIND, "the rate decays differently: late steps differ most"),
    Matter("weight decay", ("weight_decay", "wd"), "more decay keeps weights and activations smaller"),
    Matter("Adam's epsilon", ("adam_epsilon", "eps", "adam_eps", "optimizer_eps"),
           "a tiny epsilon makes huge updates from small second moments; 1e-8 is 0 in fp16"),
    Matter("Adam's second beta", ("adam_beta2", "beta2"),
           "closer to 1 remembers a spike longer and needs longer warmup"),
    Matter("betas", ("betas", "adam_betas"), "the second one sets how fast Adam adapts to larger gradients"),
    Matter("epochs", EPOCHS, "the schedule scales with the length: the rate differs at the same step"),
    Matter("steps", STEPS, "the schedule scales with the length: the rate differs at the same step"),
    Matter("model", (
        "model_name_or_path", "pretrained_model_name_or_path", "base_model", "model_name", "model_id",
        "model_checkpoint", "checkpoint", "pretrained_model", "arch",
    ), "another model has other activation ranges and another safe rate"),
    Matter("adapters' rank", ("lora_r", "lora_rank", "r"),
           "adapter updates scale with alpha / rank: changing one changes the rate"),
    Matter("adapters' alpha", ("lora_alpha",),
           "adapter updates scale with alpha / rank: changing one changes the rate"),
    Matter("8-bit weights", ("load_in_8bit", "use_8bit"),
           "quantized weights cannot be trained and add noise to the adapters"),
    Matter("4-bit weights", ("load_in_4bit", "use_4bit", "quantization_bit"),
           "quantized weights cannot be trained and add noise to the adapters"),
    Matter("gradient checkpointing", CHECKPOINTING,
           "saves memory, same numbers, unless re-entrant over frozen inputs"),
    Matter("attention", ATTENTION, "kernels round differently, and some return NaN for fully masked rows"),
    Matter("loss scale", ("loss_scale", "initial_scale_power", "init_scale", "fp16_init_scale"),
           "decides when fp16 gradients overflow or underflow"),
    Matter("dropout", ("dropout", "dropout_rate", "hidden_dropout_prob"), "more dropout, noisier gradients"),
    Matter("label smoothing", ("label_smoothing_factor", "label_smoothing"),
           "smoothing bounds the logits and raises the lowest possible loss"),
    Matter("shuffling", ("shuffle", "shuffle_dataset"), "unshuffled data comes in runs of one kind"),
    Matter("seed", ("seed", "random_seed", "manual_seed", "set_seed", "seed_everything", "data_seed"),
           "other data order and initial weights: spikes move, trends stay"),
)  # fmt: skip

BATCH = (
    "per_device_train_batch_size", "per_gpu_train_batch_size", "train_batch_size", "micro_batch_size", "batch_size",
    "train_micro_batch_size_per_gpu", "global_batch_size", "samples_per_gpu",
)  # fmt: skip
ACCUMULATION = (
    "gradient_accumulation_steps", "accumulate_grad_batches", "update_freq", "grad_accum_steps", "accum_steps",
)  # fmt: skip
PRECISION = lazy_regex(
    r"fp16|bf16|use_fp16|use_amp|amp|mixed_precision|precision|bfloat16|half|fp16_opt_level|opt_level|amp_dtype"
)
PRECISION_MEANS = {
    frozenset({"fp16", "fp32"}): "fp16 overflows above 65,504, fp32 does not: finite in one, NaN in the other",
    frozenset({"fp16", "bf16"}): "fp16 overflows above 65,504; bf16 has fp32's range but rounds more",
    frozenset({"bf16", "fp32"}): "same range; bf16 rounds to 3 digits, so tiny updates of bf16 weights are lost",
}
