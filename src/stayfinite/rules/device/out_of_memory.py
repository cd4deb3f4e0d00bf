"""The device's or the host's memory is full.

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

## How to recognise it
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
Libraries that retry (`auto_find_batch_size`, fairseq's skipping of a batch) print the message and go on. An index out
of range on the device can surface as a failed allocation in a later call: run once with `CUDA_LAUNCH_BLOCKING=1`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.rules.facts import Facts
from stayfinite.rules.plans import REMARKS, planned
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Rule
from stayfinite.rules.signs.aftermath import went_on
from stayfinite.rules.signs.numbers import measured

_FULL = (
    r"\b(?:cuda|hip|xpu|npu|mps|mlu|musa)\b.{0,30}out of memory|outofmemoryerror|out of memory\. tried to allocate|"
    r"tried to allocate [\d.]+ [gmk]i?b|"
    r"defaultcpuallocator: (?:can'?t allocate|not enough) memory|not enough memory: you tried to allocate|"
    r"ran out of memory (?:with exception|in)|"
    r"oom when allocating tensor|resource_?exhausted.{0,40}(?:oom|memory)|unable to allocate [\d.]+ [gmkt]i?b|"
    r"std::bad_alloc|"
    r"\bMemoryError\b|cannot allocate memory|oom[- ]?kill|CUDA error: out of memory|insufficient memory|"
    r"out of memory: kill(?:ed)? process|out-of-memory handler"
)
_KILLED = (
    r"killed by signal: (?:killed|9)|exitcode\s*:?\s*-9|exit(?:ed with exit)? (?:code|status) (?:137|-9)|"
    r"\breturn code (?:-9|137)|"
    r"signal 9 \(sigkill\)|\bsigkill\b|^\s*killed\s*$|died with <signals\.sigkill"
)


def judge(facts: Facts) -> Iterator[Clue]:
    """The allocator says so; a process that was killed from outside was probably over the host's memory."""
    yield from planned(facts, "plan.too_large_for_card")
    full = facts.said(_FULL)
    if full:
        yield Clue(full.text, PROOF, full.where)
        if went_on(facts, full):
            yield Clue("training went on after it", AGAINST * 3)
    killed = facts.said(_KILLED)
    if killed:
        yield Clue(
            f"killed from outside, as the kernel does when memory runs out: {killed.text.strip()}",
            STRONG + HINT,
            killed.where,
        )
    handle = facts.said(r"(?:cublas|cudnn|cusolver|cusparse)_status_alloc_failed")
    if handle:
        yield Clue(handle.text, STRONG, handle.where)
        if facts.said(r"\bAssertion [`'\"]?.+ failed|device-side assert"):
            yield Clue("an assertion failed on the device first", AGAINST * 2)
    shared = facts.said(r"bus error.{0,60}(?:shm|shared memory)|insufficient shared memory|out of shared memory")
    if shared:
        yield Clue(f"the loaders' shared memory is full (docker: --shm-size): {shared.text}", STRONG, shared.where)
    estimate = measured(facts, "memory.estimate_share")
    if estimate is not None and estimate[0] > 1.0:
        # The estimate is right to a few percent, and 15 at worst: a little too much may still fit.
        weight = STRONG + HINT if estimate[0] > 1.2 else FAIR + HINT
        yield Clue(f"a training step needs {estimate[0]:.2f} times the card's memory", weight, estimate[1])


RULE = Rule(
    code="SF508",
    slug="out-of-memory",
    severity="error",
    title="Memory is full.",
    fix="per_device_train_batch_size=1 with gradient_accumulation_steps, gradient_checkpointing=True, bf16=True, "
    "an 8-bit optimizer; "
    "cut the longest rows",
    judge=judge,
    page=__doc__,
    prior=-3.0,
    beats=("nan-loss", "environment", "hardware", "upstream-bug", "rank-desync"),
    observes={
        "memory.estimate_share": "estimated need of a training step, as a share of the device's memory",
        "plan.too_large_for_card": REMARKS,
    },
)
