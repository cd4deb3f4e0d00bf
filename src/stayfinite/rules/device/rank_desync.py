"""Ranks hold different parameters or run different steps.

## What it means
Data-parallel training is one computation done in copies. When one copy has other parameters, another number of batches
or takes another decision (skip this step, stop, evaluate now), the copies either drift apart in silence or wait for
each other until a timeout.

## Why it happens
- A decision is taken from a local number: `if torch.isnan(loss): continue` on one rank only, early stopping by each
  rank's own metric, `if rank == 0:` round code that holds a collective (evaluation, saving a sharded model,
  `barrier()`).
- The ranks have different numbers of batches, and the one that ends first leaves the others waiting.
- Parameters were initialized or loaded after wrapping, with another seed on each rank, or new ones were added on one
  rank.
- Weights are changed outside the optimizer on one rank; buffers (BatchNorm's, a queue, an EMA) are not broadcast.
- The loss is computed through `ddp.module`, so DistributedDataParallel never sees it and averages no gradients.
- A kernel's or a card's error changed the numbers of one rank (see `hardware`).

## How to recognize it
- `Watchdog caught collective operation timeout`, `Some NCCL operations have failed or timed out`,
  `Detected mismatch between collectives on ranks`, `DDP expects same model across all ranks`: ranks wait for different
  things.
- fairseq: `Fatal error: gradients are inconsistent between workers`.
- Checksums of the parameters that differ between ranks (the guard compares them every 100 steps).

## How to fix it
- Take every decision on a reduced number: `dist.all_reduce(flag, op=dist.ReduceOp.MAX)`, then all skip or none.
- Call collectives on every rank; keep only printing and writing under `if rank == 0`.
- Same length everywhere: `DistributedSampler(..., drop_last=True)`, or torch's `with Join([model]):` for uneven inputs.
- Same start: seed before building the model, load weights before wrapping; DDP broadcasts rank 0's parameters when it
  wraps.
- To find the place: `TORCH_DISTRIBUTED_DEBUG=DETAIL`, `TORCH_NCCL_ASYNC_ERROR_HANDLING=1`, `NCCL_DEBUG=INFO`; a flight
  record with `TORCH_NCCL_TRACE_BUFFER_SIZE=2000`.
- A long step that is healthy (tokenizing on rank 0): transformers `TrainingArguments(ddp_timeout=7200)`, plain torch
  `init_process_group(timeout=timedelta(hours=2))`, Lightning `DDPStrategy(timeout=...)`.

## When it is a false alarm
Losses differ between ranks because their batches do. A timeout after another rank's traceback is a consequence: read
that traceback first. A broken cable or a blocked port times out as well, at the first collective already.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_DIFFER = (
    r"detected mismatch between collectives on ranks|SIZE_OR_SYNTAX_MISMATCH|COLLECTIVE_TYPE_MISMATCH|"
    r"uneven (?:inputs|batches|number of (?:batches|samples))|ddp expects same model across all ranks|"
    r"gradients are inconsistent between workers|appears not to match (?:sizes|strides) of the same param in process|"
    r"(?:parameters|weights|params) (?:are|is) (?:not|out of) (?:in )?sync|"
    r"(?:parameters|weights|replicas|checksums?) differ (?:between|across|on) (?:the )?ranks|"
    r"desync(?:ed|hroni[sz]ed)? (?:at|between|across) rank"
)
_WAITING = (
    r"watchdog caught collective operation timeout|some nccl operations have failed or timed out|"
    r"\bstalled (?:ranks|tensors)|\bsubset of ranks\b|"
    r"timeout at nccl work|ran for \d+ milliseconds before timing out|timed out waiting for rank|"
    r"collective operation timeout: WorkNCCL|ranks? .{0,30}failed to (?:pass|reach) (?:the )?(?:monitored ?)?barrier|"
    r"watchdog got stuck|heartbeat monitor timed out|\bnccl\b.{0,40}\b(?:timeout|timed out)|"
    r"wait timeout after \d+ ?ms|exception \(either an error or timeout\) detected by watchdog"
)


_SEVERAL = (
    r"\b(?:[2-9]|\d{2,}|two|four|eight|multi(?:ple)?|several)[- ]?(?:gpus?|cards?|nodes?|ranks?|processes)\b|"
    r"\btorchrun\b|\bddp\b|\bnproc|\bworld_size\b|\bnccl\b|DistributedDataParallel|--n_?gpu\w* [2-9]"
)


def judge(facts: Facts) -> Clues:
    """Clues: libraries that compare ranks report it; a timeout alone may have other reasons."""
    yield from quote(facts.said(_DIFFER), PROOF)
    hangs = facts.symptoms.said("hangs")
    if hangs and (several := facts.mentioned(_SEVERAL)) is not None:
        yield Clue(f"reported: it hangs, with several processes: {several.text.strip()[:80]}", STRONG, hangs.where)
    yield from quote(facts.said(_WAITING), STRONG + HINT, "a collective timed out: {}")


RULE = Rule(
    code="SF503",
    fix=(
        "branch only on all-reduced values; call every collective on every rank; give ranks equal batch counts; "
        "load weights before wrapping"
    ),
    beats=("nan-loss",),
    says={
        r"parameter hashes not matching across": PROOF,
        r"returning none in distributed training is not supported": PROOF,
    },
    warns={
        r"checkpoint tag name .{0,80}not consistent across all ranks": STRONG + FAIR,
    },
)
