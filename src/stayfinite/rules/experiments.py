"""Cheap experiments that separate causes: what to do, the possible outcomes, and what each means.

An outcome counts the same from a note (`fp32: trains`), from `--tell fp32=fine`, or from a prompt. Weights are
log-odds, like those of clues.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One experiment with two outcomes."""

    key: str
    """As in `--tell bf16=fine`."""
    subject: str
    """What is changed, in a few words; remarks are recognized by this name."""
    do: str
    """What to type or change."""
    fine: str = "finite"
    """The outcome `fine`, in words."""
    bad: str = "NaN again"
    """The outcome `bad`, in words."""
    minutes: float = 5.0
    """Approximate cost."""
    says: Mapping[str, tuple[float, float]]
    """Log-odds of `fine` and of `bad`, by cause."""
    looks: bool = False
    """It inspects something that is fine unless the cause is in the table; otherwise it is a rerun with one change."""

    def chance_of_fine(self, cause: str) -> float:
        """Probability of `fine` if this is the cause.

        For causes outside the table, an inspection finds nothing and a rerun fails again.
        """
        if cause not in self.says:
            return 0.9 if self.looks else 0.15
        fine, bad = self.says[cause]
        return 1.0 / (1.0 + math.exp(bad - fine))


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        key="fp32", subject="fp32",
        do="run 20 steps in fp32: fp16=False (Trainer), precision=32 (Lightning), or without autocast",
        says={
            "fp16-overflow": (1.5, -5.0), "fp16-overflow-model-family": (1.5, -5.0), "pure-fp16-weights": (1.5, -4.0),
            "adam-eps-underflow": (1.0, 0.0), "loss-scale-collapse": (0.5, 0.0), "bad-data-row": (-4.0, 0.0),
            "lr-too-high": (-2.0, 0.0), "nan-weights": (-2.0, 0.0), "double-fp16": (0.0, -2.0),
        },
    ),
    Experiment(
        key="bf16", subject="bf16",
        do="run 20 steps in bf16: bf16=True, fp16=False (Trainer), or torch.autocast('cuda', dtype=torch.bfloat16)",
        says={
            "fp16-overflow": (2.0, -4.0), "fp16-overflow-model-family": (2.0, -4.0),
            "loss-scale-collapse": (1.0, 0.0), "bad-data-row": (-3.0, 0.0), "lr-too-high": (-1.5, 0.0),
            "fp8-saturation": (2.0, -5.0), "fp8-stale-scale": (1.5, -5.0), "fp8-zero-amax": (1.0, -5.0),
        },
    ),
    Experiment(
        key="fp8", subject="no fp8",
        do="run 20 steps without convert_to_float8_training or --fp8-format, or with fp8_autocast(enabled=False)",
        says={
            "fp8-saturation": (2.5, -5.0), "fp8-stale-scale": (2.0, -5.0), "fp8-zero-amax": (1.5, -5.0),
            "bad-data-row": (-3.0, 0.0),
        },
    ),
    Experiment(
        key="rowwise", subject="rowwise scales",
        do='give each row a scale: Float8LinearConfig.from_recipe_name("rowwise"), --fp8-recipe blockwise',
        says={"fp8-saturation": (3.5, -1.5), "fp8-zero-amax": (-2.0, 0.5)},
    ),
    Experiment(
        key="dynamic", subject="dynamic scales",
        do="scale by the tensor itself: Float8CurrentScaling(), --fp8-recipe tensorwise",
        says={"fp8-stale-scale": (4.5, -4.0)},
    ),
    Experiment(
        key="part", subject="one part in fp32",
        do="compute the loss and the attention softmax in fp32: logits = logits.float()",
        says={"fp16-overflow": (4.0, 0.0), "bad-data-row": (-2.0, 0.0), "lr-too-high": (-2.0, 0.0)},
    ),
    Experiment(
        key="attention", subject="eager attention", minutes=3,
        do='set attn_implementation="eager", or wrap the step in torch.nn.attention.sdpa_kernel(SDPBackend.MATH)',
        says={"sdpa-kernel-bug": (5.0, -5.0), "fp16-overflow-model-family": (-2.0, 0.0), "bad-data-row": (-3.0, 0.0)},
    ),
    Experiment(
        key="mask", subject="no mask", minutes=3,
        do="look for rows without a key: print(attention_mask.bool().any(-1).all()), or run one step without the mask",
        says={"attention-fully-masked-row": (5.5, -5.0), "sdpa-kernel-bug": (-0.5, 0.0)},
    ),
    Experiment(
        key="rate", subject="a lower rate", fine="it trains", bad="it breaks again",
        do="divide the learning rate by 10 and run 100 steps",
        says={
            "lr-too-high": (5.0, -4.0), "no-warmup": (1.5, -2.0), "exploding-gradient": (1.5, 0.0),
            "no-clipping": (1.0, 0.0), "bad-data-row": (-2.0, 1.5), "loss-formula-singularity": (0.0, 0.5),
        },
    ),
    Experiment(
        key="clip", subject="clipping", fine="it trains", bad="it breaks again",
        do="clip gradients at 1.0: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) before optimizer.step()",
        says={"no-clipping": (4.5, -4.0), "exploding-gradient": (1.5, -1.5), "lr-too-high": (-1.5, 0.0)},
    ),
    Experiment(
        key="warmup", subject="warmup", fine="it trains", bad="it breaks again", minutes=10,
        do="warm the learning rate up over 500 steps",
        says={"no-warmup": (5.0, -3.0)},
    ),
    Experiment(
        key="data", subject="other data", fine="it trains", bad="it breaks again",
        do="feed random tensors of the same shape and range for 20 steps",
        says={
            "bad-data-row": (4.5, -4.0), "unscaled-input": (3.0, -3.0), "constant-feature": (3.0, 0.0),
            "all-labels-masked": (3.0, 0.0), "label-out-of-range": (3.0, 0.0), "lr-too-high": (-2.0, 0.0),
            "environment": (-2.0, 0.0),
        },
    ),
    Experiment(
        key="scaled", subject="scaled inputs", fine="it trains", bad="it breaks again",
        do="standardize inputs and targets: (x - x.mean(0)) / x.std(0)",
        says={"unscaled-input": (5.0, -4.0), "bad-data-row": (-1.5, 0.0), "lr-too-high": (-1.5, 0.0)},
    ),
    Experiment(
        key="mean", subject="a mean over elements", fine="it trains", bad="it breaks again", minutes=3,
        do='average the loss: reduction="mean", or loss.sum() / count',
        says={"wrong-reduction": (5.0, -4.0), "lr-too-high": (-1.5, 0.0)},
    ),
    Experiment(
        key="batch", looks=True, subject="the batch that fails",
        fine="every value is finite", bad="a value is NaN or inf",
        do="before the step: assert all(torch.isfinite(t).all() for t in batch.values() if t.is_floating_point())",
        minutes=2,
        says={"bad-data-row": (-3.0, 6.0), "constant-feature": (-1.5, 2.0)},
    ),
    Experiment(
        key="labels", looks=True, subject="the labels", fine="labels are in range, and some are not -100",
        bad="a label is out of range, or all are -100",
        do="print(labels.min(), labels.max(), (labels != -100).sum())", minutes=1,
        says={"label-out-of-range": (-5.0, 5.0), "all-labels-masked": (-5.0, 5.0), "truncation": (0.0, 1.0)},
    ),
    Experiment(
        key="ids", looks=True, subject="the token ids", fine="every id fits the embedding", bad="an id is too large",
        do="print(input_ids.max(), model.get_input_embeddings().num_embeddings, input_ids.shape)", minutes=1,
        says={"token-id-out-of-range": (-5.0, 5.0), "tokenizer-mismatch": (-1.0, 1.5)},
    ),
    Experiment(
        key="anomaly", looks=True, subject="anomaly mode",
        fine="it names no function", bad="it names a backward function",
        do="torch.autograd.set_detect_anomaly(True) for the step that fails", minutes=3,
        says={
            "loss-formula-singularity": (-3.0, 2.5), "where-nan-branch": (-4.0, 2.5), "naive-exp": (0.0, 1.5),
            "bad-data-row": (0.0, -1.0),
        },
    ),
    Experiment(
        key="eps", subject="a larger eps", fine="it trains", bad="NaN again",
        do="set Adam's eps to 1e-6",
        says={"adam-eps-underflow": (5.0, -4.0)},
    ),
    Experiment(
        key="guarded", subject="a guarded loss",
        do="keep every log, sqrt and division of the loss away from 0: x.clamp_min(1e-6)",
        says={"loss-formula-singularity": (4.5, -3.0), "bad-data-row": (-1.5, 0.0), "lr-too-high": (-2.0, 0.0)},
    ),
    Experiment(
        key="optimizer", subject="another optimizer", fine="it trains", bad="it breaks again",
        do="run 20 steps with SGD at a small rate",
        says={"adam-eps-underflow": (2.0, -3.0), "lr-too-high": (0.5, 0.0)},
    ),
    Experiment(
        key="scan", looks=True, subject="the checkpoint", fine="every weight is finite", bad="weights are NaN or inf",
        do="stayfinite scan CHECKPOINT", minutes=1,
        says={"nan-weights": (-4.0, 4.0), "poisoned-checkpoint": (-5.0, 5.0), "corrupt-checkpoint": (-4.0, 2.0)},
    ),
    Experiment(
        key="pretrained", subject="pretrained weights", fine="it trains", bad="it breaks again", minutes=10,
        do="start from pretrained weights, or print the std of each layer's output: it should stay near 1",
        says={"bad-init": (4.0, -3.0), "bad-data-row": (-2.0, 0.0)},
    ),
    Experiment(
        key="moves", looks=True, subject="one weight over a step", fine="the weights change", bad="they do not change",
        do="w = next(model.parameters()); before = w.clone(); optimizer.step(); print((w - before).abs().max())",
        minutes=2,
        says={
            "params-not-in-optimizer": (-4.0, 2.5), "params-frozen": (-4.0, 2.5), "lr-zero": (-4.0, 2.5),
            "detached-loss": (-4.0, 2.0), "bf16-lost-updates": (-3.0, 1.5), "step-missing": (-5.0, 3.0),
            "lr-too-high": (0.0, -5.0),
        },
    ),
    Experiment(
        key="trainable", looks=True, subject="what is trainable",
        fine="your layers are listed", bad="your layers are missing",
        do="print([n for n, p in model.named_parameters() if p.requires_grad][:5])", minutes=1,
        says={"params-frozen": (-5.0, 5.0)},
    ),
    Experiment(
        key="grads", looks=True, subject="the gradients", fine="every gradient is there", bad="some are None or 0",
        do="after backward: print([n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()])",
        minutes=1,
        says={
            "detached-loss": (-5.0, 3.0), "unused-parameters": (-5.0, 3.0), "vanishing-gradient": (-2.0, 1.5),
            "zero-gradient": (-4.0, 3.0), "dead-units": (-1.0, 1.0), "params-frozen": (-3.0, 1.5),
        },
    ),
    Experiment(
        key="one_batch", subject="one batch", fine="its loss falls to near 0", bad="its loss does not fall",
        do="train 100 steps on one batch", minutes=3,
        says={
            "params-frozen": (-3.0, 1.5), "detached-loss": (-4.0, 1.5), "lr-zero": (-4.0, 1.5),
            "params-not-in-optimizer": (-4.0, 1.5), "softmax-before-cross-entropy": (-1.0, 0.5),
            "dead-units": (-2.0, 1.5), "label-imbalance": (1.0, -3.0), "tokenizer-mismatch": (0.5, 0.0),
            "labels-shuffled": (2.0, -3.0), "unshuffled": (1.0, -2.0), "lr-too-high": (-1.0, 0.5),
            "input-ignored": (-2.0, 1.5), "lr-too-low": (0.0, 0.5), "zero-gradient": (0.0, 1.5),
            "vanishing-gradient": (0.0, 1.0),
        },
    ),
    Experiment(
        key="lr", looks=True, subject="the rate that is used",
        fine="it is the one you set", bad="it is 0 or another value",
        do='print(optimizer.param_groups[0]["lr"]) each 10 steps', minutes=1,
        says={"lr-zero": (-5.0, 3.0), "lr-schedule-bug": (-3.0, 4.0)},
    ),
    Experiment(
        key="answers", looks=True, subject="answers beside references", fine="the answers make sense",
        bad="they are empty, cut or in another format",
        do="print three prompts, raw outputs and references side by side", minutes=3,
        says={
            "zero-answer-rate": (-2.0, 2.0), "references-transposed": (2.5, -3.0), "metric-hides-failure": (1.5, 0.0),
            "metric-stuck": (1.5, 0.0), "prompt-format-differs": (0.0, 2.0), "generation-too-short": (0.0, 2.0),
            "tokenizer-mismatch": (0.0, 1.0),
        },
    ),
    Experiment(
        key="limit", subject="a longer limit", fine="the loss rises above 0", bad="no change",
        do="double max_length, and print(tokenizer.decode(ids[labels != -100])) for one row", minutes=3,
        says={"all-labels-masked": (4.5, 0.0), "truncation": (2.0, -3.0)},
    ),
    Experiment(
        key="batch_size", subject="another batch size", fine="it trains", bad="it breaks again",
        do="halve the batch size",
        says={"lr-too-high": (2.0, 0.0), "bad-data-row": (-0.5, 0.0)},
    ),
    Experiment(
        key="single", subject="a batch of one", minutes=3,
        do="run with a batch of one, so that nothing is padded",
        says={"attention-fully-masked-row": (2.5, 0.0), "lr-too-high": (-0.5, 0.0)},
    ),
    Experiment(
        key="skip", subject="the bad batch skipped", fine="it continues", bad="the next one fails too",
        do="skip the failing batch and continue from the same weights",
        says={"toxic-batch": (4.0, -3.0), "bad-data-row": (2.0, -1.0), "lr-too-high": (-1.5, 0.0)},
    ),
    Experiment(
        key="seed", subject="another seed", fine="it trains", bad="it breaks again", minutes=10,
        do="run with another seed",
        says={"no-warmup": (1.5, 0.0), "bad-init": (2.0, -2.0), "lr-too-high": (0.5, 0.0), "bad-data-row": (-1.0, 0.0)},
    ),
    Experiment(
        key="twice", looks=True, subject="the same step twice", fine="both losses are equal", bad="they differ",
        do="run the same batch twice from the same checkpoint with the same seed and compare the losses", minutes=3,
        says={"hardware": (-4.0, 4.0)},
    ),
    Experiment(
        key="device", subject="another device", fine="it works there", bad="it fails there too", minutes=15,
        do="run the step on another GPU, or on the CPU: device='cpu'",
        says={
            "environment": (3.0, -1.5), "hardware": (2.5, -4.0), "sdpa-kernel-bug": (0.5, 0.0),
            "bad-data-row": (-3.0, 0.0), "lr-too-high": (-2.0, 0.0), "fp16-overflow": (-1.0, 0.0),
        },
    ),
    Experiment(
        key="version", subject="another version", fine="it works there", bad="it fails there too", minutes=15,
        do="install the versions that the project pins, or the newest release, in a fresh environment",
        says={
            "environment": (4.0, -2.0), "upstream-bug": (3.5, -2.0), "bad-data-row": (-2.0, 0.0),
            "lr-too-high": (-2.0, 0.0), "fp16-overflow": (-1.0, 0.0),
        },
    ),
    Experiment(
        key="compile", subject="no compilation", fine="it works", bad="it fails too", minutes=3,
        do="run without torch.compile: TORCH_COMPILE_DISABLE=1",
        says={
            "upstream-bug": (3.5, 0.0), "environment": (1.5, 0.0), "bad-data-row": (-2.0, 0.0),
            "lr-too-high": (-2.0, 0.0),
        },
    ),
    Experiment(
        key="one_gpu", subject="one process", fine="it works", bad="it fails too",
        do="run on one GPU with the same batch: CUDA_VISIBLE_DEVICES=0",
        says={
            "rank-desync": (3.5, -4.0), "deepspeed-overlap-comm": (1.0, -2.0), "ddp-unused-parameters": (2.0, -4.0),
            "environment": (1.5, 0.0), "lr-too-high": (-1.5, 0.0), "no-warmup": (-1.0, 0.0),
            "bad-data-row": (-2.0, 0.0), "unscaled-input": (-2.0, 0.0), "bad-init": (-2.0, 0.0),
            "dead-units": (-2.0, 0.0), "params-frozen": (-2.0, 0.0), "loss-formula-singularity": (-2.0, 0.0),
            "lr-too-low": (-2.0, 0.0), "label-out-of-range": (-2.0, 0.0), "softmax-before-cross-entropy": (-2.0, 0.0),
        },
    ),
    Experiment(
        key="zero", subject="another ZeRO stage",
        do='set "overlap_comm": false in the DeepSpeed config, or another "stage"',
        says={"deepspeed-overlap-comm": (5.0, -4.0), "sdpa-kernel-bug": (-1.5, 0.0), "bad-data-row": (-2.0, 0.0)},
    ),
    Experiment(
        key="checkpointing", subject="no checkpointing", fine="it works", bad="it fails too", minutes=3,
        do="switch gradient checkpointing off, or pass use_reentrant=False",
        says={"gradient-checkpointing-no-input-grad": (4.0, -4.0)},
    ),
    Experiment(
        key="fresh", subject="a fresh start", fine="it trains", bad="it breaks again", minutes=10,
        do="start again without resuming",
        says={
            "resume-state-missing": (3.0, -4.0), "stale-master-weights": (3.0, -4.0),
            "poisoned-checkpoint": (3.0, -4.0), "corrupt-checkpoint": (2.0, 0.0),
        },
    ),
    Experiment(
        key="mode", looks=True, subject="the mode", fine="it is as you expect", bad="it is not",
        do="print(model.training) in the training step and in the evaluation", minutes=1,
        says={"wrong-mode": (-5.0, 5.0)},
    ),
)  # fmt: skip

BY_KEY: Mapping[str, Experiment] = {experiment.key: experiment for experiment in EXPERIMENTS}

MEANS: Mapping[tuple[str, bool], Mapping[str, float]] = {
    (experiment.subject, good): {cause: odds[not good] for cause, odds in experiment.says.items() if odds[not good]}
    for experiment in EXPERIMENTS
    for good in (True, False)
}
"""What an outcome says about causes, by the change and whether it went well."""
