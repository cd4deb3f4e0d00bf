"""Memory is full.

## What it means
An allocation failed. Training needs, for each parameter, the weight (4 bytes in fp32, 2 in bf16), its gradient (the
same again) and the optimizer's states (8 bytes for Adam in fp32; 16 bytes in all with mixed precision and a master
copy), plus the activations, which grow with batch x length.

## Why it happens
- The batch is too large for the card, or one batch has a much longer sequence or a bigger image than the rest: the
  crash then comes late.
- Logits: batch x length x vocabulary in fp32, several times over. With a vocabulary of 150,000 and 8 x 2,048 tokens
  that is 10 GB a copy.
- The graph is kept alive: `total += loss` instead of `total += loss.item()`, outputs appended to a list,
  `retain_graph=True`. Memory then grows step by step.
- Evaluation gathers all logits on the device, or runs without `torch.no_grad()`.
- Another process holds the card (`nvidia-smi`), or memory is fragmented (reserved far above allocated).
- The host: too many loader workers, a dataset in RAM, a checkpoint loaded by every rank at once; the kernel then kills
  the process (`SIGKILL`, exit code -9 or 137) without a traceback.

## How to recognize it
- `CUDA out of memory. Tried to allocate 488.00 MiB`, `torch.OutOfMemoryError`,
  `DefaultCPUAllocator: can't allocate memory`, `MPS backend out of memory`.
- `exitcode: -9`, `Killed`, `DataLoader worker (pid 123) is killed by signal: Killed`.

## How to fix it
`stayfinite check --memory t5-base --batch 8 --seq 512 --gpu T4` tells beforehand what takes how much, and the largest
batch that fits. Then, in the order of what they cost:
1. Smaller batch, same effective batch: transformers `per_device_train_batch_size=1, gradient_accumulation_steps=16` (or
   `auto_find_batch_size=True`), Lightning `accumulate_grad_batches=16`, DeepSpeed
   `"train_micro_batch_size_per_gpu": 1`.
2. Gradient checkpointing: `gradient_checkpointing=True`; plain torch `checkpoint(fn, x, use_reentrant=False)`.
3. `bf16=True`; `optim="adamw_bnb_8bit"` or `"adafactor"`; LoRA; ZeRO 2/3 or FSDP;
   `"offload_optimizer": {"device": "cpu"}`.
4. Long rows: a length limit, sorting by length, `use_liger_kernel=True` (no full logits).
5. Evaluation: `eval_accumulation_steps=8`, `preprocess_logits_for_metrics`, `per_device_eval_batch_size=1`,
   `torch.inference_mode()`.
6. Fragmentation: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; `torch.cuda.memory._dump_snapshot()` shows who
   holds what.

## When it is a false alarm
Libraries that retry (`auto_find_batch_size`, fairseq's skipping of a batch) print the message and continue. An index
out of range on the device can surface as a failed allocation in a later call: run once with `CUDA_LAUNCH_BLOCKING=1`.
"""

import re

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, error_of, quote
from stayfinite.rules.signs.aftermath import went_on
from stayfinite.rules.signs.numbers import measured

_FULL = (
    r"out[-_ ]?of[-_ ]?memory|\b(?:ran|runs?|running) out of (?:\w+ )?(?:v?ram|memory)\b|"
    r"tried to allocate [\d.]+ ?[gmk]i?b|\bOOM\b|oom[- ]?kill|"
    r"(?:can'?t|cannot|could not|unable to|failed to|not) (?:be )?allocat\w+ .{0,30}"
    r"(?:memory|bytes|[\d.]+ ?[gmkt]i?b|buffer)|"
    r"not enough (?:\w+ )?(?:memory|vram)|insufficient (?:\w+ )?memory|resource_?exhausted|std::bad_alloc|"
    r"\bMemoryError\b|cudaErrorMemoryAllocation|memory (?:limit|quota) (?:was |has been )?(?:exceeded|reached)|"
    r"exceed\w* .{0,24}memory limit|cuda error ?\(?2\b"
)
"""Errors of CUDA, cuDNN, the host, numpy, TensorFlow and cluster schedulers."""
_ONLY_TALK = (
    r"\becc error\b|"
    r"\b(?:if (?:you|the|it|there|training)|in case|avoid\w*|prevent\w*|may|might|can (?:cause|lead|run)|risk|"
    r"without|no|never|not|reduc\w+|sav\w+|less|until|handle\w*|recover\w*|skip\w*|ignor\w*|retry\w*)\b[^.\n]{0,40}"
    r"(?:out[-_ ]?of[-_ ]?(?:memory|v?ram\b)|\boom\b)|\boom\w*\W{1,3}(?:0|none|false|true)\b|"
    r"out[-_ ]?of[-_ ]?memory\W{0,3}(?:checks?|handl\w+|policy|\w+ing\b)"
)
"""Another error, advice, a switch, or a count of zero."""
_KILLED = (
    r"killed by signal: (?:killed|9)|exitcode\s*:?\s*-9|exit(?:ed with exit)? (?:code|status) (?:137|-9)|"
    r"\breturn code (?:-9|137)|"
    r"signal 9 \(sigkill\)|\bsigkill\b|^\s*killed\s*$|\u5df2\u6740\u6b7b\s*$|died with <signals\.sigkill"
)

_OF_HOST = r"oom[-_ ]?kill|\bMemoryError\b|DefaultCPUAllocator|cannot allocate memory|\bbad_alloc\b"
"""Errors of the host's memory."""
_OF_CARD = r"\bcuda\b.{0,40}out of memory|\b(?:hip|mps)\b.{0,40}out of memory|OutOfMemoryError"
_MORE_OF_HOST = (
    "host RAM is full: ask for more (Slurm: --mem), use fewer DataLoader workers, and read the dataset in parts"
)


def judge(facts: Facts) -> Clues:
    """Clues: the allocator's error; a killed process probably exceeded the host's memory."""
    full = next((one for one in facts.all_said(_FULL) if not re.search(_ONLY_TALK, one.text, re.IGNORECASE)), None)
    if full:
        of_host = re.search(_OF_HOST, full.text, re.IGNORECASE) and facts.said(_OF_CARD) is None
        yield Clue(full.text, PROOF, full.where, fix=_MORE_OF_HOST if of_host else "")
        if went_on(facts, full):
            yield Clue("training continued after it", AGAINST * 3)
    grows = facts.symptoms.growing_memory
    if grows:
        first, last = facts.metric(grows)[0], facts.metric(grows)[-1]
        text = f"{grows} grows at every line, from {first[0]:g} to {last[0]:g}: something keeps tensors"
        yield Clue(text, STRONG + HINT, first[1], fix="keep results on the CPU (.detach().cpu(), .item())")
    yield from quote(facts.symptoms.said("memory grows"), STRONG + HINT, "reported: memory grows: {:.80}")
    recovered = facts.said(r"attempting to recover from (?:oom|out of memory)")
    if recovered is not None and not facts.symptoms.healthy:
        yield Clue(
            f"a batch did not fit, and was left out: {recovered.text.strip()[:80]}", STRONG + HINT, recovered.where
        )
    killed = facts.said(_KILLED)
    if killed is not None:
        text = f"killed from outside, likely by the OOM killer: {error_of(killed.text)}"
        yield Clue(text, STRONG + HINT, killed.where, fix="" if full else _MORE_OF_HOST)
    yield from quote(facts.said(r"(?:cublas|cudnn|cusolver|cusparse)_status_alloc_failed"), STRONG)
    shared = facts.said(
        r"\bbus error\b|(?:insufficient|out of|not enough) shared memory|shared memory.{0,30}(?:full|exhausted)"
    )
    yield from quote(shared, STRONG, "the loader's shared memory is full (docker: --shm-size): {}")
    estimate = measured(facts, "memory.estimate_share")
    if estimate is not None and estimate[0] > 1.0:
        # The estimate is accurate to a few percent, 15 at worst: a slight excess may still fit.
        weight = STRONG + HINT if estimate[0] > 1.2 else FAIR + HINT
        yield Clue(
            f"a training step needs {estimate[0]:.2f} times the GPU's memory",
            weight,
            estimate[1],
            fix=_what_fits(facts),
        )


def _what_fits(facts: Facts) -> str:
    """What the estimate itself found to fit; empty for the rule's own fix."""
    seen = facts.seen("memory.what_fits")
    return str(seen.value) if seen is not None else ""


RULE = Rule(
    code="SF508",
    fix=(
        "per_device_train_batch_size=1 with gradient_accumulation_steps, gradient_checkpointing=True, bf16=True, an "
        "8-bit optimizer; shorten the longest rows"
    ),
    prior=-3.0,
    beats=("nan-loss", "environment", "hardware", "upstream-bug", "rank-desync"),
    observes={
        "memory.estimate_share": "estimated need of a training step, as a share of the device's memory",
        "memory.what_fits": "what the estimate suggests instead, in words",
    },
    plans={"plan.too_large_for_card": PROOF},
)
