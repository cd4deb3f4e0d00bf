"""A device returns wrong numbers or reports a fault.

## What it means
The program is right and the result is not: the same input and the same weights give another answer the second time, or
the driver reports a fault of the device. Nothing in the model or in its settings will cure it.

## Why it happens
Memory cells go bad (ECC corrects single flipped bits and reports double ones), links and connectors age, cards
overheat, power supplies sag under a load that only training makes, consumer cards are overclocked. In large fleets some
devices compute wrong numbers without any report: silent data corruption.

## How to recognize it
- `NVRM: Xid (PCI:0000:9b:00): 94, Contained ECC error`, `uncorrectable ECC error encountered`,
  `GPU has fallen off the bus`, `Unable to determine the device handle`, `uncorrectable NVLink error`: the driver itself
  reports it. Check with `dmesg -T | grep -i xid`.
- NaN on one rank, one card or one node only; the same job is healthy on another machine of the same kind.
- A replay of the very same step (same weights, same batch, same generators) is finite. Megatron's re-run machine says
  `Possible transient error`.
- Crashes at different places, under load, with different messages.

## How to fix it
1. Take the card out: `CUDA_VISIBLE_DEVICES` without it, or drain the node (`scontrol update nodename=... state=drain`).
2. Go back to a checkpoint from before the first bad step: what was trained after it may be damaged.
3. Test: `nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT,TEMPERATURE`, `dcgmi diag -r 3`; reset clocks to default
   (`nvidia-smi -rgc`), try a lower power limit (`nvidia-smi -pl`).
4. Xid 48, 63, 64, 74, 79, 94, 95 concern the device; 13, 31, 43 and 45 are usually the program's (an index out of
   range).
5. In the training: `Policy(replay_every=200)` runs one step in 200 again and names the device that errs, and
   `stayfinite hardware RUNS` adds up which machine it is. Megatron: `--rerun-mode validate_results`.

## When it is a false alarm
Non-deterministic kernels (atomics) differ in the last digits between two runs; that is normal. Two machines with
other library versions or other card generations differ for reasons of software: see `environment`.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import HINT, PROOF, Clue, Clues, Rule, quote

_DRIVER = (
    r"uncorrectable ecc error|double[- ]bit ecc|contained ecc error|gpu has fallen off the bus|"
    r"unable to determine the device handle|"
    r"uncorrectable nvlink error|nvlink error|row[- ]remap\w* (?:failure|pending|occurred)|gpu is lost|"
    r"hardware error|machine check|\bdcgmi\b.{0,30}\bfail|"
    r"cudaErrorECCUncorrectable|ERROR_ECC_UNCORRECTABLE|cuda error: (?:uncorrectable|hardware)|gpu memory page fault"
)
_XID = lazy_regex(r"\bxid\b\D{0,40}?(?:\([^)]*\)\s*:?\s*)?(\d{1,3})\b", re.IGNORECASE)
_PROGRAM_XIDS = frozenset({"13", "31", "32", "43", "45", "68", "69"})


def judge(facts: Facts) -> Clues:
    """Clues: the driver's report, a result that a rerun does not reproduce, or trouble on one device only."""
    yield from quote(facts.said(_DRIVER), PROOF)
    for message in facts.all_said(r"\bxid\b"):
        found = _XID.search(message.text)
        if found:
            program = found.group(1) in _PROGRAM_XIDS
            yield Clue(message.text, HINT if program else PROOF, message.where)
            break


RULE = Rule(
    code="SF505",
    fix=(
        "take the device out of service, return to a checkpoint before the bad step, and test: nvidia-smi "
        "-q -d ECC, dcgmi diag -r 3"
    ),
    prior=-4.5,
    beats=("nan-loss", "rank-desync", "loss-collapse", "loss-diverging"),
    says={
        r"not reproducible on a different gpu|possible (?:persistent|transient) error!!": PROOF,
    },
)
